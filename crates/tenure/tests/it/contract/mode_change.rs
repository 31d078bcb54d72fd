//! Writers that go on as readers, and readers that go on as writers.

use std::time::Duration;

use tenure::{ErrorKind, Guard, Lock, Locks, Mode, Released, Unchanged, Unordered};
use tokio::task::JoinHandle;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    native:
    a_writer_goes_on_as_a_reader,
    readers_that_wait_join_a_writer_that_goes_on_as_a_reader,
    a_waiting_writer_is_not_passed_by_a_downgrade,
    a_sole_reader_goes_on_as_a_writer,
    an_upgrade_beside_another_reader_is_refused,
    an_upgrade_beside_a_caller_of_this_process_is_refused,
    an_upgrade_is_refused_while_a_writer_waits,
    a_lease_whose_mode_changed_is_renewed,
    a_lease_whose_mode_did_not_change_is_renewed,
    a_lost_lease_does_not_change_its_mode,
    a_lease_that_has_the_mode_already_stays_as_it_is,
    an_owner_knows_the_mode_that_it_holds,
    a_change_that_nobody_waits_for_leaves_nothing,
}

const TTL: Duration = ms(6_000);

fn reader(locks: &Locks) -> Lock<Unordered> {
    locks.lock("n").ttl(TTL).shared()
}

fn writer(locks: &Locks) -> Lock<Unordered> {
    locks.lock("n").ttl(TTL)
}

/// Starts to wait for a lock, and returns when the store has the waiter in its queue.
async fn waiting(locks: &Locks, lock: Lock<Unordered>) -> JoinHandle<Guard> {
    let busy = locks.stats().busy;
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let is_queued = soon(async || locks.stats().busy >= busy + 2).await;
    assert!(is_queued, "it does not wait");
    waiter
}

/// The guard that holds the lock as before.
#[track_caller]
fn still_held(changed: Result<Guard, Unchanged>, kind: ErrorKind, part: &str) -> Guard {
    let Unchanged { guard, error } = changed.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
    let guard = guard.expect("the guard is given back");
    assert!(guard.is_valid());
    guard
}

async fn a_writer_goes_on_as_a_reader(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = writer(&a).acquire().await.unwrap();
    let (fence, token) = (guard.fence(), guard.lost_token());
    let guard = guard.downgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Shared);
    assert!(guard.fence() > fence, "a phase has its own fence");
    assert!(token.is_cancelled() && guard.is_valid());
    assert!(writer(&b).try_acquire().await.unwrap().is_none());
    let other = reader(&b).try_acquire().await.unwrap().unwrap();
    assert_eq!(other.fence(), guard.fence());
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert_eq!(other.release().await.unwrap(), Released::WasHeld);
    let next = writer(&b).try_acquire().await.unwrap().unwrap();
    assert_eq!(next.release().await.unwrap(), Released::WasHeld);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn readers_that_wait_join_a_writer_that_goes_on_as_a_reader(stage: Stage) {
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    let guard = writer(&a).acquire().await.unwrap();
    let first = waiting(&b, reader(&b)).await;
    let second = waiting(&c, reader(&c)).await;
    let guard = guard.downgrade().await.unwrap();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(guard.is_valid() && first.is_valid() && second.is_valid());
    assert_eq!(first.fence(), guard.fence());
    assert_eq!(second.fence(), guard.fence());
}

async fn a_waiting_writer_is_not_passed_by_a_downgrade(stage: Stage) {
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    let guard = writer(&a).acquire().await.unwrap();
    let next = waiting(&b, writer(&b)).await;
    let behind = waiting(&c, reader(&c)).await;
    let guard = guard.downgrade().await.unwrap();
    assert!(!behind.is_finished(), "it passed the writer");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let next = next.await.unwrap();
    assert!(!behind.is_finished(), "it passed the writer");
    assert_eq!(next.release().await.unwrap(), Released::WasHeld);
    assert!(behind.await.unwrap().is_valid());
}

async fn a_sole_reader_goes_on_as_a_writer(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = reader(&a).acquire().await.unwrap();
    let fence = guard.fence();
    let guard = guard.try_upgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(guard.fence() > fence);
    assert!(reader(&b).try_acquire().await.unwrap().is_none());
    assert!(writer(&b).try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn an_upgrade_beside_another_reader_is_refused(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = reader(&a).acquire().await.unwrap();
    let other = reader(&b).acquire().await.unwrap();
    let refused = guard.try_upgrade().await;
    let guard = still_held(refused, ErrorKind::Busy, "others read it (`1`)");
    assert_eq!(guard.mode(), Mode::Shared);
    assert_eq!(other.release().await.unwrap(), Released::WasHeld);
    let guard = guard.try_upgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
}

async fn an_upgrade_beside_a_caller_of_this_process_is_refused(stage: Stage) {
    let a = stage.client().await;
    // On a crowded machine the second may come too late to join the first.
    for _ in 0..20 {
        let guard = reader(&a).acquire().await.unwrap();
        let other = reader(&a).acquire().await.unwrap();
        let is_joined = guard.lease_id() == other.lease_id();
        let refused = guard.try_upgrade().await;
        if !is_joined {
            let _guard = still_held(refused, ErrorKind::Busy, "others read it (`1`)");
            continue;
        }
        let guard = still_held(refused, ErrorKind::Mismatch, "other guards");
        assert!(other.is_valid());
        drop(other);
        let guard = guard.try_upgrade().await.unwrap();
        assert_eq!(guard.mode(), Mode::Exclusive);
        return;
    }
    panic!("no reader joined another");
}

async fn an_upgrade_is_refused_while_a_writer_waits(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = reader(&a).acquire().await.unwrap();
    let next = waiting(&b, writer(&b)).await;
    let guard = still_held(
        guard.try_upgrade().await,
        ErrorKind::Busy,
        "wait for it (`1`)",
    );
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(next.await.unwrap().is_valid());
}

async fn a_lease_whose_mode_changed_is_renewed(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").ttl(ms(2_000)).acquire().await.unwrap();
    let guard = guard.downgrade().await.unwrap();
    let renewed = a.stats().renewed;
    assert!(soon(async || a.stats().renewed >= renewed + 2).await);
    let guard = guard.try_upgrade().await.unwrap();
    let renewed = a.stats().renewed;
    assert!(soon(async || a.stats().renewed >= renewed + 2).await);
    assert!(guard.is_valid());
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

async fn a_lease_whose_mode_did_not_change_is_renewed(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(2_000)).shared().acquire().await.unwrap();
    let _other = reader(&b).acquire().await.unwrap();
    let guard = still_held(guard.try_upgrade().await, ErrorKind::Busy, "others read it");
    let renewed = a.stats().renewed;
    assert!(soon(async || a.stats().renewed >= renewed + 2).await);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

async fn a_lost_lease_does_not_change_its_mode(stage: Stage) {
    let a = stage.client().await;
    for shared in [false, true] {
        let lock = writer(&a);
        let lock = if shared { lock.shared() } else { lock };
        let guard = lock.acquire().await.unwrap();
        let token = guard.lost_token();
        let admin = stage.client().await;
        let holder = admin.lock("n").holder().await.unwrap().unwrap();
        admin.force_release("n", &holder.lease).await.unwrap();
        let changed = if shared {
            guard.try_upgrade().await
        } else {
            guard.downgrade().await
        };
        let Unchanged { guard, error } = changed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(guard.is_none_or(|guard| !guard.is_valid()));
        assert!(token.is_cancelled());
        assert!(!admin.lock("n").is_locked().await.unwrap());
    }
}

async fn a_lease_that_has_the_mode_already_stays_as_it_is(stage: Stage) {
    let a = stage.client().await;
    let guard = writer(&a).acquire().await.unwrap();
    let fence = guard.fence();
    let same = guard.try_upgrade().await;
    let guard = still_held(same, ErrorKind::Mismatch, "exclusive already");
    assert_eq!(guard.fence(), fence);
    let guard = guard.downgrade().await.unwrap();
    let _guard = still_held(
        guard.downgrade().await,
        ErrorKind::Mismatch,
        "shared already",
    );
}

async fn an_owner_knows_the_mode_that_it_holds(stage: Stage) {
    let a = stage.client().await;
    let owner = a.owner();
    let lock = || owner.lock("n").ttl(TTL);
    let guard = lock().acquire().await.unwrap();
    let inner = lock().acquire().await.unwrap();
    let guard = still_held(guard.downgrade().await, ErrorKind::Mismatch, "other guards");
    drop(inner);
    let guard = guard.downgrade().await.unwrap();
    let error = lock().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    let inner = lock().shared().acquire().await.unwrap();
    assert_eq!(inner.lease_id(), guard.lease_id());
    drop(inner);
    let guard = guard.try_upgrade().await.unwrap();
    let inner = lock().acquire().await.unwrap();
    assert_eq!(inner.lease_id(), guard.lease_id());
}

async fn a_change_that_nobody_waits_for_leaves_nothing(stage: Stage) {
    let a = stage.client().await;
    for round in 0..20 {
        let guard = writer(&a).acquire().await.unwrap();
        let token = guard.lost_token();
        let mut changing = Box::pin(guard.downgrade());
        // Once, so that it has begun. It may be done at once.
        let polled = poll_once(&mut changing).await;
        drop(polled);
        drop(changing);
        token.cancelled().await;
        let is_clean = soon(async || stage.is_clean("n").await).await;
        assert!(is_clean, "round {round}: the lock is held by nobody");
    }
}

/// Polls a future once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = std::pin::Pin::new(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
