//! How long a node that restarted has no vote: by whose clock, and for which client.
//!
//! The nodes keep everything when they start, so the first lock needs no wait. That is set at run
//! time only: a node that restarts has forgotten everything, and may forget again.

use std::time::Duration;

use tenure::{ErrorKind, Guard, Redlock};
use tenure_testkit::{ClockShim, Proxy, RedlockNodes, RedlockNodesBuilder};

use super::count;
use crate::stage::{ms, soon};

const HOUR: Duration = Duration::from_secs(3_600);
const REST: Duration = Duration::from_secs(30);
/// Longer than any of these tests looks.
const LEASE: Duration = Duration::from_secs(20);

/// Starts nodes that keep everything until they restart.
fn start(builder: RedlockNodesBuilder) -> RedlockNodes {
    let nodes = builder.without_aof().proxied().start();
    for node in nodes.nodes() {
        node.set_config("appendfsync", "always");
        node.set_config("appendonly", "yes");
    }
    nodes
}

/// The nodes without their proxies: what cuts A off does not cut off the others.
fn directly(nodes: &RedlockNodes) -> Vec<String> {
    nodes.nodes().iter().map(|node| node.url()).collect()
}

/// A takes the lock on all nodes, and is cut off: it can neither renew nor learn anything.
async fn hold_and_cut_off(a: &Redlock, nodes: &RedlockNodes) -> Guard {
    let guard = a.lock("n").fixed(LEASE).acquire().await.unwrap();
    assert!(soon(async || count(nodes, "n") == 3).await);
    (0..3)
        .map(|node| nodes.proxy(node))
        .for_each(Proxy::black_hole);
    guard
}

/// Asks until two nodes are named that may have forgotten the lease. Nobody may be granted the lock
/// meanwhile.
async fn is_refused_by_two_that_rest(client: &Redlock, guard: &Guard) {
    let rest = async || match client.lock("n").try_acquire().await {
        Ok(granted) => {
            let granted = granted.is_some();
            assert!(!granted || !guard.is_valid(), "two holders");
            false
        }
        Err(error) => {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}");
            text.matches("may have forgotten a lease").count() == 2
        }
    };
    for _ in 0..10 {
        if soon(rest).await {
            return;
        }
    }
    assert!(!guard.is_valid(), "the nodes that restarted were not named");
}

/// Two nodes restart with a clock that is an hour behind, and are corrected: they say that they have
/// run for an hour.
fn restart_an_hour_behind(nodes: &RedlockNodes, clocks: &[ClockShim; 2]) {
    for (node, clock) in clocks.iter().enumerate() {
        clock.step_back(HOUR);
        nodes.node(node).restart();
        clock.reset();
        let mut redis = nodes.node(node).client();
        // The server reads its clock now and then.
        let mut says = || {
            redis.command(&["PING"]);
            let uptime: u64 = nodes.node(node).info("uptime_in_seconds").parse().unwrap();
            uptime >= 3_599
        };
        assert!(tenure_testkit::eventually(REST, &mut says));
    }
}

fn clocks() -> Option<[ClockShim; 2]> {
    Some([ClockShim::compile()?, ClockShim::compile()?])
}

fn with_clocks(clocks: &[ClockShim; 2]) -> RedlockNodes {
    let [one, other] = clocks.clone();
    start(RedlockNodes::builder().clock(0, one).clock(1, other))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_a_client_that_saw_a_node_before_goes_by_its_own_clock() {
    let Some(clocks) = clocks() else { return };
    let nodes = with_clocks(&clocks);
    let a = Redlock::connect(nodes.urls()).await.unwrap();
    let b = Redlock::connect(directly(&nodes)).await.unwrap();
    let guard = hold_and_cut_off(&a, &nodes).await;
    restart_an_hour_behind(&nodes, &clocks);
    is_refused_by_two_that_rest(&b, &guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_a_fresh_client_asks_the_other_nodes_since_when_a_node_runs() {
    let Some(clocks) = clocks() else { return };
    let nodes = with_clocks(&clocks);
    let a = Redlock::connect(nodes.urls()).await.unwrap();
    let guard = hold_and_cut_off(&a, &nodes).await;
    restart_an_hour_behind(&nodes, &clocks);
    // Each learns it from the node that stayed, the second one from what the first one wrote too.
    for _ in 0..2 {
        let fresh = Redlock::connect(directly(&nodes)).await.unwrap();
        is_refused_by_two_that_rest(&fresh, &guard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_a_rest_does_not_follow_a_shorter_longest_ttl() {
    let nodes = start(RedlockNodes::builder());
    let a = Redlock::builder(nodes.urls()).longest_ttl(LEASE).connect();
    let a = a.await.unwrap();
    let guard = hold_and_cut_off(&a, &nodes).await;
    nodes.node(0).restart();
    nodes.node(1).restart();
    let builder = Redlock::builder(directly(&nodes)).longest_ttl(ms(2_000));
    let b = builder.connect().await.unwrap();
    let granted = b.lock("n").acquire_within(ms(8_000)).await;
    assert!(granted.is_err() || !guard.is_valid(), "two holders");
}
