//! Who holds what, as clients say it themselves.

use tenure::Released;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    long_holds_and_waiters_are_listed,
    callers_that_went_away_are_not_counted,
    short_holds_are_not_listed,
    a_record_ends_with_what_it_lists,
    a_shut_down_client_is_no_longer_listed,
    locks_are_listed_with_holder_and_waiters,
    only_wanted_locks_are_listed_and_by_name,
    a_lease_that_is_gone_is_not_listed,
    a_lock_that_is_only_waited_for_is_listed,
    a_lease_that_was_given_away_is_listed_until_it_ends,
    a_client_that_ended_is_spoken_of_for_the_leases_it_gave_away,
}

async fn long_holds_and_waiters_are_listed(stage: Stage) {
    let builder = stage.builder().name("web-3").about("command", "backup.sh");
    let a = builder.connect().await.unwrap();
    let b = stage.client().await;
    let guard = a.lock("a lock").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let b = b.clone();
        async move { b.lock("a lock").acquire().await }
    });
    tokio::time::sleep(ms(1_300)).await;
    let clients = b.clients().await.unwrap();
    let record = clients.iter().find(|client| client.id == a.id()).unwrap();
    assert_eq!(record.name.as_deref(), Some("web-3"));
    assert_eq!(record.about["command"], "backup.sh");
    assert_eq!(record.pid, std::process::id());
    assert!(!record.host.is_empty());
    let lease = &record.leases[0];
    assert_eq!(lease.name.as_str(), "a lock");
    assert_eq!(&lease.lease, guard.lease_id());
    assert_eq!(lease.fence, guard.fence());
    let waiters = clients.iter().find(|client| client.id == b.id()).unwrap();
    assert_eq!(waiters.waiting["a lock"], 1);
    waiting.abort();
}

async fn callers_that_went_away_are_not_counted(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let _guard = a.lock("n").acquire().await.unwrap();
    let wait = |b: tenure::Locks| tokio::spawn(async move { b.lock("n").acquire().await });
    let waiting: Vec<_> = (0..5).map(|_| wait(b.clone())).collect();
    let count = async || {
        let clients = a.clients().await.unwrap();
        let record = clients.into_iter().find(|client| client.id == b.id());
        record.and_then(|record| record.waiting.get("n").copied())
    };
    assert!(soon(async || count().await == Some(5)).await);
    // One of them is the head of the line, the others stand behind it.
    for waiter in &waiting[1..4] {
        waiter.abort();
    }
    assert!(
        soon(async || count().await == Some(2)).await,
        "{:?}",
        count().await
    );
    waiting[0].abort();
    waiting[4].abort();
    assert!(soon(async || count().await.is_none()).await);
}

async fn short_holds_are_not_listed(stage: Stage) {
    let a = stage.client().await;
    for _ in 0..20 {
        a.lock("n")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    tokio::time::sleep(ms(700)).await;
    assert_eq!(a.stats().records_written, 0);
    assert!(a.clients().await.unwrap().is_empty());
}

async fn a_record_ends_with_what_it_lists(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    assert!(soon(async || a.clients().await.unwrap().len() == 1).await);
    guard.release().await.unwrap();
    assert!(soon(async || a.clients().await.unwrap().is_empty()).await);
}

async fn a_shut_down_client_is_no_longer_listed(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let _guard = a.lock("n").acquire().await.unwrap();
    assert!(soon(async || b.clients().await.unwrap().len() == 1).await);
    a.shutdown(ms(20_000)).await;
    // At once: a program that ends now leaves nothing behind.
    assert!(b.clients().await.unwrap().is_empty());
}

async fn locks_are_listed_with_holder_and_waiters(stage: Stage) {
    let builder = stage.builder().name("web-3").about("command", "backup.sh");
    let a = builder.connect().await.unwrap();
    let b = stage.client().await;
    let lock = a.lock("a lock").ttl(ms(20_000)).meta("job", "7");
    let guard = lock.acquire().await.unwrap();
    let wait = |b: tenure::Locks| tokio::spawn(async move { b.lock("a lock").acquire().await });
    let waiting = [wait(b.clone()), wait(b.clone())];
    let first = async || b.list(|_| true).await.unwrap().locks.into_iter().next();
    let is_whole = |lock: &tenure::Listed| lock.held_for.is_some() && lock.waiting() == 2;
    assert!(
        soon(async || first().await.is_some_and(|lock| is_whole(&lock))).await,
        "{:?}",
        first().await
    );
    let lock = first().await.unwrap();
    assert_eq!(lock.name.as_str(), "a lock");
    assert_eq!(lock.lease.as_ref(), Some(guard.lease_id()));
    assert_eq!(lock.fence, Some(guard.fence()));
    assert_eq!(lock.ttl, Some(ms(20_000)));
    assert!(lock.remaining.is_some_and(|left| left <= ms(20_000)));
    assert_eq!(lock.meta["job"], "7");
    let client = lock.client.as_ref().unwrap();
    assert_eq!((client.id, client.name.as_deref()), (a.id(), Some("web-3")));
    assert_eq!(client.about["command"], "backup.sh");
    assert_eq!(lock.waiters.len(), 1);
    assert_eq!(lock.waiters[0].id, b.id());
    for waiting in waiting {
        waiting.abort();
    }
}

async fn only_wanted_locks_are_listed_and_by_name(stage: Stage) {
    let a = stage.client().await;
    let mut guards = Vec::new();
    // More than are asked for in one piece.
    for number in 0..300 {
        guards.push(a.lock(format!("n{number:03}")).acquire().await.unwrap());
    }
    guards.push(a.lock("other").acquire().await.unwrap());
    let count = async || a.list(|_| true).await.unwrap().locks.len();
    assert!(
        soon(async || count().await == 301).await,
        "{}",
        count().await
    );
    let listed = a.list(|name| name.as_str().starts_with('n')).await.unwrap();
    let names: Vec<String> = listed
        .locks
        .iter()
        .map(|lock| lock.name.to_string())
        .collect();
    let expected: Vec<String> = (0..300).map(|number| format!("n{number:03}")).collect();
    assert_eq!(names, expected);
    for (lock, guard) in listed.locks.iter().zip(&guards) {
        assert_eq!(lock.lease.as_ref(), Some(guard.lease_id()));
    }
    assert_eq!(listed.more_leases, 0);
}

async fn a_lease_that_is_gone_is_not_listed(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    // Never renewed: its client says for a while that it holds it.
    let _guard = a
        .lock("n")
        .ttl(ms(20_000))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    let count = async || b.list(|_| true).await.unwrap().locks.len();
    assert!(soon(async || count().await == 1).await);
    stage.delete_lock("n").await;
    // At once, whatever the record says by now.
    assert_eq!(count().await, 0);
}

async fn a_lock_that_is_only_waited_for_is_listed(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(20_000)).acquire().await.unwrap();
    let lease = guard.detach().unwrap();
    let waiting = tokio::spawn({
        let b = b.clone();
        async move { b.lock("n").acquire().await }
    });
    let listed = async || b.list(|_| true).await.unwrap().locks.pop();
    let is_waited_for = async || listed().await.is_some_and(|lock| lock.waiting() == 1);
    assert!(soon(is_waited_for).await);
    let lock = listed().await.unwrap();
    assert_eq!(lock.lease.as_ref(), Some(lease.id()));
    assert_eq!(lock.ttl, Some(ms(20_000)));
    assert!(lock.remaining.is_some());
    assert_eq!(lock.waiting(), 1);
    waiting.abort();
}

async fn a_lease_that_was_given_away_is_listed_until_it_ends(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(20_000)).acquire().await.unwrap();
    let lease = guard.detach().unwrap();
    let listed = async || b.list(|_| true).await.unwrap().locks.pop();
    // The nodes of a Redlock learn of it and of its client one after the other, and a list asks a
    // majority.
    let listed_soon = async || {
        let mut found = None;
        let is_found = soon(async || {
            found = listed().await.filter(|lock| lock.client.is_some());
            found.is_some()
        });
        assert!(is_found.await);
        found.unwrap()
    };
    let lock = listed_soon().await;
    assert_eq!(lock.lease.as_ref(), Some(lease.id()));
    assert_eq!(
        (lock.fence, lock.ttl),
        (Some(lease.fence()), Some(lease.ttl()))
    );
    assert_eq!(lock.client.unwrap().id, a.id());
    // Another client keeps it, and then lists it too.
    b.renew(&lease, ms(25_000)).await.unwrap();
    let spoken = async || {
        let clients = b.clients().await.unwrap();
        clients.iter().filter(|it| !it.leases.is_empty()).count()
    };
    assert!(soon(async || spoken().await == 2).await);
    assert_eq!(listed_soon().await.fence, Some(lease.fence()));
    // The client that detached it ends; the lease does not.
    assert_eq!(a.shutdown(ms(1_000)).await, []);
    assert_eq!(listed_soon().await.lease.as_ref(), Some(lease.id()));
    assert_eq!(b.release(&lease).await.unwrap(), Released::WasHeld);
    assert!(listed().await.is_none());
    assert_eq!(b.release(&lease).await.unwrap(), Released::AlreadyGone);
}

async fn a_client_that_ended_is_spoken_of_for_the_leases_it_gave_away(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(20_000)).acquire().await.unwrap();
    let lease = guard.detach().unwrap();
    let other = a.lock("other").acquire().await.unwrap();
    a.shutdown(ms(1_000)).await;
    drop(other);
    let listed = b.list(|_| true).await.unwrap().locks;
    let leases: Vec<_> = listed.iter().map(|lock| lock.lease.as_ref()).collect();
    assert_eq!(leases, [Some(lease.id())]);
    b.release(&lease).await.unwrap();
    assert!(b.list(|_| true).await.unwrap().locks.is_empty());
}
