//! A guard tells its holder the truth.

use std::time::{Duration, Instant};

use tenure::{ErrorKind, LostReason, Standing};

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    a_lease_is_renewed_for_as_long_as_it_is_held,
    a_fixed_lease_is_not_renewed,
    the_deadline_is_never_later_than_the_lease,
    deletion_of_an_old_lease_is_noticed_at_once,
    deletion_of_a_young_lease_is_noticed_at_its_renewal,
    a_lease_taken_by_another_is_reported_as_taken,
    max_hold_tells_the_holder_and_keeps_the_lock,
    ensure_renews_when_too_little_is_left,
    ensure_refuses_what_cannot_be,
    with_cancels_the_work_when_the_lock_is_lost,
    with_returns_what_the_work_returns,
    with_does_not_call_it_done_when_the_lock_was_gone,
    ensure_ends_when_the_lock_is_lost_meanwhile,
    the_token_is_cancelled_when_the_lock_is_lost,
    the_token_is_cancelled_when_the_lock_is_let_go,
    a_dropped_guard_frees_the_lock,
}

async fn a_lease_is_renewed_for_as_long_as_it_is_held(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(2_400)).acquire().await.unwrap();
    let deadline = guard.deadline();
    let waiting = b.lock("n").wait(ms(4_000)).acquire().await;
    assert_eq!(waiting.unwrap_err().kind(), ErrorKind::Busy);
    assert!(guard.is_valid());
    assert!(guard.deadline() > deadline);
    assert!(a.stats().renewed >= 3, "{:?}", a.stats());
    guard.release().await.unwrap();
}

async fn a_fixed_lease_is_not_renewed(stage: Stage) {
    let a = stage.client().await;
    let guard = a
        .lock("n")
        .ttl(ms(300))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    let begun = Instant::now();
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(begun.elapsed() > ms(200), "{:?}", begun.elapsed());
    assert_eq!(guard.standing(), Standing::Lost);
    assert_eq!(guard.remaining(), Duration::ZERO);
}

async fn the_deadline_is_never_later_than_the_lease(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").ttl(ms(4_000)).acquire().await.unwrap();
    for _ in 0..50 {
        let (remaining, asked) = (guard.remaining(), Instant::now());
        let holder = a.lock("n").holder().await.unwrap().unwrap();
        // Asked later by this much at most, and still the store has more left than is believed.
        let left = holder.remaining.unwrap() + asked.elapsed();
        assert!(left >= remaining, "store {left:?}, guard {remaining:?}");
        assert!(remaining <= ms(3_958));
        tokio::time::sleep(ms(40)).await;
    }
}

async fn deletion_of_an_old_lease_is_noticed_at_once(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    tokio::time::sleep(ms(1_300)).await;
    let begun = Instant::now();
    stage.delete_lock("n").await;
    assert_eq!(guard.lost().await, LostReason::Gone);
    // The next renewal would be ten seconds away.
    assert!(begun.elapsed() < ms(5_000), "{:?}", begun.elapsed());
    assert!(!guard.is_valid());
}

async fn deletion_of_a_young_lease_is_noticed_at_its_renewal(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").ttl(ms(600)).acquire().await.unwrap();
    stage.delete_lock("n").await;
    // At its deadline it would be told that it has expired.
    let told = tokio::time::timeout(ms(10_000), guard.lost()).await;
    assert_eq!(told.expect("the holder was not told"), LostReason::Gone);
}

async fn a_lease_taken_by_another_is_reported_as_taken(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    // On a crowded machine the other one needs some time before the first renewal.
    let guard = a.lock("n").ttl(ms(3_000)).acquire().await.unwrap();
    stage.delete_lock("n").await;
    let thief = b.lock("n").acquire().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Taken);
    assert!(thief.is_valid());
}

async fn max_hold_tells_the_holder_and_keeps_the_lock(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    // Taken earlier, and still believed for longer.
    let longer = a.lock("m").ttl(ms(2_000)).acquire().await.unwrap();
    let guard = a
        .lock("n")
        .ttl(ms(2_000))
        .max_hold(ms(300))
        .acquire()
        .await
        .unwrap();
    let begun = Instant::now();
    assert!(
        guard.deadline() < longer.deadline(),
        "the deadline knows of it"
    );
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert!(begun.elapsed() > ms(200), "{:?}", begun.elapsed());
    assert!(!guard.is_valid());
    assert!(
        b.lock("n").try_acquire().await.unwrap().is_none(),
        "the holder may still be working: the lock is not just let go"
    );
    drop(guard);
    assert!(soon(async || b.lock("n").try_acquire().await.unwrap().is_some()).await);
}

async fn ensure_renews_when_too_little_is_left(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").ttl(ms(30_000)).acquire().await.unwrap();
    tokio::time::sleep(ms(2_000)).await;
    let deadline = guard.deadline();
    guard.ensure(ms(28_000)).await.unwrap();
    assert!(guard.deadline() > deadline);
}

async fn ensure_refuses_what_cannot_be(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").ttl(ms(1_000)).acquire().await.unwrap();
    let error = guard.ensure(ms(1_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting);
    let fixed = a
        .lock("fixed")
        .ttl(ms(5_000))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(
        fixed.ensure(ms(4_900)).await.unwrap_err().kind(),
        ErrorKind::Lost
    );
    fixed.ensure(ms(10)).await.unwrap();
    stage.delete_lock("n").await;
    guard.lost().await;
    assert_eq!(
        guard.ensure(ms(1)).await.unwrap_err().kind(),
        ErrorKind::Lost
    );
}

async fn with_cancels_the_work_when_the_lock_is_lost(stage: Stage) {
    let a = stage.client().await;
    let lock = a.lock("n").ttl(ms(200)).no_renewal();
    let begun = Instant::now();
    let result = lock
        .with(async |_| tokio::time::sleep(ms(5_000)).await)
        .await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Lost);
    assert!(begun.elapsed() < ms(4_500), "{:?}", begun.elapsed());
}

async fn with_returns_what_the_work_returns(stage: Stage) {
    let a = stage.client().await;
    let result = a.lock("n").with(async |guard| guard.fence().get()).await;
    assert!(result.unwrap() > 0);
    assert!(a.lock("n").try_acquire().await.unwrap().is_some());
}

async fn with_does_not_call_it_done_when_the_lock_was_gone(stage: Stage) {
    let a = stage.client().await;
    // Deleted while the lease is young: the guard cannot know yet, but the release does.
    let result = a
        .lock("n")
        .with(async |_| stage.delete_lock("n").await)
        .await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Lost);
}

async fn ensure_ends_when_the_lock_is_lost_meanwhile(stage: Stage) {
    let a = stage.client().await;
    for round in 0..20 {
        let guard = a
            .lock("n")
            .ttl(ms(150))
            .no_renewal()
            .acquire()
            .await
            .unwrap();
        let renewed = a.lock("m").ttl(ms(150)).acquire().await.unwrap();
        stage.delete_lock("m").await;
        // Around the moment at which the watchdog notices.
        tokio::time::sleep(ms(40 + round)).await;
        let ensuring = renewed.ensure(ms(146));
        let ended = tokio::time::timeout(ms(3_000), ensuring).await;
        assert!(ended.expect("it ends").is_err());
        drop(guard);
        drop(renewed);
    }
}

async fn the_token_is_cancelled_when_the_lock_is_let_go(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    let token = guard.lost_token();
    drop(guard);
    assert!(
        token.is_cancelled(),
        "nobody may work on under a lock that is free"
    );
}

async fn the_token_is_cancelled_when_the_lock_is_lost(stage: Stage) {
    let a = stage.client().await;
    let guard = a
        .lock("n")
        .ttl(ms(150))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    let token = guard.lost_token();
    assert!(!token.is_cancelled());
    token.cancelled().await;
    assert!(!guard.is_valid());
}

async fn a_dropped_guard_frees_the_lock(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    drop(a.lock("n").acquire().await.unwrap());
    let begun = Instant::now();
    let guard = b.lock("n").acquire().await.unwrap();
    // Its lease would last for half a minute.
    assert!(begun.elapsed() < ms(8_000), "{:?}", begun.elapsed());
    guard.release().await.unwrap();
}
