//! Clients with different longest ttls: a client with too low a value gets an error.

use std::time::Duration;

use tenure::{ErrorKind, Redlock};
use tenure_testkit::RedlockNodes;

use super::{connect, keeping_until_they_restart};
use crate::stage::{ms, soon};

const KEY: &str = "tenure:longest-ttl";
const MINUTE: Duration = Duration::from_secs(60);

async fn connect_for_a_minute(nodes: &RedlockNodes) -> Redlock {
    let builder = Redlock::builder(nodes.urls()).longest_ttl(MINUTE);
    builder.connect().await.unwrap()
}

/// On how many nodes this is kept as the longest ttl in ms.
fn kept(nodes: &RedlockNodes, ttl: &str) -> usize {
    let mut values = nodes.nodes().iter().map(|node| {
        let mut redis = node.client();
        let exists = redis.command(&["EXISTS", KEY]).int() == 1;
        exists.then(|| redis.command(&["GET", KEY]).text().to_owned())
    });
    values
        .by_ref()
        .filter(|value| value.as_deref() == Some(ttl))
        .count()
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_know_of_longer_leases_is_refused() {
    let nodes = RedlockNodes::start();
    let a = connect_for_a_minute(&nodes).await;
    let usual = a.lock("n").acquire().await.unwrap();
    usual.release().await.unwrap();
    let keys = nodes.node(0).client().command(&["EXISTS", KEY]).int();
    assert_eq!(keys, 0, "an ordinary vote keeps nothing");
    let long = a.lock("n").ttl(MINUTE).acquire().await.unwrap();
    assert!(soon(async || kept(&nodes, "60000") == 3).await);
    let days = nodes.node(0).client().command(&["PTTL", KEY]).int() / 86_400_000;
    assert!((29..=30).contains(&days), "{days} days");
    let error = Redlock::connect(nodes.urls()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting);
    let text = error.to_string();
    for part in ["`30s`", "`60s`", "redis", "raise `longest_ttl`", KEY] {
        assert!(text.contains(part), "`{part}` in: {text}");
    }
    // A client with the right value may connect.
    drop(connect_for_a_minute(&nodes).await);
    long.release().await.unwrap();
    for node in nodes.nodes() {
        node.client().command(&["DEL", KEY]);
    }
    let b = connect(&nodes).await;
    assert!(b.lock("n").try_acquire().await.unwrap().is_some());
}

/// Not only a vote makes a lease long.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_detached_for_longer_is_told_too() {
    let nodes = RedlockNodes::start();
    let a = connect_for_a_minute(&nodes).await;
    let guard = a.lock("n").ttl(ms(10_000)).acquire().await.unwrap();
    assert_eq!(kept(&nodes, "50000"), 0);
    let _kept = guard.detach_for(ms(50_000)).await.unwrap();
    assert!(soon(async || kept(&nodes, "50000") == 3).await);
}

/// A client that was there before asks the nodes again when one has restarted.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_rest_for_as_long_as_any_node_says_that_leases_are() {
    let nodes = keeping_until_they_restart(RedlockNodes::builder());
    let b = connect(&nodes).await;
    let a = connect_for_a_minute(&nodes).await;
    let guard = a
        .lock("n")
        .ttl(MINUTE)
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    assert!(soon(async || kept(&nodes, "60000") == 3).await);
    nodes.node(0).restart();
    nodes.node(1).restart();
    let mut text = String::new();
    for _ in 0..10 {
        let rests = async || {
            let asked = b.lock("n").try_acquire().await;
            assert!(!matches!(asked, Ok(Some(_))), "two holders");
            text = asked.map_or_else(|error| error.to_string(), |_| String::new());
            longest_wait(&text) > Some(40)
        };
        if soon(rests).await {
            return;
        }
    }
    assert!(
        !guard.is_valid(),
        "it does not rest for long enough: {text}"
    );
}

/// In how many seconds a vote counts, by an error that lists the nodes.
fn longest_wait(text: &str) -> Option<u64> {
    let waits = text.split("counts in ").skip(1);
    let waits = waits.filter_map(|rest| rest.split('s').next()?.parse().ok());
    waits.max()
}
