//! H28 to H30: scripts forgotten, servers that are busy or not in charge.

use std::time::Instant;

use tenure::redis::{Client, Command};
use tenure::{Advice, ErrorKind, Released, Standing, Tenure};
use tenure_testkit::{Fsync, RedisServer, eventually};

use crate::stage::{ms, soon};
use crate::verdict::{
    check_error, check_holds, check_refused, check_usable, check_within, refused,
};

#[tenure_testkit::test]
async fn h28_scripts_forgotten_by_the_server_are_sent_again() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.script_flush();
    let guard = tenure.lock("n").ttl(ms(600)).acquire().await.unwrap();
    server.script_flush();
    let deadline = guard.deadline();
    assert!(soon(async || guard.deadline() > deadline).await, "renewed");
    server.script_flush();
    assert!(tenure.lock("n").is_locked().await.unwrap());
    server.script_flush();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert_eq!(tenure.stats().renewals_failed, 0);
}

/// Watched leases are renewed on another connection and in another way.
#[tenure_testkit::test]
async fn h28_a_watched_lease_is_renewed_without_its_script() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(6_000)).acquire().await.unwrap();
    tokio::time::sleep(ms(1_300)).await;
    for _ in 0..2 {
        server.script_flush();
        let deadline = guard.deadline();
        assert!(soon(async || guard.deadline() > deadline).await, "renewed");
    }
    assert_eq!(tenure.stats().renewals_failed, 0);
    // And it is still watched: its loss is known before the next renewal, two seconds later.
    tokio::time::sleep(ms(50)).await;
    let begun = Instant::now();
    server.client().command(&["DEL", "n"]);
    guard.lost().await;
    check_within(begun, ms(1_500));
}

#[tenure_testkit::test]
async fn h28_scripts_are_sent_again_after_a_restart() {
    let server = RedisServer::builder().aof(Fsync::Always).start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(6_000)).acquire().await.unwrap();
    server.restart();
    let deadline = guard.deadline();
    assert!(eventually(ms(5_000), || guard.deadline() > deadline));
    assert_eq!(guard.standing(), Standing::Held);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_usable(&tenure, "n").await;
}

#[tenure_testkit::test]
async fn h29_a_busy_server_is_unavailable_and_then_serves_again() {
    let server = RedisServer::builder()
        .config("busy-reply-threshold", "50")
        .start();
    let builder = Tenure::builder(server.url()).unreachable_after(ms(400));
    let tenure = builder.connect().await.unwrap();
    let guard = tenure.lock("held").ttl(ms(4_500)).acquire().await.unwrap();
    let busy = server.busy_script(20_000);
    let busy_since = Instant::now();
    tokio::time::sleep(ms(300)).await;
    let begun = Instant::now();
    let error = refused(tenure.lock("n").try_acquire().await);
    check_error(&error, ErrorKind::Unavailable, &["busy with a long script"]);
    assert_eq!(error.advice(), Advice::Later);
    let limited = tenure.lock("n").wait(ms(300)).acquire().await;
    check_refused(limited, ErrorKind::Unavailable, &["busy"]);
    check_within(begun, ms(3_000));
    // Longer than a third of the ttl: a renewal falls into it.
    assert!(soon(async || tenure.stats().renewals_failed > 0).await);
    check_within(busy_since, ms(3_000));
    server.client().command(&["SCRIPT", "KILL"]);
    assert!(!tokio::task::spawn_blocking(|| busy.wait()).await.unwrap());
    check_usable(&tenure, "n").await;
    assert!(soon(async || guard.standing() == Standing::Held).await);
    check_holds(&server, &guard);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

#[tenure_testkit::test]
async fn h30_a_replica_is_refused_as_read_only() {
    let master = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&master).start();
    assert!(replica.wait_for_master(ms(10_000)));
    let tenure = Tenure::connect(replica.url()).await.unwrap();
    let error = refused(tenure.lock("n").acquire().await);
    check_error(
        &error,
        ErrorKind::ReadOnly,
        &["read-only replica", "primary"],
    );
    assert_eq!(error.advice(), Advice::Later);
    // Looking needs no write.
    let guard = Tenure::connect(master.url()).await.unwrap();
    let guard = guard.lock("n").acquire().await.unwrap();
    assert!(soon(async || tenure.lock("n").is_locked().await.unwrap()).await);
    guard.release().await.unwrap();
}

/// The holder's server becomes a replica: neither renewal nor release works, and both say so.
#[tenure_testkit::test]
async fn h30_a_demoted_master_makes_the_lease_suspect_and_its_release_fail() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(3_000)).acquire().await.unwrap();
    server.client().command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(eventually(ms(2_500), || guard.standing() == Standing::Suspect));
    let error = refused(guard.release().await);
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
    server.client().command(&["REPLICAOF", "NO", "ONE"]);
    check_usable(&tenure, "n").await;
}

#[tenure_testkit::test]
async fn h30_a_replica_without_its_master_is_unavailable() {
    let replica = RedisServer::builder()
        .config("replica-serve-stale-data", "no")
        .start();
    replica.client().command(&["REPLICAOF", "127.0.0.1", "1"]);
    let redis = Client::connect(replica.url()).await.unwrap();
    let error = refused(redis.run(Command::new("GET").arg("n")).await);
    check_error(&error, ErrorKind::Unavailable, &["MASTERDOWN"]);
    assert_eq!(error.advice(), Advice::Later);
    // A script that writes is told the other half of it.
    let tenure = Tenure::connect(replica.url()).await.unwrap();
    let error = refused(tenure.lock("n").acquire().await);
    check_error(&error, ErrorKind::ReadOnly, &["replica"]);
}

#[tenure_testkit::test]
async fn h30_a_master_that_lacks_its_replicas_is_unavailable() {
    let server = RedisServer::builder()
        .config("min-replicas-to-write", "1")
        .start();
    let builder = Tenure::builder(server.url()).unreachable_after(ms(1_000));
    let tenure = builder.connect().await.unwrap();
    let refused = tenure.lock("n").try_acquire().await;
    check_refused(refused, ErrorKind::Unavailable, &["NOREPLICAS"]);
    server.set_config("min-replicas-to-write", "0");
    check_usable(&tenure, "n").await;
}
