//! What a majority decides, and how soon.

use std::time::{Duration, Instant};

use tenure::{ErrorKind, Layout, LostReason, Redlock, Released, Standing};
use tenure_testkit::{RedlockNodes, eventually};

use super::{connect, count, has, has_votes, sleep};
use crate::stage::{ms, soon};

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_stands_on_all_nodes_and_is_gone_from_all() {
    let nodes = RedlockNodes::builder().nodes(5).start();
    let a = connect(&nodes).await;
    let guard = a.lock("n").acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 5).await);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(soon(async || count(&nodes, "n") == 0).await);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_delays_nobody() {
    let nodes = RedlockNodes::builder().nodes(5).start();
    let a = connect(&nodes).await;
    a.lock("warm")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    nodes.node(4).pause();
    let begun = Instant::now();
    for number in 0..50 {
        let guard = a.lock(format!("n{number}")).acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    }
    // Each would take a second if the last answer were waited for.
    assert!(begun.elapsed() < ms(10_000), "{:?}", begun.elapsed());
    nodes.node(4).resume();
    let left = |number| has(&nodes, 4, &format!("n{number}"));
    assert!(
        eventually(Duration::from_secs(5), || !(0..50).any(left)),
        "what the node did when it woke up was not taken back"
    );
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_got_in_vain_is_given_back_everywhere() {
    let nodes = RedlockNodes::start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let guard = a.lock("n").acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    // One node has lost it: b gets that one, and no more.
    nodes.node(0).client().command(&["DEL", "n"]);
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    assert!(
        soon(async || !has(&nodes, 0, "n")).await,
        "b keeps one node"
    );
    assert!(guard.is_valid());
    drop(guard);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_late_reply_brings_is_given_back() {
    let nodes = RedlockNodes::builder().proxied().start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let guard = a.lock("n").acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    nodes.node(0).client().command(&["DEL", "n"]);
    // The node gives its vote, but the answer comes after b has given up.
    nodes.proxy(0).delay_replies(ms(300));
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    nodes.proxy(0).heal();
    assert!(
        soon(async || !has(&nodes, 0, "n")).await,
        "a vote that was told late is kept"
    );
    assert!(guard.is_valid());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_whose_connection_broke_is_given_back() {
    let nodes = RedlockNodes::builder().proxied().start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let guard = a.lock("n").ttl(ms(20_000)).acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    nodes.node(0).client().command(&["DEL", "n"]);
    nodes.proxy(0).reset_after_request_with(b"EVALSHA");
    assert!(
        b.lock("n")
            .ttl(ms(20_000))
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    nodes.proxy(0).heal();
    assert!(
        eventually(Duration::from_secs(5), || !has(&nodes, 0, "n")),
        "a vote whose answer was lost is kept"
    );
    drop(guard);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_acquire_leaves_nothing_on_any_node() {
    let nodes = RedlockNodes::builder().proxied().start();
    let a = connect(&nodes).await;
    for round in 0..30 {
        let lock = a.lock(format!("n{round}"));
        for proxy in 0..3 {
            nodes.proxy(proxy).delay_replies(ms(round));
        }
        let acquiring = tokio::time::timeout(ms(round / 2), lock.acquire());
        drop(acquiring.await);
    }
    for proxy in 0..3 {
        nodes.proxy(proxy).heal();
    }
    let left = |round: u64| count(&nodes, &format!("n{round}"));
    assert!(
        eventually(Duration::from_secs(3), || (0..30).all(|it| left(it) == 0)),
        "{:?}",
        (0..30).map(left).collect::<Vec<_>>()
    );
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_while_a_majority_has_it_and_lost_without() {
    let nodes = RedlockNodes::start();
    let a = connect(&nodes).await;
    let guard = a.lock("n").ttl(ms(900)).acquire().await.unwrap();
    nodes.node(0).kill();
    sleep(2_000).await;
    assert!(guard.is_valid(), "two of three are a majority");
    nodes.node(1).kill();
    let begun = Instant::now();
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(begun.elapsed() < ms(5_000), "{:?}", begun.elapsed());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_a_majority_did_not_confirm_makes_it_suspect() {
    let nodes = RedlockNodes::builder().proxied().start();
    let a = connect(&nodes).await;
    let guard = a.lock("n").ttl(ms(3_000)).acquire().await.unwrap();
    nodes.proxy(0).black_hole();
    nodes.proxy(1).black_hole();
    assert!(soon(async || guard.standing() == Standing::Suspect).await);
    assert!(guard.is_valid(), "its deadline has not come");
    nodes.proxy(0).heal();
    assert!(
        eventually(Duration::from_secs(3), || guard.standing()
            == Standing::Held),
        "one of the two has come back in time"
    );
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_a_majority_forgot_is_lost_at_the_next_renewal() {
    let nodes = RedlockNodes::start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let guard = a.lock("n").ttl(ms(900)).acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    // A renewal between the two would repair the first: then they forget it once more.
    let forgetting = async {
        loop {
            nodes.node(0).client().command(&["DEL", "n"]);
            nodes.node(1).client().command(&["DEL", "n"]);
            tokio::time::sleep(ms(100)).await;
        }
    };
    tokio::select! {
        reason = guard.lost() => assert_eq!(reason, LostReason::Gone),
        () = forgetting => {}
    }
    drop(guard);
    let guard = b.lock("n").wait(ms(9_000)).acquire().await.unwrap();
    assert!(guard.is_valid());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_while_nodes_come_and_go() {
    let nodes = RedlockNodes::start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let mut last = 0;
    for round in 0..9 {
        let down = nodes.node(round % 3);
        down.kill();
        for client in [&a, &b] {
            let guard = client.lock("n").acquire().await.unwrap();
            assert!(guard.fence().get() > last, "round {round}");
            last = guard.fence().get();
            guard.release().await.unwrap();
        }
        down.restart();
        let all = [&a, &b];
        for client in all {
            // A client that has not noticed yet would have one node less than a majority.
            let ready = async || client.lock("other").try_acquire().await.is_ok();
            assert!(soon(ready).await);
        }
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_layouts_exclude_and_wake_over_several_nodes() {
    for layout in [Layout::Native, Layout::Redisson] {
        let nodes = RedlockNodes::start();
        let connect = || Redlock::builder(nodes.urls()).layout(layout).connect();
        let (a, b) = (connect().await.unwrap(), connect().await.unwrap());
        let guard = a.lock("n").acquire().await.unwrap();
        let fence = guard.fence();
        let waiter = tokio::spawn(async move { b.lock("n").acquire().await.unwrap() });
        sleep(100).await;
        let begun = Instant::now();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap();
        // The timer would take ten seconds: this was a message.
        assert!(begun.elapsed() < ms(2_000), "{:?}", begun.elapsed());
        assert!(next.fence() > fence);
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_any_node_wakes() {
    let nodes = RedlockNodes::builder().proxied().start();
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let guard = a.lock("n").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let b = b.clone();
        async move { b.lock("n").acquire().await.unwrap() }
    });
    sleep(200).await;
    // The messages of two nodes are lost, and their connections look well.
    nodes
        .node(0)
        .client()
        .command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    nodes
        .node(1)
        .client()
        .command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let begun = Instant::now();
    guard.release().await.unwrap();
    drop(waiter.await.unwrap());
    assert!(begun.elapsed() < ms(3_000), "{:?}", begun.elapsed());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_nodes_are_an_error_that_lists_each() {
    let nodes = RedlockNodes::start();
    let patience = ms(1_500);
    let builder = Redlock::builder(nodes.urls()).unreachable_after(patience);
    let a = builder.connect().await.unwrap();
    nodes.node(0).kill();
    nodes.node(2).kill();
    let error = a.lock("n").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("fewer than 2 of 3 nodes"), "{text}");
    for node in nodes.nodes() {
        assert!(text.contains(&node.port().to_string()), "{text}");
    }
    assert!(text.contains("is Redis running?"), "{text}");
}
