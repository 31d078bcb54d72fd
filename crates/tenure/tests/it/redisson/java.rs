//! A Java process that locks, waits, is woken and goes away.

use std::time::Instant;

use tenure::{Guard, LostReason, Released};
use tenure_testkit::Redisson;

use super::{java, stage};
use crate::stage::{ms, soon};
use crate::verdict::{check_usable, check_within};

#[tenure_testkit::test]
async fn java_excludes_us() {
    let (_server, ours, mut java) = stage().await;
    assert!(java.try_lock("n"));
    assert!(ours.lock("n").try_acquire().await.unwrap().is_none());
    let error = ours.lock("n").wait(ms(300)).acquire().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(java.owner()), "{text}");
    assert!(java.renew("n"));
    assert_eq!(java.unlock("n"), Some(true), "ours did not touch it");
    check_usable(&ours, "n").await;
}

#[tenure_testkit::test]
async fn we_exclude_java() {
    let (_server, ours, mut java) = stage().await;
    let guard = ours.lock("n").acquire().await.unwrap();
    assert!(!java.try_lock("n"));
    assert!(java.is_locked("n"));
    assert_eq!(java.unlock("n"), None, "Java cannot release ours");
    assert!(!java.renew("n"));
    assert!(guard.is_valid());
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(java.try_lock("n"));
}

#[tenure_testkit::test]
async fn we_wait_for_java_and_are_woken() {
    let (_server, ours, mut java) = stage().await;
    assert!(java.try_lock("n"));
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.lock("n").acquire().await }
    });
    assert!(
        soon(async || ours.stats().busy >= 2).await,
        "it has subscribed"
    );
    assert!(!waiting.is_finished());
    assert_eq!(java.unlock("n"), Some(true));
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(ours.stats().woken_by_message, 1, "not by the clock");
}

#[tenure_testkit::test]
async fn java_waits_for_us_and_is_woken() {
    let (_server, ours, java) = stage().await;
    let guard = ours.lock("n").acquire().await.unwrap();
    let waiting = tokio::task::spawn_blocking(|| waits(java));
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    let released = Instant::now();
    guard.release().await.unwrap();
    let mut java = waiting.await.unwrap();
    // Our lease would have lasted for half a minute.
    check_within(released, ms(5_000));
    assert_eq!(java.unlock("n"), Some(true));
}

/// A Java thread that gets the lock.
fn waits(mut java: Redisson) -> Redisson {
    assert!(java.lock_within("n", ms(20_000)), "Java was not woken");
    java
}

#[tenure_testkit::test]
async fn we_wait_until_java_has_left_as_often_as_it_entered() {
    let (_server, ours, mut java) = stage().await;
    assert!(java.try_lock("n") && java.try_lock("n"));
    assert_eq!(java.hold_count("n"), 2);
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.lock("n").acquire().await }
    });
    assert!(soon(async || ours.stats().busy >= 2).await);
    assert_eq!(java.unlock("n"), Some(false));
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished() && java.hold_count("n") == 1);
    assert_eq!(java.unlock("n"), Some(true));
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(java.try_lock("n"));
}

#[tenure_testkit::test]
async fn we_wait_for_the_end_of_a_dead_javas_lease() {
    let (server, ours, _java) = stage().await;
    let mut dead = java(&server).lease(ms(700));
    assert!(dead.try_lock("n"));
    let begun = Instant::now();
    let guard = ours.lock("n").acquire().await.unwrap();
    assert!(begun.elapsed() > ms(500), "{:?}", begun.elapsed());
    check_within(begun, ms(5_000));
    assert_eq!(dead.unlock("n"), None, "its lease has ended");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

#[tenure_testkit::test]
async fn java_waits_for_the_end_of_our_dead_lease() {
    let (_server, ours, java) = stage().await;
    let guard = ours.lock("n").ttl(ms(700)).acquire().await.unwrap();
    let _left_behind = guard.detach().unwrap();
    let begun = Instant::now();
    tokio::task::spawn_blocking(|| waits(java)).await.unwrap();
    check_within(begun, ms(5_000));
}

/// Why a guard is lost; fails if it is not, instead of waiting for ever.
async fn lost(guard: &Guard) -> LostReason {
    let lost = tokio::time::timeout(ms(20_000), guard.lost());
    lost.await.expect("the guard was not told")
}

/// Its holder is notified by the server, long before its next renewal.
#[tenure_testkit::test]
async fn javas_forced_unlock_is_noticed_at_once() {
    let (_server, ours, mut java) = stage().await;
    let guard = ours.lock("n").acquire().await.unwrap();
    // Leases are watched from their first second on.
    tokio::time::sleep(ms(1_500)).await;
    let begun = Instant::now();
    assert!(java.force_unlock("n"));
    assert_eq!(lost(&guard).await, LostReason::Gone);
    check_within(begun, ms(5_000));
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
    assert!(java.try_lock("n"));
}

#[tenure_testkit::test]
async fn a_lease_that_java_took_over_is_noticed_by_its_renewal() {
    let (_server, ours, mut java) = stage().await;
    let guard = ours.lock("n").ttl(ms(600)).acquire().await.unwrap();
    assert!(java.force_unlock("n") && java.try_lock("n"));
    assert_eq!(lost(&guard).await, LostReason::Taken);
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
    assert_eq!(java.unlock("n"), Some(true), "Java's was left alone");
}

#[tenure_testkit::test]
async fn javas_lock_can_be_released_by_force_however_often_it_entered() {
    let (server, ours, mut java_1) = stage().await;
    assert!(java_1.try_lock("n") && java_1.try_lock("n"));
    let java_2 = java(&server);
    let waiting = tokio::task::spawn_blocking(|| waits(java_2));
    tokio::time::sleep(ms(300)).await;
    let holder = ours.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.lease.as_str(), java_1.owner());
    assert!(!holder.lease.is_tenure());
    let begun = Instant::now();
    let released = ours.force_release("n", &holder.lease).await.unwrap();
    assert_eq!(released, Released::WasHeld);
    assert_eq!(java_1.unlock("n"), None);
    waiting.await.unwrap();
    check_within(begun, ms(5_000));
    let again = ours.force_release("n", &holder.lease).await.unwrap();
    assert_eq!(again, Released::AlreadyGone, "the next holder is not hit");
}

/// One counter for both: the later holder has the greater number.
#[tenure_testkit::test]
async fn fences_of_ours_and_of_java_grow_together() {
    let (_server, ours, mut java) = stage().await;
    let mut last = java.try_lock_and_get_token("n").unwrap();
    assert_eq!(last, 1, "Java begins to count at one");
    assert_eq!(
        java.try_lock_and_get_token("n"),
        Some(2),
        "and counts re-entries"
    );
    assert_eq!(java.unlock("n"), Some(false));
    assert_eq!(java.unlock("n"), Some(true));
    for turn in 0..10 {
        let fence = if turn % 3 == 0 {
            let token = java.try_lock_and_get_token("n").unwrap();
            java.unlock("n");
            token
        } else {
            let guard = ours.lock("n").acquire().await.unwrap();
            let fence = guard.fence().get();
            guard.release().await.unwrap();
            fence
        };
        assert!(fence > last, "turn {turn}: {fence} after {last}");
        last = fence;
    }
    assert!(last < 1 << 53);
}

/// Data that another lease left is not attributed to Java's.
#[tenure_testkit::test]
async fn our_fence_and_metadata_are_not_taken_for_javas() {
    let (_server, ours, mut java) = stage().await;
    let guard = ours
        .lock("n")
        .meta("why", "report")
        .acquire()
        .await
        .unwrap();
    assert!(java.force_unlock("n") && java.try_lock("n"));
    let holder = ours.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.fence, None);
    assert!(holder.meta.is_empty(), "{:?}", holder.meta);
    drop(guard);
}
