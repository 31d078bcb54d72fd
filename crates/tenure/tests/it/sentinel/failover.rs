//! Locks are held, waited for and lost across a failover.

use std::time::Instant;

use tenure::{LostReason, Released, Standing};
use tenure_testkit::{ClockShim, Sentinels, eventually};

use super::{FAILOVER_LIMIT, TTL, client, fragile, kill_unheard, meanwhile, value_at};
use crate::stage::{ms, soon};
use crate::verdict::check_usable;

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_held_lock_goes_on_at_the_new_master() {
    let sentinels = Sentinels::start();
    let (holder, other) = (client(&sentinels).await, client(&sentinels).await);
    let guard = holder.lock("n").ttl(TTL).acquire().await.unwrap();
    assert!(sentinels.wait_for_sync(FAILOVER_LIMIT));
    let master = meanwhile(|| sentinels.failover());
    let renewed = holder.stats().renewed;
    guard.ensure(TTL * 9 / 10).await.unwrap();
    // By that call, or by the watchdog a moment before or after it.
    let renewed_there = eventually(FAILOVER_LIMIT, || holder.stats().renewed > renewed);
    assert!(renewed_there, "it was not renewed there");
    assert_eq!(guard.standing(), Standing::Held);
    let found = value_at(master, "n");
    assert_eq!(found.as_deref(), Some(guard.lease_id().as_str()));
    assert!(other.lock("n").try_acquire().await.unwrap().is_none());
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let next = other.lock("n").acquire().await.unwrap();
    assert!(next.fence() > fence);
}

/// A client that never heard of the old master.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn the_lock_is_held_for_clients_that_come_after_the_failover() {
    let sentinels = Sentinels::start();
    let holder = client(&sentinels).await;
    let guard = holder.lock("n").ttl(TTL).acquire().await.unwrap();
    assert!(sentinels.wait_for_sync(FAILOVER_LIMIT));
    kill_unheard(&sentinels);
    let other = client(&sentinels).await;
    assert!(other.lock("n").try_acquire().await.unwrap().is_none());
    guard.ensure(TTL * 9 / 10).await.unwrap();
    drop(guard);
    check_usable(&other, "n").await;
}

/// No replica confirmed the lock, and it dies with its master. The holder is notified as soon as the new
/// master is asked for it. Until then there may be two who believe: that is what `replicas` is for,
/// and only the fence makes it harmless.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h50_a_lock_that_no_replica_heard_of_is_lost_with_its_master() {
    let sentinels = fragile();
    let (holder, other) = (client(&sentinels).await, client(&sentinels).await);
    sentinels.cut_replication(1);
    sentinels.cut_replication(2);
    let guard = holder.lock("n").ttl(TTL).acquire().await.unwrap();
    // Old enough to be watched: then it is looked for at once.
    assert!(soon(async || guard.standing() == Standing::Held).await);
    tokio::time::sleep(ms(1_200)).await;
    kill_unheard(&sentinels);
    let begun = Instant::now();
    let next = other.lock("n").acquire().await.unwrap();
    let two = guard.is_valid();
    // Whether the other one was first makes no difference.
    let reason = guard.lost().await;
    assert!(
        matches!(reason, LostReason::Gone | LostReason::Taken),
        "{reason}"
    );
    eprintln!(
        "two holders: {two}; the first was told within {:?} of the second's grant",
        begun.elapsed()
    );
    assert!(begun.elapsed() < ms(5_000), "told by its deadline only");
    assert!(next.fence() > guard.fence(), "the resource can tell");
    assert_ne!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(next.is_valid());
}

/// A replica whose clock is ahead ends leases early when it is promoted.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h15_a_replica_with_another_clock_ends_the_lease_and_fences_grow() {
    let Some(clock) = ClockShim::compile() else {
        return eprintln!("skipped: there is no compiler for the clock shim");
    };
    clock.step_forward(ms(45_000));
    let sentinels = Sentinels::builder().replicas(1).clock(1, clock).start();
    let holder = client(&sentinels).await;
    let guard = holder.lock("n").ttl(TTL).acquire().await.unwrap();
    assert!(sentinels.wait_for_sync(FAILOVER_LIMIT));
    kill_unheard(&sentinels);
    assert_eq!(guard.lost().await, LostReason::Gone);
    let next = client(&sentinels).await.lock("n").acquire().await.unwrap();
    assert!(next.fence() > guard.fence());
}

/// Waiters stand in the queue of a master that is gone. They ask the next one.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_wait_goes_on_across_a_failover() {
    let sentinels = Sentinels::start();
    let (holder, other) = (client(&sentinels).await, client(&sentinels).await);
    let guard = holder.lock("n").ttl(TTL).acquire().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let lock = other.lock("n");
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    assert!(soon(async || other.stats().busy >= 2).await);
    assert!(sentinels.wait_for_sync(FAILOVER_LIMIT));
    kill_unheard(&sentinels);
    guard.ensure(TTL * 9 / 10).await.unwrap();
    // By the message of the new master, not by looking at last.
    assert!(soon(async || other.stats().busy >= 3).await);
    tokio::time::sleep(ms(300)).await;
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap(), Released::WasHeld);
    }
    assert!(released.elapsed() < ms(2_000), "{:?}", released.elapsed());
}
