//! H47 to H49: whose lock it is.

use tenure::{ErrorKind, LostReason, Released, Tenure};
use tenure_testkit::RedisServer;

use crate::stage::ms;
use crate::verdict::{check_refused, fence_of};

/// The key is gone between the outer and the inner acquire. Before the loss is known the inner one
/// shares the lease it would lose; afterwards it fails. It never gets a fresh lease.
#[tenure_testkit::test]
async fn h47_reentering_a_lost_lock_never_takes_it_anew() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let owner = tenure.owner();
    let lock = owner.lock("n").ttl(ms(900));
    let outer = lock.acquire().await.unwrap();
    server.client().command(&["DEL", "n"]);
    let unaware = lock.acquire().await.unwrap();
    assert_eq!(unaware.lease_id(), outer.lease_id());
    assert_eq!(outer.lost().await, LostReason::Gone);
    assert!(!unaware.is_valid());
    for result in [
        lock.acquire().await,
        lock.clone().wait(ms(500)).acquire().await,
        lock.try_acquire().await.map(Option::unwrap),
    ] {
        check_refused(result, ErrorKind::Lost, &["`n`", "no longer held"]);
    }
    assert!(server.client().command(&["GET", "n"]).is_nil());
    // Only when the whole chain has let go may the owner begin anew.
    drop(unaware);
    assert_eq!(outer.release().await.unwrap(), Released::AlreadyGone);
    let anew = lock.acquire().await.unwrap();
    assert!(anew.is_valid());
}

#[tenure_testkit::test]
async fn h48_reentering_mints_no_fence() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let owner = tenure.owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    server.reset_stats();
    let mut chain = Vec::new();
    for _ in 0..10 {
        chain.push(owner.lock("n").acquire().await.unwrap());
        chain.push(owner.lock("n").try_acquire().await.unwrap().unwrap());
    }
    assert!(chain.iter().all(|guard| guard.fence() == outer.fence()));
    assert_eq!(fence_of(&server, "n"), Some(outer.fence().get()));
    assert_eq!(server.command_calls("evalsha"), 0, "no round trip either");
}

/// Neither the thread nor the task counts: only the owner that somebody passes on.
#[tenure_testkit::test(flavor = "current_thread")]
async fn h49_two_owners_on_one_thread_exclude_each_other() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let (one, two) = (tenure.owner(), tenure.owner());
    let guard = one.lock("n").acquire().await.unwrap();
    assert!(two.lock("n").try_acquire().await.unwrap().is_none());
    assert!(tenure.lock("n").try_acquire().await.unwrap().is_none());
    assert!(one.lock("n").try_acquire().await.unwrap().is_some());
    drop(guard);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h49_an_owner_and_its_guard_may_move_between_threads() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let owner = tenure.owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    let lease = outer.lease_id().clone();
    let elsewhere = owner.clone();
    let inner = std::thread::spawn(move || {
        let lock = elsewhere.lock("n");
        let inner = tenure::blocking::block_on(lock.try_acquire());
        inner.unwrap().unwrap()
    });
    let inner = inner.join().unwrap();
    assert_eq!(*inner.lease_id(), lease);
    drop(outer);
    assert!(tenure.lock("n").try_acquire().await.unwrap().is_none());
    let released = tokio::spawn(inner.release()).await.unwrap();
    assert_eq!(released.unwrap(), Released::WasHeld);
    assert!(tenure.lock("n").try_acquire().await.unwrap().is_some());
}
