//! Who holds what, as clients say it themselves.

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    long_holds_and_waiters_are_listed,
    callers_that_went_away_are_not_counted,
    short_holds_are_not_listed,
    a_record_ends_with_what_it_lists,
    a_shut_down_client_is_no_longer_listed,
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
    a.shutdown(ms(2_000)).await;
    // At once: a program that ends now leaves nothing behind.
    assert!(b.clients().await.unwrap().is_empty());
}
