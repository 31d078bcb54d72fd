//! How long a node that restarted has no vote: by whose clock, and for which client.

use std::time::Duration;

use tenure::{ErrorKind, Guard, Redlock};
use tenure_testkit::{
    ClockShim, Fsync, Proxy, RedisServer, RedlockNodes, RedlockNodesBuilder, eventually,
};

use super::{connect, count, keeping_until_they_restart};
use crate::stage::{ms, soon};

const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than any of these tests looks.
const LEASE: Duration = Duration::from_secs(20);

fn start(builder: RedlockNodesBuilder) -> RedlockNodes {
    keeping_until_they_restart(builder.proxied())
}

/// The nodes without their proxies: what cuts A off does not cut off the others.
fn directly(nodes: &RedlockNodes) -> Vec<String> {
    nodes.nodes().iter().map(RedisServer::url).collect()
}

/// A takes the lock on all nodes, and is cut off: it can neither renew nor learn anything.
async fn hold_and_cut_off(a: &Redlock, nodes: &RedlockNodes) -> Guard {
    let guard = a.lock("n").ttl(LEASE).no_renewal().acquire().await.unwrap();
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
            text.matches("may have lost a lease").count() == 2
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
        wait_until_it_says_an_hour(nodes, node);
    }
}

/// The server reads its clock now and then.
fn wait_until_it_says_an_hour(nodes: &RedlockNodes, node: usize) {
    let says = || {
        let uptime = nodes.node(node).info("uptime_in_seconds");
        uptime.parse::<u64>().unwrap() >= 3_599
    };
    assert!(eventually(Duration::from_secs(20), says));
}

fn clocks() -> Option<[ClockShim; 2]> {
    Some([ClockShim::compile()?, ClockShim::compile()?])
}

fn with_clocks(clocks: &[ClockShim; 2]) -> RedlockNodes {
    let [one, other] = clocks.clone();
    start(RedlockNodes::builder().clock(0, one).clock(1, other))
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_a_client_that_saw_a_node_before_goes_by_its_own_clock() {
    let Some(clocks) = clocks() else { return };
    let nodes = with_clocks(&clocks);
    let a = Redlock::connect(nodes.urls()).await.unwrap();
    let b = Redlock::connect(directly(&nodes)).await.unwrap();
    let guard = hold_and_cut_off(&a, &nodes).await;
    restart_an_hour_behind(&nodes, &clocks);
    is_refused_by_two_that_rest(&b, &guard).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
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

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_a_rest_does_not_follow_a_shorter_longest_ttl() {
    let nodes = start(RedlockNodes::builder());
    let a = Redlock::builder(nodes.urls()).longest_ttl(LEASE).connect();
    let a = a.await.unwrap();
    let guard = hold_and_cut_off(&a, &nodes).await;
    nodes.node(0).restart();
    nodes.node(1).restart();
    let builder = Redlock::builder(directly(&nodes)).longest_ttl(ms(2_000));
    let b = builder.connect().await.unwrap();
    let granted = b.lock("n").wait(ms(8_000)).acquire().await;
    assert!(granted.is_err() || !guard.is_valid(), "two holders");
}

/// Nobody may be made to wait at nodes that run for long, though they keep nothing: neither the first
/// clients ever, nor a later one while a node is down.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_client_at_nodes_that_run_for_long_does_not_wait() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    clock.step_back(HOUR);
    let builder = RedlockNodes::builder().without_aof();
    let builder = (0..3).fold(builder, |builder, node| builder.clock(node, clock.clone()));
    let nodes = builder.start();
    clock.reset();
    (0..3).for_each(|node| wait_until_it_says_an_hour(&nodes, node));
    let first = tokio::join!(connect(&nodes), connect(&nodes), connect(&nodes));
    for (client, name) in [(first.0, "a"), (first.1, "b"), (first.2, "c")] {
        let granted = client.lock(name).try_acquire().await.unwrap();
        assert!(granted.is_some());
    }
    let fresh = connect(&nodes).await;
    assert!(fresh.lock("n").try_acquire().await.unwrap().is_some());
    nodes.node(2).kill();
    let fresh = connect(&nodes).await;
    assert!(fresh.lock("m").try_acquire().await.unwrap().is_some());
}

/// A table that was written before a node's clock was set back says nothing of use: one client rests,
/// and corrects it for the next.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_still_to_come_is_corrected() {
    let nodes = RedlockNodes::start();
    drop(connect(&nodes).await);
    let run_id = nodes.node(0).info("run_id");
    let mut redis = nodes.node(1).client();
    redis.command(&["HSET", "tenure:nodes", &run_id, "9000000000000"]);
    drop(connect(&nodes).await);
    let started = redis.command(&["HGET", "tenure:nodes", &run_id]);
    let started: u64 = started.text().parse().unwrap();
    assert!(started < 9_000_000_000_000, "{started}");
}

/// What keeps a node from voting at once after its start, one setting after the other.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_may_lose_anything_has_no_vote_when_it_has_just_started() {
    let builder = RedlockNodes::builder;
    let evicting = builder().config("maxmemory", "100mb");
    let cases = [
        (builder().without_aof(), "`appendonly yes`"),
        (builder().aof(Fsync::Everysec), "`appendfsync always`"),
        (
            builder().config("no-appendfsync-on-rewrite", "yes"),
            "`no-appendfsync-on-rewrite no`",
        ),
        (
            evicting.clone().config("maxmemory-policy", "allkeys-lru"),
            "`maxmemory-policy noeviction`",
        ),
        (
            builder().config("rename-command", "CONFIG \"\""),
            "`appendfsync always`",
        ),
    ];
    for (builder, wanted) in cases {
        let nodes = builder.start();
        let client = connect(&nodes).await;
        let error = client.lock("n").try_acquire().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("may have lost a lease"), "{text}");
        assert!(text.contains(wanted), "{wanted} in: {text}");
    }
    let full = evicting.config("maxmemory-policy", "noeviction").start();
    let client = connect(&full).await;
    assert!(client.lock("n").try_acquire().await.unwrap().is_some());
}
