//! Nodes that restart: what they may have forgotten must not count.

use std::ops::Range;
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Released};
use tenure_testkit::{RedlockNodes, eventually};

use super::{connect, count, has, has_votes, keeping_until_they_restart};
use crate::stage::{ms, soon};

/// How long a node that may have forgotten a lease has no vote.
const REST: Duration = Duration::from_secs(30);

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_a_node_that_restarted_empty_has_no_vote() {
    let nodes = keeping_until_they_restart(RedlockNodes::builder());
    let a = connect(&nodes).await;
    let guard = a.lock("n").acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    nodes.node(1).client().command(&["DEL", "n"]);
    nodes.node(0).restart();
    // Nodes 0 and 1 know nothing of the lease. With both votes b would hold it as well.
    let b = connect(&nodes).await;
    let refused = b.lock("n").try_acquire().await;
    let is_granted = matches!(refused, Ok(Some(_)));
    assert!(!is_granted || !guard.is_valid(), "two holders");
}

/// A server tells its age in whole seconds, and begins to count at the last full one.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_a_node_is_not_taken_for_older_than_it_is() {
    let nodes = RedlockNodes::builder().without_aof().start();
    // They start within one second, and are asked at the beginning of the next.
    let restarted = loop {
        let second = wait_for_micros(&nodes, 600_000..900_000);
        let restarted = Instant::now();
        nodes.node(0).restart();
        nodes.node(1).restart();
        if second == wait_for_micros(&nodes, 0..1_000_000) {
            break restarted;
        }
    };
    wait_for_micros(&nodes, 0..400_000);
    // The first client there: it has nothing to go by but what they say.
    let a = connect(&nodes).await;
    let granted = a.lock("n").wait(REST * 2).acquire().await;
    assert!(granted.is_ok());
    let age = restarted.elapsed();
    assert!(age >= REST, "they voted when they were {age:?} old");
}

/// A node's age is what it was when the node said it, not when it was asked.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_a_node_that_was_asked_long_before_it_answered_is_not_taken_for_older() {
    let nodes = RedlockNodes::builder().without_aof().proxied().start();
    // Two votes are needed: that of node 2, which may vote at once, and that of node 0.
    nodes.node(1).kill();
    nodes.node(2).set_config("appendfsync", "always");
    nodes.node(2).set_config("appendonly", "yes");
    // Started late in a second, it soon says that it is several of them old.
    wait_for_micros(&nodes, 600_000..800_000);
    let restarted = Instant::now();
    nodes.node(0).restart();
    nodes.proxy(0).delay_requests(ms(800));
    let a = connect(&nodes).await;
    nodes.proxy(0).heal();
    let granted = a.lock("n").wait(REST * 2).acquire().await;
    assert!(granted.is_ok(), "it never votes");
    let age = restarted.elapsed();
    assert!(age >= REST, "it voted when it was {age:?} old");
}

/// Waits until so much of a second has passed, and tells which second it is.
fn wait_for_micros(nodes: &RedlockNodes, wanted: Range<u64>) -> u64 {
    let mut redis = nodes.node(2).client();
    let mut second = 0;
    let is_there = || {
        let time = redis.command(&["TIME"]);
        let part = |at: usize| time.array()[at].text().parse().unwrap();
        second = part(0);
        wanted.contains(&part(1))
    };
    assert!(eventually(Duration::from_secs(3), is_there));
    second
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_young_node_is_waited_for_by_those_who_wait_and_named_to_the_others() {
    let nodes = RedlockNodes::builder().without_aof().start();
    let a = connect(&nodes).await;
    let error = a.lock("n").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    for part in [
        "fewer than 2 of 3 nodes may vote",
        "has run for",
        "appendfsync always",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let within = a.lock("n").wait(ms(100)).acquire().await.unwrap_err();
    assert!(
        within.to_string().contains("appendfsync always"),
        "{within}"
    );
    let guard = a.lock("n").acquire().await.unwrap();
    let uptime = nodes.node(0).info("uptime_in_seconds");
    let uptime: u64 = uptime.parse().unwrap();
    assert!(uptime + 1 >= REST.as_secs(), "they are {uptime} s old");
    assert!(guard.is_valid());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_keeps_everything_votes_as_soon_as_it_is_back() {
    let nodes = RedlockNodes::start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let guard = a.lock("n").acquire().await.unwrap();
    let fence = guard.fence();
    // A majority is enough for the grant; the last node may hear of it later.
    assert!(has_votes(&nodes, "n", 3).await);
    for node in 0..3 {
        nodes.node(node).kill();
        nodes.node(node).restart();
    }
    assert!(has(&nodes, 0, "n"), "it was on disk before it was granted");
    assert!(
        soon(async || matches!(b.lock("n").try_acquire().await, Ok(None))).await,
        "all nodes still know the holder"
    );
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let next = b.lock("n").wait(ms(3_000)).acquire().await.unwrap();
    assert!(next.fence() > fence);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_a_lease_gets_it_again_and_lets_it_go() {
    let nodes = RedlockNodes::start();
    let a = connect(&nodes).await;
    let guard = a.lock("n").ttl(ms(1_500)).acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    nodes.node(1).client().command(&["DEL", "n"]);
    assert!(soon(async || has(&nodes, 1, "n")).await, "not repaired");
    let of = |node: usize| nodes.node(node).client().command(&["GET", "n"]);
    assert_eq!(of(1).text(), of(0).text(), "the same lease");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(soon(async || count(&nodes, "n") == 0).await, "left behind");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_not_repaired_over_a_greater_fence_or_another_holder() {
    let nodes = RedlockNodes::start();
    let a = connect(&nodes).await;
    let guard = a.lock("n").ttl(ms(900)).acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    let mut redis = nodes.node(1).client();
    redis.command(&["SET", "tenure:fence:{n}", "9007199254740000"]);
    redis.command(&["DEL", "n"]);
    let mut other = nodes.node(2).client();
    other.command(&["SET", "n", "somebody", "PX", "60000"]);
    drop(guard);
    let renewed = a.lock("m").ttl(ms(900)).acquire().await.unwrap();
    tokio::time::sleep(ms(1_000)).await;
    assert!(!has(&nodes, 1, "n"));
    assert_eq!(other.command(&["GET", "n"]).text(), "somebody");
    assert!(renewed.is_valid());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_lease_is_repaired_as_well() {
    let nodes = RedlockNodes::start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let lease = a.lock("n").ttl(ms(1_500)).acquire().await.unwrap();
    let guard = b.adopt(&lease.detach().unwrap()).await.unwrap();
    nodes.node(1).client().command(&["DEL", "n"]);
    assert!(
        eventually(Duration::from_secs(4), || has(&nodes, 1, "n")),
        "not repaired"
    );
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(soon(async || count(&nodes, "n") == 0).await, "left behind");
}

/// Observers need the leader's term from a majority: each repaired node must know it again.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_is_known_after_each_node_was_repaired() {
    let nodes = RedlockNodes::start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let leadership = a.election("n").ttl(ms(1_500)).campaign("first").await;
    let leadership = leadership.unwrap();
    leadership.proclaim("second").await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    for node in 0..3 {
        let mut redis = nodes.node(node).client();
        redis.command(&["DEL", "n", "tenure:meta:{n}"]);
        assert!(
            soon(async || has(&nodes, node, "n")).await,
            "node {node} is not repaired"
        );
        let leader = b.election("n").leader().await.unwrap();
        let leader = leader.unwrap_or_else(|| panic!("nobody, after node {node} was repaired"));
        assert_eq!(leader.term, Some(leadership.term()));
        assert_eq!(leader.value.as_deref(), Some("second"));
    }
    assert_eq!(leadership.resign().await.unwrap(), Released::WasHeld);
    assert!(soon(async || count(&nodes, "n") == 0).await, "left behind");
}
