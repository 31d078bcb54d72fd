//! Leases that a process keeps for its next use. A Redlock keeps none.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Fence, Guard, Lock, Locks, Released, Unordered};
use tokio::sync::Mutex;

use super::contract;
use super::waiting::begun;
use crate::stage::{Stage, ms, soon};

contract! {
    ; queued:
    a_kept_lock_is_acquired_again_with_a_greater_fence,
    another_client_that_waits_gets_a_kept_lock,
    another_client_that_tries_gets_a_kept_lock,
    another_client_that_tries_once_gets_a_kept_lock,
    who_asks_while_it_is_held_gets_it_at_the_release,
    clients_that_keep_exclude_each_other_and_fences_grow,
    a_kept_lock_is_let_go_when_its_time_is_over,
    a_lock_goes_to_the_store_again_when_its_time_is_over,
    a_shutdown_releases_what_is_kept,
    a_client_that_is_dropped_releases_what_is_kept,
    a_kept_lease_that_was_deleted_is_not_used,
    an_owner_may_re_enter_a_kept_lock,
    an_acquire_that_is_dropped_keeps_the_lock,
    only_the_same_wish_is_given_a_kept_lock,
    a_lease_without_renewal_is_not_kept,
    a_lease_that_others_wait_for_is_not_kept,
    a_detached_lease_is_not_kept,
    max_hold_counts_anew_for_each_use,
    listings_tell_what_is_kept,
}

/// Longer than anybody waits here: who gets the lock sooner was heard.
const KEEP: Duration = ms(12_000);
/// Half as long as that: what happens within it did not wait for the keep time.
const AT_ONCE: Duration = ms(6_000);

fn keeping(locks: &Locks) -> Lock<Unordered> {
    locks.lock("n").keep(KEEP)
}

/// Acquires and releases the lock until it is kept: the client must first hear who wants it.
async fn make_kept(locks: &Locks, lock: &Lock<Unordered>) {
    let before = locks.stats().kept;
    let is_kept = soon(async || {
        pair(lock).await;
        locks.stats().kept > before
    });
    assert!(is_kept.await, "the lock is never kept");
}

async fn pair(lock: &Lock<Unordered>) -> Fence {
    let guard = lock.acquire().await.unwrap();
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    fence
}

/// A client that keeps the lock `n`.
async fn keeper(stage: &Stage) -> (Locks, Lock<Unordered>) {
    let locks = stage.client().await;
    let lock = keeping(&locks);
    make_kept(&locks, &lock).await;
    (locks, lock)
}

async fn at_once(lock: Lock<Unordered>) -> Guard {
    lock.wait(AT_ONCE).acquire().await.unwrap()
}

async fn a_kept_lock_is_acquired_again_with_a_greater_fence(stage: Stage) {
    const USES: u64 = 50;
    let (a, lock) = keeper(&stage).await;
    let mut last = pair(&lock).await;
    let (lease, before) = {
        let guard = lock.acquire().await.unwrap();
        (guard.lease_id().clone(), a.stats())
    };
    for use_number in 0..USES {
        let guard = if use_number % 2 == 0 {
            lock.acquire().await.unwrap()
        } else {
            lock.try_acquire().await.unwrap().unwrap()
        };
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        assert!(guard.is_valid());
        assert_eq!(*guard.lease_id(), lease);
        last = guard.fence();
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    }
    assert_eq!(a.stats().reused - before.reused, USES);
    assert_eq!(a.stats().released, before.released);
}

async fn another_client_that_waits_gets_a_kept_lock(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    let last = pair(&lock).await;
    let b = stage.client().await;
    let guard = at_once(b.lock("n")).await;
    assert!(guard.fence() > last);
    assert_eq!(a.stats().let_go, 1);
    guard.release().await.unwrap();
    assert!(pair(&lock).await > last);
}

async fn another_client_that_tries_gets_a_kept_lock(stage: Stage) {
    let (a, _lock) = keeper(&stage).await;
    let b = stage.client().await;
    let granted = soon(async || b.lock("n").try_acquire().await.unwrap().is_some());
    assert!(granted.await);
    assert_eq!(a.stats().let_go, 1);
}

async fn another_client_that_tries_once_gets_a_kept_lock(stage: Stage) {
    let (a, _lock) = keeper(&stage).await;
    let b = stage.client().await;
    let impatient = b.lock("n").wait(Duration::ZERO);
    assert!(soon(async || impatient.acquire().await.is_ok()).await);
    assert_eq!(a.stats().let_go, 1);
}

async fn who_asks_while_it_is_held_gets_it_at_the_release(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    let guard = lock.acquire().await.unwrap();
    let b = stage.client().await;
    let waiting = tokio::spawn(begun(at_once(b.lock("n"))));
    assert!(soon(async || b.stats().busy >= 2).await);
    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(waiting.await.unwrap().fence() > fence);
    assert!(soon(async || a.stats().released >= 1).await);
}

/// Two clients with two tasks each, all of which keep what they can.
async fn clients_that_keep_exclude_each_other_and_fences_grow(stage: Stage) {
    const TURNS: usize = 60;
    let inside = Arc::new(AtomicBool::new(false));
    let fences = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let clients = [stage.client().await, stage.client().await];
    for client in &clients {
        make_kept(client, &keeping(client)).await;
    }
    for task in 0..4 {
        let locks = clients[task % 2].clone();
        let (inside, fences) = (Arc::clone(&inside), Arc::clone(&fences));
        tasks.push(tokio::spawn(async move {
            for turn in 0..TURNS {
                let guard = keeping(&locks).acquire().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                fences.lock().await.push(guard.fence());
                if turn % 8 == 0 {
                    tokio::time::sleep(ms(1)).await;
                }
                inside.store(false, Ordering::SeqCst);
                if turn % 3 == 0 {
                    drop(guard);
                } else {
                    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
                }
                if turn % 5 == 0 {
                    tokio::time::sleep(ms(2)).await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let fences = fences.lock().await;
    assert!(
        fences.windows(2).all(|pair| pair[0] < pair[1]),
        "{fences:?}"
    );
}

async fn a_kept_lock_is_let_go_when_its_time_is_over(stage: Stage) {
    let a = stage.client().await;
    make_kept(&a, &a.lock("n").keep(ms(200))).await;
    assert!(soon(async || stage.is_clean("n").await).await);
    assert_eq!(a.stats().let_go, 0);
}

/// However often it is used: clients that cannot ask must get their chance.
async fn a_lock_goes_to_the_store_again_when_its_time_is_over(stage: Stage) {
    let a = stage.client().await;
    let lock = a.lock("n").keep(ms(30));
    make_kept(&a, &lock).await;
    let released = a.stats().released;
    let went = soon(async || {
        for _ in 0..20 {
            pair(&lock).await;
        }
        a.stats().released > released
    });
    assert!(went.await);
    assert!(a.stats().reused > 0);
}

async fn a_shutdown_releases_what_is_kept(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    let left = a.shutdown(ms(5_000)).await;
    assert!(left.is_empty(), "{left:?}");
    assert!(stage.is_clean("n").await);
    assert!(lock.acquire().await.is_err());
}

async fn a_client_that_is_dropped_releases_what_is_kept(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    drop((a, lock));
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_kept_lease_that_was_deleted_is_not_used(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    let guard = lock.acquire().await.unwrap();
    let (lease, fence) = (guard.lease_id().clone(), guard.fence());
    guard.release().await.unwrap();
    stage.delete_lock("n").await;
    assert!(soon(async || a.stats().kept_lost == 1).await);
    let b = stage.client().await;
    let other = b.lock("n").try_acquire().await.unwrap().unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none(), "two holders");
    assert!(other.fence() > fence);
    other.release().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    assert_ne!(*guard.lease_id(), lease);
    assert!(guard.fence() > fence);
    assert_eq!(a.stats().lost, 0);
}

async fn an_owner_may_re_enter_a_kept_lock(stage: Stage) {
    let (a, _lock) = keeper(&stage).await;
    let owner = a.owner();
    let lock = owner.lock("n").keep(KEEP);
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    assert_eq!(outer.fence(), inner.fence());
    let kept = a.stats().kept;
    drop(outer);
    assert!(inner.is_valid());
    assert_eq!(a.stats().kept, kept, "kept while it is held");
    drop(inner);
    assert_eq!(a.stats().kept, kept + 1);
    assert!(pair(&lock).await > Fence::new(0));
}

async fn an_acquire_that_is_dropped_keeps_the_lock(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    let released = a.stats().released;
    drop(lock.acquire());
    for _ in 0..100 {
        let acquire = pin!(lock.acquire());
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(guard) = acquire.poll(&mut context) {
            drop(guard.unwrap());
        }
    }
    assert_eq!(a.stats().released, released);
    let b = stage.client().await;
    drop(at_once(b.lock("n")).await);
}

async fn only_the_same_wish_is_given_a_kept_lock(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    let wishes = [
        a.lock("n"),
        keeping(&a).ttl(ms(25_000)),
        a.lock("n").keep(KEEP / 2),
        keeping(&a).meta("job", "7"),
        keeping(&a).no_renewal(),
    ];
    for (number, wish) in wishes.into_iter().enumerate() {
        make_kept(&a, &lock).await;
        let (lease, reused) = {
            let guard = lock.acquire().await.unwrap();
            (guard.lease_id().clone(), a.stats().reused)
        };
        let guard = if number % 2 == 0 {
            at_once(wish).await
        } else {
            wish.try_acquire().await.unwrap().unwrap()
        };
        assert_ne!(*guard.lease_id(), lease, "wish {number}");
        assert_eq!(a.stats().reused, reused, "wish {number}");
        guard.release().await.unwrap();
    }
}

async fn a_lease_without_renewal_is_not_kept(stage: Stage) {
    let (a, _lock) = keeper(&stage).await;
    let lock = a.lock("m").keep(KEEP).no_renewal();
    let kept = a.stats().kept;
    pair(&lock).await;
    assert_eq!(a.stats().kept, kept);
    assert!(stage.is_clean("m").await);
}

/// The lock was offered to one of several, and the others wait for it.
async fn a_lease_that_others_wait_for_is_not_kept(stage: Stage) {
    let (a, _lock) = keeper(&stage).await;
    let other = stage.client().await;
    let first = at_once(other.lock("n")).await;
    let waiting = tokio::spawn(begun(at_once(keeping(&a))));
    assert!(soon(async || a.stats().busy >= 1).await);
    let kept = a.stats().kept;
    first.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    assert_eq!(a.stats().kept, kept);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_detached_lease_is_not_kept(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    let guard = lock.acquire().await.unwrap();
    let kept = a.stats().kept;
    let lease = guard.detach().unwrap();
    assert_eq!(a.stats().kept, kept);
    let b = stage.client().await;
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    assert_eq!(a.release(&lease).await.unwrap(), Released::WasHeld);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn max_hold_counts_anew_for_each_use(stage: Stage) {
    let a = stage.client().await;
    let lock = keeping(&a).max_hold(ms(400));
    make_kept(&a, &lock).await;
    let reused = a.stats().reused;
    tokio::time::sleep(ms(500)).await;
    let guard = lock.acquire().await.unwrap();
    assert!(guard.is_valid());
    assert_eq!(a.stats().reused, reused + 1);
    guard.lost().await;
    let kept = a.stats().kept;
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
    assert_eq!(a.stats().kept, kept, "kept beyond its holder's time");
}

async fn listings_tell_what_is_kept(stage: Stage) {
    let (a, lock) = keeper(&stage).await;
    let b = stage.client().await;
    let told = soon(async || {
        let holder = b.lock("n").holder().await.unwrap();
        if holder.is_none() {
            // On a crowded machine messages may count as lost, and then it was let go.
            make_kept(&a, &lock).await;
        }
        let listed = b.list(|name| name.as_str() == "n").await.unwrap();
        holder.is_some_and(|holder| holder.kept && holder.to_string().contains("kept"))
            && listed.locks.iter().any(|it| it.kept)
    });
    assert!(told.await);
    let guard = lock.acquire().await.unwrap();
    let told = soon(async || {
        let holder = b.lock("n").holder().await.unwrap();
        holder.is_some_and(|holder| !holder.kept && holder.client.is_some())
    });
    assert!(told.await);
    drop(guard);
}
