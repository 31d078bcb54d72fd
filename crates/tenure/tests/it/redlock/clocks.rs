//! One node whose clock is set.

use std::time::Duration;

use tenure_testkit::{ClockShim, RedlockNodes};

use super::{connect, count, has_votes};
use crate::stage::{ms, soon};

const HOUR: Duration = Duration::from_secs(3_600);

/// Three nodes, the first with a clock to be turned; `None` where there is none to be had.
fn nodes() -> Option<(RedlockNodes, ClockShim)> {
    let clock = ClockShim::compile()?;
    let nodes = RedlockNodes::builder().clock(0, clock.clone());
    Some((nodes.start(), clock))
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_clock_that_is_set_breaks_nothing_while_all_nodes_have_the_lease() {
    let Some((nodes, clock)) = nodes() else {
        return;
    };
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    let guard = a.lock("n").ttl(ms(1_500)).acquire().await.unwrap();
    assert!(has_votes(&nodes, "n", 3).await);
    for turn in [ClockShim::step_forward, ClockShim::step_back] {
        turn(&clock, HOUR);
        let second = b.lock("n").try_acquire().await.unwrap();
        assert!(second.is_none(), "two holders");
        assert!(guard.is_valid());
        assert!(soon(async || count(&nodes, "n") == 3).await, "not repaired");
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_forward_ends_a_lease_on_a_bare_majority_and_fences_grow() {
    let Some((nodes, clock)) = nodes() else {
        return;
    };
    let (a, b) = (connect(&nodes).await, connect(&nodes).await);
    nodes.node(2).kill();
    let guard = a
        .lock("n")
        .ttl(ms(20_000))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    nodes.node(2).restart();
    clock.step_forward(HOUR);
    // Two of three know nothing of it any more.
    let second = b.lock("n").wait(ms(5_000)).acquire().await.unwrap();
    assert!(second.fence() > guard.fence());
}

/// What a client thinks of a node's clock is corrected by the node's refusal, without waiting.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_may_forget_vote_though_their_clocks_were_set_back() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let builder = RedlockNodes::builder().without_aof();
    let builder = (0..3).fold(builder, |builder, node| builder.clock(node, clock.clone()));
    let nodes = builder.start();
    let a = connect(&nodes).await;
    // They have just started, and rest for 30 s.
    let guard = a.lock("n").wait(ms(60_000)).acquire().await.unwrap();
    // More than a block may be above their clocks.
    clock.step_back(ms(10_000));
    let other = a.lock("m").wait(ms(5_000)).acquire().await;
    assert!(other.is_ok(), "{other:?}");
    assert!(guard.is_valid());
}
