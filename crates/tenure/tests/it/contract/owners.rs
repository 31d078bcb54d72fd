//! Reentrancy, by owner and by thread.

use tenure::{ErrorKind, Released, Unordered};

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    an_owner_re_enters_its_lock,
    guards_of_a_chain_may_go_in_any_order,
    another_owner_waits,
    other_options_are_refused_inside_a_chain,
    re_entering_a_lost_lease_is_an_error,
    an_owner_that_asks_twice_at_once_shares_one_lease,
    a_lease_that_an_owner_waited_for_ends_with_its_guard,
    a_thread_re_enters_its_lock,
    a_lock_that_threads_share_excludes_them,
    a_thread_re_enters_what_it_adopted,
}

async fn an_owner_re_enters_its_lock(stage: Stage) {
    let a = stage.client().await;
    let owner = a.owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    let before = a.stats();
    let inner = owner.lock("n").acquire().await.unwrap();
    let tried = owner
        .clone()
        .lock("n")
        .try_acquire()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(a.stats().acquired, before.acquired, "no round trip");
    assert_eq!(outer.fence(), inner.fence());
    assert_eq!(outer.lease_id(), tried.lease_id());
    assert_eq!(inner.release().await.unwrap(), Released::WasHeld);
    assert!(outer.is_valid(), "the inner release frees nothing");
    assert!(a.lock("n").try_acquire().await.unwrap().is_none());
}

async fn guards_of_a_chain_may_go_in_any_order(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let owner = a.owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    let inner = owner.lock("n").acquire().await.unwrap();
    drop(outer);
    tokio::time::sleep(ms(50)).await;
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    assert_eq!(inner.release().await.unwrap(), Released::WasHeld);
    assert!(b.lock("n").try_acquire().await.unwrap().is_some());
}

async fn another_owner_waits(stage: Stage) {
    let a = stage.client().await;
    let (one, other) = (a.owner(), a.owner());
    let guard = one.lock("n").acquire().await.unwrap();
    assert!(other.lock("n").try_acquire().await.unwrap().is_none());
    assert!(
        one.lock("m").try_acquire().await.unwrap().is_some(),
        "names are apart"
    );
    guard.release().await.unwrap();
    assert!(other.lock("n").try_acquire().await.unwrap().is_some());
}

async fn other_options_are_refused_inside_a_chain(stage: Stage) {
    let owner = stage.client().await.owner();
    let _outer = owner.lock("n").ttl(ms(5_000)).acquire().await.unwrap();
    for lock in [
        owner.lock("n").ttl(ms(6_000)),
        owner.lock("n"),
        owner.lock("n").ttl(ms(5_000)).no_renewal(),
        owner.lock("n").ttl(ms(5_000)).max_hold(ms(100)),
    ] {
        assert_eq!(
            lock.acquire().await.unwrap_err().kind(),
            ErrorKind::Mismatch
        );
    }
    assert!(owner.lock("n").ttl(ms(5_000)).acquire().await.is_ok());
}

async fn re_entering_a_lost_lease_is_an_error(stage: Stage) {
    let owner = stage.client().await.owner();
    let lock = owner.lock("n").ttl(ms(300));
    let outer = lock.acquire().await.unwrap();
    stage.delete_lock("n").await;
    outer.lost().await;
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(
        lock.try_acquire().await.unwrap_err().kind(),
        ErrorKind::Lost
    );
    drop(outer);
    assert!(
        lock.acquire().await.is_ok(),
        "once the section is over, it may begin anew"
    );
}

async fn an_owner_that_asks_twice_at_once_shares_one_lease(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let owner = a.owner();
    let other = b.lock("n").acquire().await.unwrap();
    let lock = owner.lock("n");
    let both = tokio::spawn(async move { tokio::join!(lock.acquire(), lock.acquire()) });
    tokio::time::sleep(ms(50)).await;
    other.release().await.unwrap();
    let (one, two) = both.await.unwrap();
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.lease_id(), two.lease_id());
    drop(one);
    drop(two);
    assert!(soon(async || b.lock("n").try_acquire().await.unwrap().is_some()).await);
}

/// Of one owner, several tasks of which each waits for the others: the next one does not find the lease
/// of the one before.
async fn a_lease_that_an_owner_waited_for_ends_with_its_guard(stage: Stage) {
    let client = stage.client().await;
    let (owner, other) = (client.owner(), client.owner());
    let turns = async |lock: tenure::Lock<Unordered>| {
        let mut fences = Vec::new();
        for _ in 0..40 {
            let guard = lock.acquire().await.unwrap();
            fences.push(guard.fence());
            assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        }
        fences
    };
    let (mut fences, more) = tokio::join!(turns(owner.lock("n")), turns(other.lock("n")));
    fences.extend(more);
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 80, "a released lease was entered again");
}

async fn a_thread_re_enters_its_lock(stage: Stage) {
    let builder = stage.builder();
    let thread = std::thread::spawn(move || {
        let tenure = builder.connect_blocking().unwrap();
        let outer = tenure.lock("n").acquire().unwrap();
        let inner = tenure.lock("n").acquire().unwrap();
        assert_eq!(outer.fence(), inner.fence());
        let other = tenure.clone();
        let on_other_thread =
            std::thread::spawn(move || other.lock("n").try_acquire().unwrap().is_some());
        assert!(
            !on_other_thread.join().unwrap(),
            "another thread is another owner"
        );
        drop(outer);
        assert_eq!(inner.release().unwrap(), Released::WasHeld);
        assert!(tenure.lock("n").try_acquire().unwrap().is_some());
    });
    tokio::task::spawn_blocking(|| thread.join().unwrap())
        .await
        .unwrap();
}

/// Naming a lock is not owning it: the thread that acquires is the owner.
async fn a_lock_that_threads_share_excludes_them(stage: Stage) {
    let builder = stage.builder();
    let threads = move || {
        let tenure = builder.connect_blocking().unwrap();
        let lock = tenure.lock("n");
        let guard = lock.acquire().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock.try_acquire().unwrap().is_some());
            assert!(!other.join().unwrap(), "two threads hold it at once");
        });
        assert!(lock.try_acquire().unwrap().is_some(), "this one may");
        guard.release().unwrap();
    };
    tokio::task::spawn_blocking(threads).await.unwrap();
}

async fn a_thread_re_enters_what_it_adopted(stage: Stage) {
    let builder = stage.builder();
    let thread = move || {
        let tenure = builder.connect_blocking().unwrap();
        let lease = tenure.lock("n").acquire().unwrap().detach().unwrap();
        let guard = tenure.adopt(&lease).unwrap();
        let nested = tenure.lock("n").wait(ms(500)).acquire().unwrap();
        assert_eq!(guard.lease_id(), nested.lease_id());
    };
    tokio::task::spawn_blocking(thread).await.unwrap();
}
