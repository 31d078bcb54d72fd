//! The list of waiters on each node: it decides who asks first, and nothing else.

use std::time::{Duration, Instant};

use tenure::{Guard, Redlock};
use tenure_testkit::RedlockNodes;
use tokio::task::JoinHandle;

use super::{connect, count, has_votes};
use crate::stage::{ms, soon};

const WAITERS: &str = "tenure:waiters:{n}";
/// Far below the ten seconds, a third of the ttl, after which a waiter would ask in any case.
const IN_TIME: Duration = ms(4_000);

type Waiting = JoinHandle<Guard>;

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_get_the_lock_in_the_order_in_which_they_came() {
    let nodes = RedlockNodes::start();
    let guard = hold(&nodes, &connect(&nodes).await).await;
    let mut waiting = Vec::new();
    for number in 1..=4 {
        let lock = connect(&nodes).await.lock("n");
        // Metadata makes no difference.
        let lock = if number == 2 {
            lock.meta("a", "b")
        } else {
            lock
        };
        waiting.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        has_waiters(&nodes, number).await;
    }
    let mut fence = guard.fence();
    guard.release().await.unwrap();
    for waiter in waiting {
        // If another came first, it keeps the lock, and this one waits for ever.
        let guard = tokio::time::timeout(IN_TIME, waiter).await;
        let guard = guard.expect("its turn in time").unwrap();
        assert!(guard.fence() > fence);
        fence = guard.fence();
        guard.release().await.unwrap();
    }
    is_clean(&nodes).await;
}

/// A waiter that gives up leaves the list, and nothing is offered to it.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_gives_up_is_not_waited_for() {
    let nodes = RedlockNodes::start();
    let (a, b, c) = (
        connect(&nodes).await,
        connect(&nodes).await,
        connect(&nodes).await,
    );
    let guard = hold(&nodes, &a).await;
    let first = wait(&b);
    has_waiters(&nodes, 1).await;
    let second = wait(&c);
    has_waiters(&nodes, 2).await;
    first.abort();
    has_waiters(&nodes, 1).await;
    guard.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    is_clean(&nodes).await;
}

/// Its connections are open, but it does not answer: the next one asks before its lease would end.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_waiter_that_hangs_is_passed_over() {
    let nodes = RedlockNodes::builder().proxied().start();
    let hangs = connect(&nodes).await;
    let direct = || {
        let urls = nodes.nodes().iter().map(tenure_testkit::RedisServer::url);
        Redlock::connect(urls.collect::<Vec<_>>())
    };
    let (a, c) = (direct().await.unwrap(), direct().await.unwrap());
    let guard = hold(&nodes, &a).await;
    let first = wait(&hangs);
    has_waiters(&nodes, 1).await;
    let second = wait(&c);
    has_waiters(&nodes, 2).await;
    (0..3).for_each(|node| nodes.proxy(node).black_hole());
    guard.release().await.unwrap();
    let begun = Instant::now();
    let guard = second.await.unwrap();
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    assert!(guard.is_valid());
    first.abort();
}

/// The same if the first two hang, so that nobody who answers was told.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_waiters_that_hang_are_passed_over() {
    let nodes = RedlockNodes::builder().proxied().start();
    let hanging = [connect(&nodes).await, connect(&nodes).await];
    let urls = nodes.nodes().iter().map(tenure_testkit::RedisServer::url);
    let urls: Vec<_> = urls.collect();
    let a = Redlock::connect(&urls).await.unwrap();
    let guard = hold(&nodes, &a).await;
    let mut hung = Vec::new();
    for (number, client) in (1..).zip(&hanging) {
        hung.push(wait(client));
        has_waiters(&nodes, number).await;
    }
    let third = wait(&Redlock::connect(&urls).await.unwrap());
    has_waiters(&nodes, 3).await;
    (0..3).for_each(|node| nodes.proxy(node).black_hole());
    guard.release().await.unwrap();
    let begun = Instant::now();
    let guard = third.await.unwrap();
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    assert!(guard.is_valid());
    hung.iter().for_each(JoinHandle::abort);
}

/// Without a release that would wake them.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_join_a_list_that_was_lost() {
    let nodes = RedlockNodes::start();
    let guard = hold(&nodes, &connect(&nodes).await).await;
    let waiting = [wait(&connect(&nodes).await), wait(&connect(&nodes).await)];
    has_waiters(&nodes, 2).await;
    for node in nodes.nodes() {
        node.client().command(&["DEL", WAITERS]);
    }
    has_waiters(&nodes, 2).await;
    waiting.iter().for_each(JoinHandle::abort);
    drop(guard);
    is_clean(&nodes).await;
}

/// A list that is lost, or is something else, makes all ask at once, as without it.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_lost_their_lists_wake_all() {
    for instead in [None, Some("a string")] {
        let nodes = RedlockNodes::start();
        let guard = hold(&nodes, &connect(&nodes).await).await;
        let waiting = [connect(&nodes).await, connect(&nodes).await].map(|client| {
            let lock = client.lock("n");
            // In any order.
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        });
        has_waiters(&nodes, 2).await;
        for node in nodes.nodes() {
            node.client().command(&["DEL", WAITERS]);
            if let Some(instead) = instead {
                node.client().command(&["SET", WAITERS, instead]);
            }
        }
        let begun = Instant::now();
        guard.release().await.unwrap();
        for waiter in waiting {
            waiter.await.unwrap();
        }
        assert!(begun.elapsed() < 2 * IN_TIME, "{:?}", begun.elapsed());
    }
}

/// Nodes that hang, are down, or name a waiter that does not exist, while clients wait.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_or_lies_delays_no_waiter() {
    for trouble in ["hangs", "is down", "lies"] {
        let nodes = RedlockNodes::start();
        let (a, b) = (connect(&nodes).await, connect(&nodes).await);
        let guard = hold(&nodes, &a).await;
        let waiter = wait(&b);
        has_waiters(&nodes, 1).await;
        let node = nodes.node(0);
        match trouble {
            "hangs" => node.pause(),
            "is down" => node.kill(),
            _ => {
                let other = "tenure:00000000000080008000000000000000:1:10000";
                node.client().command(&["ZADD", WAITERS, "1", other]);
                let offer = format!("tenure:offer:{other}");
                node.client().command(&["SET", "n", &offer, "PX", "60000"]);
            }
        }
        let begun = Instant::now();
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap();
        assert!(
            begun.elapsed() < IN_TIME,
            "{trouble}: {:?}",
            begun.elapsed()
        );
        assert!(guard.is_valid(), "{trouble}");
        if trouble == "hangs" {
            node.resume();
        }
    }
}

/// Takes the lock on all nodes: a waiter would get the vote of one that was late.
async fn hold(nodes: &RedlockNodes, client: &Redlock) -> Guard {
    let guard = client.lock("n").acquire().await.unwrap();
    assert!(has_votes(nodes, "n", nodes.nodes().len()).await);
    guard
}

fn wait(client: &Redlock) -> Waiting {
    let lock = client.lock("n");
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// Waits until this many are in the lists of all nodes.
async fn has_waiters(nodes: &RedlockNodes, waiters: i64) {
    let on_all = async || {
        let mut nodes = nodes.nodes().iter();
        nodes.all(|node| node.client().command(&["ZCARD", WAITERS]).int() == waiters)
    };
    assert!(soon(on_all).await, "not {waiters} waiters on all nodes");
}

async fn is_clean(nodes: &RedlockNodes) {
    assert!(soon(async || count(nodes, "n") == 0).await);
    has_waiters(nodes, 0).await;
}
