//! Fair locks: every caller has a place of its own, and the first living one is next.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{ErrorKind, Guard, Lock, Tenure};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    native:
    callers_of_several_processes_are_served_in_order_of_arrival,
    many_callers_of_one_process_are_served_in_order,
    after_a_crash_of_the_holder_the_first_waiter_is_next,
    who_tries_once_does_not_pass_those_who_wait,
    a_fair_caller_that_gives_up_leaves_its_place,
    a_fair_caller_that_is_cancelled_leaves_its_place,
    a_fair_caller_is_told_who_holds_the_lock,
    a_shutdown_gives_up_every_place,
    every_fair_caller_is_counted_as_a_waiter,
    fences_of_fair_holders_grow,
    a_fair_lock_excludes_plain_and_shared_ones,
    a_fair_caller_is_not_passed_by_a_hand_off,
    plain_and_fair_callers_are_all_served,
    a_fair_lock_has_metadata_and_may_be_re_entered,
    a_fair_lock_cannot_be_shared,
}

/// Longer than a waiter that hears nothing sleeps on its own.
const LIMIT: Duration = ms(30_000);

async fn client(stage: &Stage) -> Tenure {
    Tenure::connect(stage.url()).await.unwrap()
}

/// What the callers of a test did, in order.
type Order = Arc<Mutex<Vec<usize>>>;

/// Starts to wait for the lock, and returns when the store has the caller in its queue. It releases the
/// lock when it has noted its number.
async fn waiting(client: &Tenure, lock: Lock, number: usize, order: &Order) -> JoinHandle<()> {
    let (busy, order) = (client.stats().busy, Arc::clone(order));
    let waiter = tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        order.lock().unwrap().push(number);
        guard.release().await.unwrap();
    });
    // Who is refused a second time has joined the queue in the same step.
    let is_queued = soon(async || client.stats().busy >= busy + 2).await;
    assert!(is_queued, "it does not wait");
    waiter
}

async fn all_done(waiters: Vec<JoinHandle<()>>) {
    for waiter in waiters {
        timeout(LIMIT, waiter).await.expect("in time").unwrap();
    }
}

async fn callers_of_several_processes_are_served_in_order_of_arrival(stage: Stage) {
    let clients = [client(&stage).await, client(&stage).await];
    let holder = clients[0].lock("n").fair().acquire().await.unwrap();
    let (order, mut waiters) = (Order::default(), Vec::new());
    // Two of a process, then two of the other, so that their order is not that of the processes.
    for (number, of) in [0, 0, 1, 1, 0, 1].into_iter().enumerate() {
        let lock = clients[of].lock("n").fair();
        waiters.push(waiting(&clients[of], lock, number, &order).await);
    }
    holder.release().await.unwrap();
    all_done(waiters).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(stage.is_clean("n").await);
}

async fn many_callers_of_one_process_are_served_in_order(stage: Stage) {
    let (client, other) = (client(&stage).await, client(&stage).await);
    let holder = other.lock("n").acquire().await.unwrap();
    let (order, mut waiters) = (Order::default(), Vec::new());
    for number in 0..20 {
        let lock = client.lock("n").fair();
        waiters.push(waiting(&client, lock, number, &order).await);
    }
    holder.release().await.unwrap();
    all_done(waiters).await;
    assert!(order.lock().unwrap().is_sorted(), "{order:?}");
}

/// Whoever notices first that a holder has died does not get the lock.
async fn after_a_crash_of_the_holder_the_first_waiter_is_next(stage: Stage) {
    let clients = [client(&stage).await, client(&stage).await];
    let brief = clients[0].lock("n").ttl(ms(3_000)).no_renewal();
    let dead = brief.acquire().await.unwrap();
    let (order, mut waiters) = (Order::default(), Vec::new());
    for number in 0..3 {
        let lock = clients[1].lock("n").fair();
        waiters.push(waiting(&clients[1], lock, number, &order).await);
    }
    let eager = clients[0].lock("n").fair();
    let newcomer = async {
        loop {
            if let Some(guard) = eager.try_acquire().await.unwrap() {
                order.lock().unwrap().push(99);
                break guard;
            }
            tokio::time::sleep(ms(1)).await;
        }
    };
    let guard = timeout(LIMIT, newcomer).await.expect("in time");
    assert!(!dead.is_valid());
    guard.release().await.unwrap();
    all_done(waiters).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 99]);
}

async fn who_tries_once_does_not_pass_those_who_wait(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let brief = a.lock("n").ttl(ms(2_000)).no_renewal();
    let _dead = brief.acquire().await.unwrap();
    let lock = b.lock("n").fair();
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    assert!(soon(async || b.stats().busy >= 2).await);
    // Until the waiter has it, and after that.
    while !waiter.is_finished() {
        assert!(a.lock("n").fair().try_acquire().await.unwrap().is_none());
    }
    let guard = waiter.await.unwrap();
    assert!(a.lock("n").fair().try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(a.lock("n").fair().try_acquire().await.unwrap().is_some());
}

async fn a_fair_caller_that_gives_up_leaves_its_place(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let holder = a.lock("n").fair().acquire().await.unwrap();
    let impatient = b.lock("n").fair().wait(ms(200));
    let giving_up = tokio::spawn(async move { impatient.acquire().await.unwrap_err() });
    assert!(soon(async || b.stats().busy >= 2).await);
    let (order, lock) = (Order::default(), b.lock("n").fair());
    let patient = waiting(&b, lock, 7, &order).await;
    let error = timeout(LIMIT, giving_up).await.unwrap().unwrap();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    holder.release().await.unwrap();
    all_done(vec![patient]).await;
    assert!(stage.is_clean("n").await);
}

async fn a_fair_caller_that_is_cancelled_leaves_its_place(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let holder = a.lock("n").fair().acquire().await.unwrap();
    let order = Order::default();
    let gone = waiting(&b, b.lock("n").fair(), 0, &order).await;
    let next = waiting(&b, b.lock("n").fair(), 1, &order).await;
    gone.abort();
    let _ = gone.await;
    holder.release().await.unwrap();
    all_done(vec![next]).await;
    assert_eq!(*order.lock().unwrap(), [1]);
    assert!(stage.is_clean("n").await);
}

async fn a_fair_caller_is_told_who_holds_the_lock(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let holder = a.lock("n").fair().acquire().await.unwrap();
    let error = b.lock("n").fair().wait(ms(50)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let holds = error.holder().map(|holder| holder.lease.clone());
    assert_eq!(holds.as_ref(), Some(holder.lease_id()));
}

async fn a_shutdown_gives_up_every_place(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let holder = a.lock("n").fair().acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let (busy, lock) = (b.stats().busy, b.lock("n").fair());
        waiters.push(tokio::spawn(async move { lock.acquire().await.map(drop) }));
        assert!(soon(async || b.stats().busy >= busy + 2).await);
    }
    b.shutdown(LIMIT).await;
    for waiter in waiters {
        let error = timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    holder.release().await.unwrap();
    assert!(stage.is_clean("n").await);
    assert!(a.lock("n").fair().try_acquire().await.unwrap().is_some());
}

async fn every_fair_caller_is_counted_as_a_waiter(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let holder = a.lock("n").fair().acquire().await.unwrap();
    let (order, mut waiters) = (Order::default(), Vec::new());
    for number in 0..3 {
        waiters.push(waiting(&b, b.lock("n").fair(), number, &order).await);
    }
    let is_counted = async || {
        let listed = a.list(|_| true).await.unwrap().locks;
        listed.iter().map(tenure::Listed::waiting).sum::<u64>() == 3
    };
    assert!(soon(is_counted).await, "{:?}", a.list(|_| true).await);
    holder.release().await.unwrap();
    all_done(waiters).await;
}

async fn fences_of_fair_holders_grow(stage: Stage) {
    let client = client(&stage).await;
    let holder = client.lock("n").fair().acquire().await.unwrap();
    let fences = Arc::new(Mutex::new(vec![holder.fence().get()]));
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let (busy, lock) = (client.stats().busy, client.lock("n").fair());
        let fences = Arc::clone(&fences);
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            fences.lock().unwrap().push(guard.fence().get());
        }));
        assert!(soon(async || client.stats().busy >= busy + 2).await);
    }
    holder.release().await.unwrap();
    all_done(waiters).await;
    let fences = fences.lock().unwrap();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(client.stats().handed_off, 0);
}

async fn a_fair_lock_excludes_plain_and_shared_ones(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let fair = a.lock("n").fair().acquire().await.unwrap();
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    assert!(b.lock("n").shared().try_acquire().await.unwrap().is_none());
    fair.release().await.unwrap();
    let reader = b.lock("n").shared().acquire().await.unwrap();
    assert!(a.lock("n").fair().try_acquire().await.unwrap().is_none());
    let order = Order::default();
    let waiter = waiting(&a, a.lock("n").fair(), 0, &order).await;
    // It waits to hold the lock alone, so later readers wait for it, those of its process too.
    for client in [&a, &b] {
        let late = client.owner();
        assert!(
            late.lock("n")
                .shared()
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
    }
    reader.release().await.unwrap();
    all_done(vec![waiter]).await;
    let permit = a.semaphore("permits", 2).acquire().await.unwrap();
    let error = b.lock("permits").fair().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
    drop(permit);
}

/// A plain holder whose process has others that wait would pass the lock to them.
async fn a_fair_caller_is_not_passed_by_a_hand_off(stage: Stage) {
    let client = Tenure::builder(stage.url()).hand_off_time(ms(600_000));
    let client = client.connect().await.unwrap();
    // A lease that may be kept has fences for the next holders from the beginning.
    let plain = client.lock("n").keep(ms(100));
    let holder = plain.acquire().await.unwrap();
    let (order, mut waiters) = (Order::default(), Vec::new());
    waiters.push(waiting(&client, client.lock("n").fair(), 0, &order).await);
    let busy = client.stats().busy;
    for number in 1..4 {
        let (lock, order) = (plain.clone(), Arc::clone(&order));
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
    }
    // One of them has asked the store for all.
    assert!(soon(async || client.stats().busy > busy).await);
    holder.release().await.unwrap();
    all_done(waiters).await;
    assert_eq!(order.lock().unwrap()[0], 0);
}

async fn plain_and_fair_callers_are_all_served(stage: Stage) {
    let clients = [client(&stage).await, client(&stage).await];
    let counter = Arc::new(Mutex::new((0, 0)));
    let work = |lock: Lock| {
        let counter = Arc::clone(&counter);
        tokio::spawn(async move {
            for _ in 0..20 {
                let guard: Guard = lock.acquire().await.unwrap();
                let seen = counter.lock().unwrap().0;
                tokio::task::yield_now().await;
                *counter.lock().unwrap() = (seen + 1, guard.fence().get());
                drop(guard);
            }
        })
    };
    let mut workers = Vec::new();
    for client in &clients {
        for _ in 0..2 {
            workers.extend([work(client.lock("n")), work(client.lock("n").fair())]);
        }
    }
    all_done(workers).await;
    assert_eq!(counter.lock().unwrap().0, 8 * 20);
}

async fn a_fair_lock_has_metadata_and_may_be_re_entered(stage: Stage) {
    let client = client(&stage).await;
    let owner = client.owner();
    let lock = owner.lock("n").fair().meta("job", "7");
    let guard = lock.acquire().await.unwrap();
    let again = lock.acquire().await.unwrap();
    assert_eq!(again.fence(), guard.fence());
    let holder = client.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.meta["job"], "7");
    drop((again, guard));
    assert!(soon(async || !client.lock("n").is_locked().await.unwrap()).await);
    assert!(stage.is_clean("n").await);
}

async fn a_fair_lock_cannot_be_shared(stage: Stage) {
    let client = client(&stage).await;
    for lock in [
        client.lock("n").fair().shared(),
        client.lock("n").shared().fair(),
    ] {
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSetting);
        let text = error.to_string();
        assert!(text.contains("remove `fair` or `shared`"), "{text}");
    }
}
