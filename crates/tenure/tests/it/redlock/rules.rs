//! Rules that nothing else would notice being bent.

use std::time::Instant;

use tenure_testkit::RedlockNodes;

use super::{connect, count, has, has_votes};
use crate::stage::{ms, soon};

const FENCE: &str = "tenure:fence:{n}";

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_is_above_all_that_its_majority_has_stored() {
    let nodes = RedlockNodes::start();
    let a = connect(&nodes).await;
    let fence = a.lock("n").acquire().await.unwrap().fence().get();
    assert!(soon(async || count(&nodes, "n") == 0).await);
    // An hour of a clock that was ahead.
    let stored = fence + 3_600_000_000;
    for node in [0, 1] {
        let stored = stored.to_string();
        nodes.node(node).client().command(&["SET", FENCE, &stored]);
    }
    let b = connect(&nodes).await;
    let guard = b.lock("n").acquire().await.unwrap();
    assert!(
        guard.fence().get() > stored,
        "{} <= {stored}",
        guard.fence()
    );
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_counts_from_before_the_first_question() {
    let nodes = RedlockNodes::builder().proxied().start();
    let a = connect(&nodes).await;
    drop(a.lock("warm").acquire().await.unwrap());
    let (delay, ttl) = (ms(300), ms(5_000));
    for node in 0..3 {
        nodes.proxy(node).delay_replies(delay);
    }
    let asked = Instant::now();
    let guard = a.lock("n").ttl(ttl).acquire().await.unwrap();
    let left = guard.remaining();
    let since = asked.elapsed();
    assert!(since >= delay, "the replies were not delayed");
    assert!(left + since <= ttl, "{left:?} left {since:?} after asking");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_greater_fence_is_not_repaired() {
    let nodes = RedlockNodes::start();
    let a = connect(&nodes).await;
    let guard = a.lock("n").ttl(ms(900)).acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    let mut redis = nodes.node(1).client();
    let greater = guard.fence().get() + 3_600_000_000;
    redis.command(&["SET", FENCE, &greater.to_string()]);
    redis.command(&["DEL", "n"]);
    // Three renewals.
    tokio::time::sleep(ms(1_000)).await;
    assert!(guard.is_valid(), "two of three still have it");
    assert!(!has(&nodes, 1, "n"), "repaired over a greater fence");
}
