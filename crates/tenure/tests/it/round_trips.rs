//! What an operation costs the server, counted by the server itself.

use tenure::Tenure;
use tenure_testkit::RedisServer;

use crate::stage::{ms, soon};

#[tokio::test]
async fn a_free_lock_is_taken_in_one_round_trip_and_released_in_one() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.reset_stats();
    for _ in 0..10 {
        let guard = tenure.lock("n").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(questions(&server), 20);
    assert_eq!(server.command_calls("eval"), 0);
    assert_eq!(server.command_calls("subscribe"), 0);
    assert_eq!(
        server.command_calls("publish"),
        0,
        "nobody waits, nobody is told"
    );
}

#[tokio::test]
async fn re_entering_costs_nothing() {
    let server = RedisServer::start();
    let owner = Tenure::connect(server.url()).await.unwrap().owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    server.reset_stats();
    for _ in 0..10 {
        let inner = owner.lock("n").acquire().await.unwrap();
        inner.release().await.unwrap();
    }
    assert_eq!(questions(&server), 0);
    drop(outer);
}

#[tokio::test]
async fn a_busy_lock_is_tried_in_one_round_trip() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let _guard = tenure.lock("n").acquire().await.unwrap();
    server.reset_stats();
    for count in 1..=3 {
        assert!(tenure.lock("n").try_acquire().await.unwrap().is_none());
        assert_eq!(questions(&server), count);
    }
    // A lock that is found busy again and again is not written to.
    assert!(server.command_calls("incr") <= 1);
}

#[tokio::test]
async fn a_held_lock_costs_three_renewals_per_ttl() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(600)).acquire().await.unwrap();
    server.reset_stats();
    tokio::time::sleep(ms(900)).await;
    let calls = server.command_calls("evalsha");
    // Four in 900 ms; the record, once the lease is half a second old, costs two more.
    assert!((3..=8).contains(&calls), "{calls}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_released_lock_costs_nothing_more() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let released = tenure.lock("n").ttl(ms(900)).acquire().await.unwrap();
    let dropped = tenure.lock("m").ttl(ms(900)).acquire().await.unwrap();
    drop(dropped);
    released.release().await.unwrap();
    assert!(soon(async || tenure.stats().released == 2).await);
    server.reset_stats();
    // Renewals would be due after a third of the ttl.
    tokio::time::sleep(ms(600)).await;
    assert_eq!(server.command_calls("evalsha"), 0, "renewed in spite of it");
}

/// How often the server was asked: by a script, or by a transaction.
fn questions(server: &RedisServer) -> u64 {
    server.command_calls("evalsha") + server.command_calls("exec")
}
