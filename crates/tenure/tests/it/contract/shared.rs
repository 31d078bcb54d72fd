//! Shared leases: readers that hold a lock together, and writers that hold it alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Guard, Lock, Locks, LostReason, Mode, Released, Unordered};
use tokio::task::JoinHandle;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    native:
    readers_hold_the_lock_together,
    readers_and_writers_exclude_each_other,
    several_names_at_once_are_excluded_by_readers_and_can_be_shared,
    fences_are_the_same_within_a_phase_and_grow_between,
    a_waiting_writer_stops_readers_that_come_later,
    readers_behind_a_writer_are_admitted_together_up_to_the_next,
    readers_of_one_process_share_one_lease,
    a_writer_that_waits_in_the_process_is_not_overtaken,
    a_writer_that_gives_up_lets_waiting_readers_in,
    a_reader_that_gives_up_leaves_nothing,
    a_reader_that_is_not_renewed_ends_with_its_lease,
    the_lock_lasts_as_long_as_the_last_lease_of_a_reader,
    readers_are_renewed,
    a_reader_that_lost_the_lock_is_told_at_its_renewal,
    the_lease_of_a_reader_can_be_detached_and_adopted,
    the_lease_of_a_reader_can_be_ended_by_force,
    an_owner_shares_its_own_lease_and_does_not_wait_for_itself,
    a_shutdown_ends_the_leases_of_readers,
    readers_and_writers_of_several_processes_all_get_their_turns,
}

/// Longer than a waiter that hears nothing sleeps on its own.
const AT_ONCE: Duration = ms(4_000);

fn reader(locks: &Locks) -> Lock<Unordered> {
    locks.lock("n").shared()
}

fn writer(locks: &Locks) -> Lock<Unordered> {
    locks.lock("n")
}

async fn held(lock: Lock<Unordered>) -> Guard {
    lock.acquire().await.unwrap()
}

/// Starts to wait for a lock, and returns when the store has the waiter in its queue.
async fn waiting(locks: &Locks, lock: Lock<Unordered>) -> JoinHandle<Guard> {
    let busy = locks.stats().busy;
    let waiter = tokio::spawn(held(lock));
    // Who is refused a second time has joined the queue in the same step.
    let is_queued = soon(async || locks.stats().busy >= busy + 2).await;
    assert!(is_queued, "it does not wait");
    waiter
}

async fn is_free_for(lock: Lock<Unordered>) -> bool {
    match lock.try_acquire().await.unwrap() {
        Some(guard) => {
            guard.release().await.unwrap();
            true
        }
        None => false,
    }
}

async fn readers_hold_the_lock_together(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let one = held(reader(&a)).await;
    let two = held(reader(&b)).await;
    assert_eq!((one.mode(), two.mode()), (Mode::Shared, Mode::Shared));
    assert_ne!(one.lease_id(), two.lease_id());
    let holder = b.lock("n").holder().await.unwrap().unwrap();
    assert!(holder.lease.is_phase(), "{holder}");
    assert_eq!((holder.readers, holder.fence), (2, Some(one.fence())));
    for guard in [&one, &two] {
        assert!(guard.is_valid());
        assert!(holder.reader_leases.contains(guard.lease_id()));
    }
    assert_eq!(one.release().await.unwrap(), Released::WasHeld);
    let holder = b.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.reader_leases, [two.lease_id().clone()]);
    assert_eq!(two.release().await.unwrap(), Released::WasHeld);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn readers_and_writers_exclude_each_other(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let one = held(reader(&a)).await;
    for locks in [&a, &b] {
        assert!(!is_free_for(writer(locks)).await, "beside a reader");
    }
    let busy = writer(&b).wait(ms(50)).acquire().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(busy.to_string().contains("reader"), "{busy}");
    one.release().await.unwrap();
    let alone = held(writer(&b)).await;
    for locks in [&a, &b] {
        assert!(!is_free_for(reader(locks)).await, "beside a writer");
    }
    alone.release().await.unwrap();
    assert!(is_free_for(reader(&a)).await);
}

async fn several_names_at_once_are_excluded_by_readers_and_can_be_shared(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let one = held(reader(&a)).await;
    assert!(b.locks(["m", "n"]).try_acquire().await.unwrap().is_none());
    assert!(is_free_for(b.lock("m")).await, "nothing of it is held");
    let both = b.locks(["m", "n"]).shared().acquire().await.unwrap();
    assert_eq!(both.fence("n"), Some(one.fence()));
    drop(one);
    assert!(!is_free_for(writer(&a)).await);
    assert!(!is_free_for(a.lock("m")).await);
    both.release().await.unwrap();
    let alone = a.locks(["m", "n"]).acquire().await.unwrap();
    assert!(!is_free_for(reader(&b)).await);
    alone.release().await.unwrap();
}

async fn fences_are_the_same_within_a_phase_and_grow_between(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let mut last = held(writer(&a)).await.fence();
    for _ in 0..5 {
        let (one, two) = (held(reader(&a)).await, held(reader(&b)).await);
        assert_eq!(one.fence(), two.fence());
        assert!(one.fence() > last);
        // A phase ends only with its last reader.
        one.release().await.unwrap();
        let three = held(reader(&a)).await;
        assert_eq!(three.fence(), two.fence());
        last = three.fence();
        drop((two, three));
        let alone = held(writer(&b)).await;
        assert!(alone.fence() > last);
        last = alone.fence();
        alone.release().await.unwrap();
    }
}

async fn a_waiting_writer_stops_readers_that_come_later(stage: Stage) {
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    let one = held(reader(&a)).await;
    let second = waiting(&b, writer(&b)).await;
    assert!(!is_free_for(reader(&c)).await, "it passed the writer");
    let third = waiting(&c, reader(&c)).await;
    one.release().await.unwrap();
    let alone = second.await.unwrap();
    assert!(!third.is_finished(), "the reader came first");
    let fence = alone.fence();
    alone.release().await.unwrap();
    assert!(third.await.unwrap().fence() > fence);
}

async fn readers_behind_a_writer_are_admitted_together_up_to_the_next(stage: Stage) {
    let holder = stage.client().await;
    let alone = held(writer(&holder)).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(stage.client().await);
    }
    let mut readers = Vec::new();
    for locks in &clients[..3] {
        readers.push(waiting(locks, reader(locks)).await);
    }
    let next_writer = waiting(&clients[3], writer(&clients[3])).await;
    let late = waiting(&clients[4], reader(&clients[4])).await;
    alone.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap());
    }
    let fence = guards[0].fence();
    assert!(guards.iter().all(|guard| guard.fence() == fence));
    assert!(!next_writer.is_finished() && !late.is_finished());
    let first = guards.pop();
    drop(first);
    assert!(!next_writer.is_finished(), "two readers are left");
    drop(guards);
    let alone = next_writer.await.unwrap();
    assert!(!late.is_finished());
    alone.release().await.unwrap();
    drop(late.await.unwrap());
}

/// Callers of one process that come at the same time ask the store once.
async fn readers_of_one_process_share_one_lease(stage: Stage) {
    let a = stage.builder().hand_off_time(ms(60_000));
    let a = a.connect().await.unwrap();
    let first = held(reader(&a)).await;
    let before = a.stats().acquired;
    let mut guards = Vec::new();
    for _ in 0..50 {
        let guard = held(reader(&a)).await;
        assert_eq!(guard.lease_id(), first.lease_id());
        guards.push(guard);
    }
    assert_eq!(a.stats().acquired, before);
    let other = held(reader(&a).ttl(ms(7_000))).await;
    assert_ne!(other.lease_id(), first.lease_id(), "it has another ttl");
    drop((first, other));
    assert!(!is_free_for(writer(&a)).await);
    let last = guards.pop().unwrap();
    drop(guards);
    assert_eq!(last.release().await.unwrap(), Released::WasHeld);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_writer_that_waits_in_the_process_is_not_overtaken(stage: Stage) {
    let a = stage.builder().hand_off_time(ms(60_000));
    let a = a.connect().await.unwrap();
    let first = held(reader(&a)).await;
    let second = waiting(&a, writer(&a)).await;
    let third = tokio::spawn(held(reader(&a)));
    // It must not join the lease of the first.
    assert!(!is_free_for(reader(&a)).await, "it passed the writer");
    first.release().await.unwrap();
    let alone = second.await.unwrap();
    assert!(!third.is_finished());
    alone.release().await.unwrap();
    drop(third.await.unwrap());
}

async fn a_writer_that_gives_up_lets_waiting_readers_in(stage: Stage) {
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    let one = held(reader(&a)).await;
    let second = waiting(&b, writer(&b)).await;
    let third = waiting(&c, reader(&c)).await;
    let given_up = Instant::now();
    second.abort();
    let guard = third.await.unwrap();
    assert!(given_up.elapsed() < AT_ONCE, "{:?}", given_up.elapsed());
    assert_eq!(guard.fence(), one.fence());
}

async fn a_reader_that_gives_up_leaves_nothing(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let alone = held(writer(&a)).await;
    let error = reader(&b).wait(ms(100)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let waiter = waiting(&b, reader(&b)).await;
    waiter.abort();
    assert!(waiter.await.is_err());
    alone.release().await.unwrap();
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_reader_that_is_not_renewed_ends_with_its_lease(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let one = held(reader(&a).ttl(ms(300)).no_renewal()).await;
    let alone = held(writer(&b)).await;
    assert!(!one.is_valid());
    assert_eq!(one.lost().await, LostReason::Expired);
    assert!(alone.fence() > one.fence());
    assert_eq!(one.release().await.unwrap(), Released::AlreadyGone);
    assert!(alone.is_valid());
}

/// Not only until the first one ends.
async fn the_lock_lasts_as_long_as_the_last_lease_of_a_reader(stage: Stage) {
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    let long = held(reader(&a).ttl(ms(20_000)).no_renewal()).await;
    let short = held(reader(&b).ttl(ms(200)).no_renewal()).await;
    assert_eq!(short.lost().await, LostReason::Expired);
    // The server's lease ends a moment later.
    tokio::time::sleep(ms(50)).await;
    assert!(!is_free_for(writer(&c)).await, "a reader is left");
    assert!(is_free_for(reader(&c)).await);
    let holder = c.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.reader_leases, [long.lease_id().clone()]);
    long.release().await.unwrap();
    assert!(is_free_for(writer(&c)).await);
}

async fn readers_are_renewed(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let one = held(reader(&a).ttl(ms(1_000))).await;
    let until = one.deadline();
    let is_renewed = soon(async || one.deadline() > until + ms(1_000)).await;
    assert!(is_renewed, "not renewed twice");
    assert!(one.is_valid());
    assert!(!is_free_for(writer(&b)).await);
    assert_eq!(one.release().await.unwrap(), Released::WasHeld);
}

async fn a_reader_that_lost_the_lock_is_told_at_its_renewal(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let one = held(reader(&a).ttl(ms(1_500))).await;
    let holder = b.lock("n").holder().await.unwrap().unwrap();
    for lease in &holder.reader_leases {
        b.force_release("n", lease).await.unwrap();
    }
    let alone = held(writer(&b)).await;
    let reason = one.lost().await;
    assert!(
        matches!(reason, LostReason::Taken | LostReason::Gone),
        "{reason}"
    );
    assert!(alone.is_valid());
    assert!(alone.fence() > one.fence());
}

async fn the_lease_of_a_reader_can_be_detached_and_adopted(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let (one, two) = (held(reader(&a)).await, held(reader(&b)).await);
    let fence = one.fence();
    let lease = one.detach().unwrap();
    assert_eq!(lease.id().mode(), Mode::Shared);
    b.renew(&lease, ms(30_000)).await.unwrap();
    let lease = lease.to_string().parse().unwrap();
    let adopted = b.adopt(&lease).await.unwrap();
    assert_eq!((adopted.mode(), adopted.fence()), (Mode::Shared, fence));
    let again = a.adopt(&lease).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Lost);
    two.release().await.unwrap();
    assert!(!is_free_for(writer(&a)).await);
    assert_eq!(adopted.release().await.unwrap(), Released::WasHeld);
    assert!(is_free_for(writer(&a)).await);
}

async fn the_lease_of_a_reader_can_be_ended_by_force(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let (one, two) = (
        held(reader(&a).ttl(ms(1_500))).await,
        held(reader(&b)).await,
    );
    let forced = b.force_release("n", one.lease_id()).await.unwrap();
    assert_eq!(forced, Released::WasHeld);
    // Its renewal finds that other readers hold the lock, and must not add it again.
    let told = tokio::time::timeout(Duration::from_secs(30), one.lost()).await;
    assert_eq!(told, Ok(LostReason::Gone));
    let forced = b.force_release("n", one.lease_id()).await.unwrap();
    assert_eq!(forced, Released::AlreadyGone);
    assert!(!is_free_for(writer(&b)).await);
    assert_eq!(two.release().await.unwrap(), Released::WasHeld);
    assert!(is_free_for(writer(&b)).await);
    drop(one);
    // All readers at once, by what the lock has in place of their ids.
    let (one, two) = (held(reader(&a)).await, held(reader(&b)).await);
    let phase = a.lock("n").holder().await.unwrap().unwrap().lease;
    assert_eq!(
        a.force_release("n", &phase).await.unwrap(),
        Released::WasHeld
    );
    assert_eq!(
        a.force_release("n", &phase).await.unwrap(),
        Released::AlreadyGone
    );
    assert!(is_free_for(writer(&b)).await);
    drop((one, two));
}

async fn an_owner_shares_its_own_lease_and_does_not_wait_for_itself(stage: Stage) {
    let a = stage.client().await;
    let owner = a.owner();
    let outer = held(owner.lock("n").shared()).await;
    let inner = held(owner.lock("n").shared()).await;
    assert_eq!(inner.lease_id(), outer.lease_id());
    let refused = owner.lock("n").acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Mismatch);
    drop((outer, inner));
    let alone = held(owner.lock("n")).await;
    let refused = owner.lock("n").shared().acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Mismatch);
    assert!(alone.is_valid());
}

async fn a_shutdown_ends_the_leases_of_readers(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let (one, two) = (held(reader(&a)).await, held(reader(&b)).await);
    a.shutdown(ms(10_000)).await;
    assert_eq!(one.lost().await, LostReason::Shutdown);
    two.release().await.unwrap();
    assert!(is_free_for(writer(&b)).await);
}

/// Readers count up from zero, a writer takes the count to a great negative number.
async fn readers_and_writers_of_several_processes_all_get_their_turns(stage: Stage) {
    const ALONE: i64 = -1_000_000;
    let inside = Arc::new(AtomicI64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locks = stage.client().await;
        for task in 0..4 {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    if task == 0 {
                        let guard = held(writer(&locks)).await;
                        let before = inside.fetch_add(ALONE, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(ALONE, Ordering::SeqCst);
                        assert!(before == 0 || !guard.is_valid(), "a writer beside {before}");
                        guard.release().await.unwrap();
                    } else {
                        let guard = held(reader(&locks)).await;
                        let before = inside.fetch_add(1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        assert!(before >= 0 || !guard.is_valid(), "a reader beside a writer");
                        guard.release().await.unwrap();
                    }
                }
            }));
        }
    }
    for task in tasks {
        let done = tokio::time::timeout(Duration::from_secs(60), task).await;
        done.expect("some task starves").unwrap();
    }
    assert!(soon(async || stage.is_clean("n").await).await);
}
