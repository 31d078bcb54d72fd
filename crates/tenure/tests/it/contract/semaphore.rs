//! Semaphores: at most so many permits, each in a slot with a growing fence.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{ErrorKind, LostReason, Permit, Released, Semaphore, Tenure};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    native:
    no_more_permits_are_held_than_the_limit,
    fences_of_permits_grow,
    several_permits_are_granted_together_or_not_at_all,
    a_waiter_gets_a_released_permit,
    waiters_get_permits_in_order,
    a_waiter_for_several_is_not_overtaken,
    a_waiter_that_may_overtake_does,
    a_waiter_for_several_that_gives_up_lets_others_in,
    a_permit_that_is_not_renewed_ends_with_its_lease,
    permits_are_renewed,
    a_permit_that_is_lost_is_told_at_its_renewal,
    another_limit_is_refused,
    a_greater_limit_lets_waiters_in,
    a_smaller_limit_drains,
    a_semaphore_is_not_a_lock,
    a_cancelled_acquire_of_a_permit_leaves_nothing,
    a_shutdown_releases_permits,
    permits_are_listed,
    work_with_a_permit_is_cancelled_when_it_is_lost,
    permits_of_several_processes_are_never_too_many,
}

/// Longer than a waiter that hears nothing sleeps on its own.
const LIMIT: Duration = ms(30_000);

async fn client(stage: &Stage) -> Tenure {
    Tenure::connect(stage.url()).await.unwrap()
}

async fn held(semaphore: Semaphore, count: u32) -> Permit {
    semaphore.acquire_many(count).await.unwrap()
}

/// Starts to wait for permits, and returns when the store has the waiter in its queue.
async fn waiting(client: &Tenure, semaphore: Semaphore, count: u32) -> JoinHandle<Permit> {
    let busy = client.stats().busy;
    let waiter = tokio::spawn(held(semaphore, count));
    // Who is refused a second time has joined the queue in the same step.
    let is_queued = soon(async || client.stats().busy >= busy + 2).await;
    assert!(is_queued, "it does not wait");
    waiter
}

async fn done(waiter: JoinHandle<Permit>) -> Permit {
    let permit = timeout(LIMIT, waiter).await.expect("a permit in time");
    permit.unwrap()
}

async fn no_more_permits_are_held_than_the_limit(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let first = a.semaphore("n", 3).acquire().await.unwrap();
    let second = b.semaphore("n", 3).acquire().await.unwrap();
    let third = a.semaphore("n", 3).acquire().await.unwrap();
    assert_eq!([first.slot(), second.slot(), third.slot()], [0, 1, 2]);
    assert!(b.semaphore("n", 3).try_acquire().await.unwrap().is_none());

    assert_eq!(second.release().await.unwrap(), Released::WasHeld);
    let again = b.semaphore("n", 3).try_acquire().await.unwrap().unwrap();
    assert_eq!(again.slots(), [1]);
    let limited = b.semaphore("n", 3).wait(ms(50));
    let error = limited.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let text = error.to_string();
    assert!(text.contains("all permits of `3`"), "{text}");
    drop((first, third, again));
}

async fn fences_of_permits_grow(stage: Stage) {
    let client = client(&stage).await;
    let semaphore = client.semaphore("n", 2);
    let mut last = 0;
    for _ in 0..3 {
        let one = semaphore.acquire().await.unwrap();
        let two = semaphore.acquire().await.unwrap();
        assert!(last < one.fence().get() && one.fence() < two.fence());
        last = two.fence().get();
        one.release().await.unwrap();
        two.release().await.unwrap();
    }
}

async fn several_permits_are_granted_together_or_not_at_all(stage: Stage) {
    let client = client(&stage).await;
    let semaphore = client.semaphore("n", 4);
    let three = semaphore.acquire_many(3).await.unwrap();
    assert_eq!(three.slots(), [0, 1, 2]);
    assert!(semaphore.try_acquire_many(2).await.unwrap().is_none());
    let one = semaphore.try_acquire().await.unwrap().unwrap();
    assert_eq!(one.slot(), 3);
    three.release().await.unwrap();
    let all = semaphore.try_acquire_many(4).await.unwrap();
    assert!(all.is_none(), "one is still held");
    one.release().await.unwrap();
    let all = semaphore.acquire_many(4).await.unwrap();
    let slots: BTreeSet<u32> = all.slots().iter().copied().collect();
    assert_eq!(slots, BTreeSet::from([0, 1, 2, 3]));
    all.release().await.unwrap();

    for count in [0, 5] {
        let error = semaphore.acquire_many(count).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{error}");
    }
    let error = client.semaphore("n", 0).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{error}");
}

async fn a_waiter_gets_a_released_permit(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let first = a.semaphore("n", 1).acquire().await.unwrap();
    let waiter = waiting(&b, b.semaphore("n", 1), 1).await;
    let fence = first.fence();
    first.release().await.unwrap();
    let second = done(waiter).await;
    assert_eq!(second.slot(), 0);
    assert!(second.fence() > fence);
    assert!(second.is_valid());
}

async fn waiters_get_permits_in_order(stage: Stage) {
    let holder = client(&stage).await;
    let first = holder.semaphore("n", 1).acquire().await.unwrap();
    let mut clients = Vec::new();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let client = client(&stage).await;
        waiters.push(waiting(&client, client.semaphore("n", 1), 1).await);
        clients.push(client);
    }
    let mut permit = first;
    for waiter in waiters {
        let fence = permit.fence();
        permit.release().await.unwrap();
        permit = done(waiter).await;
        assert!(permit.fence() > fence);
    }
}

async fn a_waiter_for_several_is_not_overtaken(stage: Stage) {
    let (a, b, c) = (
        client(&stage).await,
        client(&stage).await,
        client(&stage).await,
    );
    let first = a.semaphore("n", 2).acquire().await.unwrap();
    let wide = waiting(&b, b.semaphore("n", 2), 2).await;
    let late = c.semaphore("n", 2).try_acquire().await.unwrap();
    assert!(late.is_none(), "one permit is free, but another waits");
    let late = waiting(&c, c.semaphore("n", 2), 1).await;
    first.release().await.unwrap();
    let wide = done(wide).await;
    assert_eq!(wide.slots().len(), 2);
    assert!(!late.is_finished());
    wide.release().await.unwrap();
    done(late).await.release().await.unwrap();
}

async fn a_waiter_that_may_overtake_does(stage: Stage) {
    let (a, b, c) = (
        client(&stage).await,
        client(&stage).await,
        client(&stage).await,
    );
    let one = a.semaphore("n", 3).acquire().await.unwrap();
    let two = a.semaphore("n", 3).acquire_many(2).await.unwrap();
    let wide = waiting(&b, b.semaphore("n", 3), 3).await;
    let narrow = waiting(&c, c.semaphore("n", 3).overtake(true), 1).await;
    one.release().await.unwrap();
    let narrow = done(narrow).await;
    assert_eq!(narrow.slot(), 0);
    assert!(!wide.is_finished());
    let at_once = a.semaphore("n", 3).overtake(true);
    two.release().await.unwrap();
    let at_once = at_once.try_acquire().await.unwrap().unwrap();
    at_once.release().await.unwrap();
    narrow.release().await.unwrap();
    assert_eq!(done(wide).await.slots().len(), 3);
}

async fn a_waiter_for_several_that_gives_up_lets_others_in(stage: Stage) {
    let (a, b, c) = (
        client(&stage).await,
        client(&stage).await,
        client(&stage).await,
    );
    let first = a.semaphore("n", 2).acquire().await.unwrap();
    let wide = waiting(&b, b.semaphore("n", 2), 2).await;
    let narrow = waiting(&c, c.semaphore("n", 2), 1).await;
    wide.abort();
    assert_eq!(done(narrow).await.slot(), 1);
    drop(first);
}

async fn a_permit_that_is_not_renewed_ends_with_its_lease(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let brief = a.semaphore("n", 1).ttl(ms(500)).no_renewal();
    let first = brief.acquire().await.unwrap();
    let second = b.semaphore("n", 1).acquire().await.unwrap();
    assert!(!first.is_valid());
    assert!(second.fence() > first.fence());
    assert_eq!(first.lost().await, LostReason::Expired);
    assert_eq!(first.release().await.unwrap(), Released::AlreadyGone);
    assert!(second.is_valid(), "it has the slot of the first");
    assert!(b.semaphore("n", 1).try_acquire().await.unwrap().is_none());
}

async fn permits_are_renewed(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let permit = a.semaphore("n", 1).ttl(ms(1_500)).acquire().await.unwrap();
    let deadline = permit.deadline();
    let is_renewed = soon(async || permit.deadline() > deadline + ms(1_500)).await;
    assert!(is_renewed && permit.is_valid());
    assert!(b.semaphore("n", 1).try_acquire().await.unwrap().is_none());
    assert_eq!(permit.release().await.unwrap(), Released::WasHeld);
}

async fn a_permit_that_is_lost_is_told_at_its_renewal(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let permit = a.semaphore("n", 1).ttl(ms(3_000)).acquire().await.unwrap();
    let forced = b.force_release("n", permit.lease_id()).await.unwrap();
    assert_eq!(forced, Released::WasHeld);
    let reason = timeout(LIMIT, permit.lost()).await.expect("it is told");
    assert!(
        matches!(reason, LostReason::Gone | LostReason::Expired),
        "{reason:?}"
    );
    assert!(!permit.is_valid());
    let forced = b.force_release("n", permit.lease_id()).await.unwrap();
    assert_eq!(forced, Released::AlreadyGone);
}

async fn another_limit_is_refused(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let permit = a.semaphore("n", 2).acquire().await.unwrap();
    let error = b.semaphore("n", 3).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    let text = error.to_string();
    assert!(text.contains("`3`") && text.contains("`2`"), "{text}");
    let error = b.semaphore("n", 3).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    permit.release().await.unwrap();
    let all = a.semaphore("n", 2).try_acquire_many(2).await.unwrap();
    assert!(all.is_some(), "nothing is left of what was refused");
}

async fn a_greater_limit_lets_waiters_in(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let first = a.semaphore("n", 1).acquire().await.unwrap();
    let waiter = waiting(&b, b.semaphore("n", 1), 1).await;
    let resized = a.semaphore("n", 1).resize(2).await.unwrap();
    assert_eq!(resized.limit(), 2);
    // It waits with the old limit, so it is told, and the permit that it was given is free again.
    let refused = timeout(LIMIT, waiter).await.expect("it is told");
    assert!(refused.is_err(), "it goes on with the old limit");
    let second = timeout(LIMIT, resized.acquire()).await.expect("in time");
    assert_eq!(second.unwrap().slot(), 1);
    assert!(first.is_valid());
}

async fn a_smaller_limit_drains(stage: Stage) {
    let client = client(&stage).await;
    let semaphore = client.semaphore("n", 3);
    let permits = [
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    let semaphore = semaphore.resize(1).await.unwrap();
    let [first, second, third] = permits;
    assert!(first.is_valid() && second.is_valid() && third.is_valid());
    first.release().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    second.release().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    third.release().await.unwrap();
    let only = semaphore.try_acquire().await.unwrap().unwrap();
    assert_eq!(only.slot(), 0);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
}

async fn a_semaphore_is_not_a_lock(stage: Stage) {
    let client = client(&stage).await;
    let permit = client.semaphore("n", 2).acquire().await.unwrap();
    for lock in [client.lock("n"), client.lock("n").shared()] {
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
        assert!(error.to_string().contains("a semaphore"), "{error}");
        let error = lock.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
    }
    let error = client.locks(["n", "m"]).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
    assert!(client.lock("m").try_acquire().await.unwrap().is_some());
    permit.release().await.unwrap();

    let guard = client.lock("{other}").acquire().await.unwrap();
    let error = client.semaphore("{other}", 2).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
    assert!(error.to_string().contains("is a lock"), "{error}");
    guard.release().await.unwrap();
}

async fn a_cancelled_acquire_of_a_permit_leaves_nothing(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    for _ in 0..10 {
        let semaphore = a.semaphore("n", 1);
        let acquiring = tokio::spawn(async move { semaphore.acquire().await });
        tokio::task::yield_now().await;
        acquiring.abort();
        let _ = acquiring.await;
        let other = b.semaphore("n", 1);
        let acquired = timeout(LIMIT, other.acquire()).await.expect("it is free");
        acquired.unwrap().release().await.unwrap();
    }
}

async fn a_shutdown_releases_permits(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let permit = a.semaphore("n", 2).acquire_many(2).await.unwrap();
    assert!(a.shutdown(LIMIT).await.is_empty());
    assert!(!permit.is_valid());
    let all = b.semaphore("n", 2).try_acquire_many(2).await.unwrap();
    assert!(all.is_some());
}

async fn permits_are_listed(stage: Stage) {
    let client = client(&stage).await;
    let permit = client.semaphore("n", 5).acquire_many(2).await.unwrap();
    let other = client.semaphore("n", 5).acquire().await.unwrap();
    let holder = client.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.lease.semaphore_limit(), Some(5));
    assert_eq!(holder.readers, 2);
    let leases: BTreeSet<_> = holder.reader_leases.iter().collect();
    assert!(leases.contains(permit.lease_id()) && leases.contains(other.lease_id()));
    assert_eq!(*holder.slots[permit.lease_id()], [0, 1]);
    assert_eq!(*holder.slots[other.lease_id()], [2]);
    permit.release().await.unwrap();
    other.release().await.unwrap();
    let holder = client.lock("n").holder().await.unwrap();
    assert!(holder.is_none(), "{holder:?}");
}

async fn work_with_a_permit_is_cancelled_when_it_is_lost(stage: Stage) {
    let client = client(&stage).await;
    let semaphore = client.semaphore("n", 1).ttl(ms(2_000));
    let slot = semaphore.with(async |permit| permit.slot()).await.unwrap();
    assert_eq!(slot, 0);
    let other = client.clone();
    let work = semaphore.with(async |permit| {
        other.force_release("n", permit.lease_id()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let error = timeout(LIMIT, work).await.expect("cancelled").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}

async fn permits_of_several_processes_are_never_too_many(stage: Stage) {
    const PERMITS: u32 = 3;
    let in_use = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = client(&stage).await;
        for task in 0..3 {
            let (client, in_use) = (client.clone(), Arc::clone(&in_use));
            let count = 1 + task % 2;
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let semaphore = client.semaphore("n", PERMITS);
                    let permit = semaphore.acquire_many(count).await.unwrap();
                    let used = in_use.fetch_add(count, Ordering::SeqCst) + count;
                    assert!(used <= PERMITS, "{used} permits");
                    assert!(permit.slots().iter().all(|slot| *slot < PERMITS));
                    tokio::task::yield_now().await;
                    in_use.fetch_sub(count, Ordering::SeqCst);
                    permit.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        timeout(LIMIT, task).await.expect("its turns").unwrap();
    }
}
