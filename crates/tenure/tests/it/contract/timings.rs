//! What is measured, after the first read of the timings.

use tenure::Locks;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    a_handover_is_measured,
    renewals_tell_how_much_of_the_lease_was_left,
    nothing_is_measured_before_somebody_asks,
}

async fn a_handover_is_measured(stage: Stage) {
    let (holder, waiting) = (stage.client().await, stage.client().await);
    let handovers = || waiting.timings().handovers;
    assert_eq!(handovers().count(), 0);
    // A release that comes before the waiter listens is one that it does not hear of.
    let measured = soon(async || {
        hand_over(&holder, &waiting).await;
        handovers().count() > 0
    });
    assert!(measured.await, "{:?}", handovers());
    let (sum, count) = (handovers().sum(), handovers().count());
    assert!(sum.as_secs() < 10 * count, "{:?}", handovers());
}

async fn hand_over(holder: &Locks, waiting: &Locks) {
    let guard = holder.lock("n").acquire().await.unwrap();
    let busy = waiting.stats().busy;
    let (lock, renewed) = (waiting.lock("n"), waiting.clone());
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    assert!(soon(async || renewed.stats().busy > busy + 1).await);
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    guard.release().await.unwrap();
}

async fn renewals_tell_how_much_of_the_lease_was_left(stage: Stage) {
    let locks = stage.client().await;
    let margins = || locks.timings().renewal_margins;
    assert_eq!(margins().count(), 0);
    let guard = locks.lock("n").ttl(ms(900)).acquire().await.unwrap();
    assert!(soon(async || margins().count() >= 2).await);
    let (sum, count) = (margins().sum(), u32::try_from(margins().count()).unwrap());
    assert!(!sum.is_zero() && sum < ms(900) * (count + 1), "{sum:?}");
    guard.release().await.unwrap();
}

async fn nothing_is_measured_before_somebody_asks(stage: Stage) {
    let locks = stage.client().await;
    let guard = locks.lock("n").ttl(ms(300)).acquire().await.unwrap();
    assert!(soon(async || locks.stats().renewed > 0).await);
    guard.release().await.unwrap();
    let measured = locks.timings();
    assert_eq!(measured.renewal_margins.count(), 0, "{measured:?}");
    assert!(measured.calls.is_empty(), "{measured:?}");
}
