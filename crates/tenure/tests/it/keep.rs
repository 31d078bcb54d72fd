//! Kept leases, where a real server counts, a keeper dies, and messages are lost or refused.

use std::time::Duration;

use tenure::{ErrorKind, Lock, Redlock, Tenure};
use tenure_testkit::RedisServer;

use crate::hazards::program::Program;
use crate::hazards::wire::Wire;
use crate::stage::{ms, soon};
use crate::verdict::{check_error, check_nothing_left, check_refused, refused};

/// Acquires and releases the lock until it is kept: the client must first hear who wants it.
async fn make_kept(client: &Tenure, lock: &Lock) {
    let before = client.stats().kept;
    let is_kept = soon(async || {
        drop(lock.acquire().await.unwrap());
        client.stats().kept > before
    });
    assert!(is_kept.await, "the lock is never kept");
}

#[tenure_testkit::test]
async fn using_a_kept_lock_costs_the_server_nothing() {
    const USES: u64 = 500;
    let server = RedisServer::start();
    let a = Tenure::connect(server.url()).await.unwrap();
    let lock = a.lock("n").keep(ms(10_000));
    make_kept(&a, &lock).await;
    server.reset_stats();
    let reused = a.stats().reused;
    for _ in 0..USES {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(a.stats().reused - reused, USES);
    // What the client writes about itself, if the machine is slow.
    let calls = server.command_calls("evalsha");
    assert!(calls <= 10, "{calls} calls for {USES} uses");
    a.shutdown(ms(5_000)).await;
    check_nothing_left(&server, "n");
}

/// As redis-py, rslock and many others do.
#[tenure_testkit::test]
async fn another_library_gets_a_kept_lock_when_its_time_is_over() {
    let server = RedisServer::start();
    let a = Tenure::connect(server.url()).await.unwrap();
    make_kept(&a, &a.lock("n").keep(ms(500))).await;
    let mut redis = server.client();
    let mut try_set = || {
        !redis
            .command(&["SET", "n", "theirs", "NX", "PX", "60000"])
            .is_nil()
    };
    assert!(soon(async || try_set()).await);
    assert_eq!(a.stats().let_go, 0, "nobody asked");
    assert!(
        a.lock("n")
            .keep(ms(500))
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
}

/// It is as if the holder had died.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_dies_is_succeeded_when_its_lease_ends() {
    let server = RedisServer::start();
    let keeper = Program::start(&server.url());
    assert_eq!(keeper.ask("keep n 3000"), "kept");
    keeper.process.kill();
    let b = Tenure::connect(server.url()).await.unwrap();
    let lock = b.lock("n").wait(ms(20_000));
    assert!(lock.acquire().await.unwrap().is_valid());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_not_heard_gets_a_kept_lock_when_its_time_is_over() {
    let wire = Wire::start();
    let a = wire.client().await;
    let lock = a.lock("n").keep(ms(1_500));
    make_kept(&a, &lock).await;
    wire.proxy.rewrite_replies(b"ask tenure:", b"xsk tenure:");
    let b = wire.bystander().await;
    assert!(
        b.lock("n")
            .wait(ms(20_000))
            .acquire()
            .await
            .unwrap()
            .is_valid()
    );
    assert_eq!(a.stats().let_go, 0, "it was heard");
}

/// The channel of the keeper is not one of those that this user may publish to.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_may_not_ask_gets_a_kept_lock_when_its_time_is_over() {
    let server = RedisServer::builder().user("worker", "on >pw ~* resetchannels +@all");
    let server = server.start();
    let a = Tenure::connect(server.url()).await.unwrap();
    make_kept(&a, &a.lock("n").keep(ms(1_500))).await;
    let url = format!("redis://worker:pw@{}", server.addr());
    let b = Tenure::connect(url).await.unwrap();
    assert!(
        b.lock("n")
            .wait(ms(20_000))
            .acquire()
            .await
            .unwrap()
            .is_valid()
    );
    assert_eq!(a.stats().let_go, 0);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_may_not_hear_keeps_nothing() {
    let server = RedisServer::builder().user("worker", "on >pw ~* resetchannels +@all");
    let server = server.start();
    let url = format!("redis://worker:pw@{}", server.addr());
    let a = Tenure::builder(url)
        .keep(ms(10_000))
        .connect()
        .await
        .unwrap();
    assert!(soon(async || a.stats().messages_refused == 1).await);
    for _ in 0..3 {
        a.lock("n")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        check_nothing_left(&server, "n");
    }
    assert_eq!(a.stats().kept, 0);
}

/// Asks may have been missed while the connection for messages was gone.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_was_deaf_lets_go_of_everything() {
    let wire = Wire::start();
    let a = wire.client().await;
    let lock = a.lock("n").keep(ms(12_000));
    make_kept(&a, &lock).await;
    wire.proxy.reset_all();
    assert!(soon(async || wire.holder("n").is_none()).await);
    make_kept(&a, &lock).await;
    let b = wire.bystander().await;
    assert!(
        b.lock("n").wait(ms(6_000)).acquire().await.is_ok(),
        "not heard any more"
    );
}

/// The server says nothing until the lease must have ended.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_lease_that_ended_unreachable_is_not_used() {
    let wire = Wire::start();
    let a = wire
        .builder()
        .unreachable_after(ms(300))
        .connect()
        .await
        .unwrap();
    let lock = a.lock("n").ttl(ms(1_500)).keep(ms(750));
    make_kept(&a, &lock).await;
    wire.proxy.black_hole();
    assert!(soon(async || wire.holder("n").is_none()).await);
    let other = wire.bystander().await.lock("n").acquire().await.unwrap();
    let granted = lock.try_acquire().await;
    assert!(!matches!(granted, Ok(Some(_))), "two holders: {granted:?}");
    assert!(other.is_valid());
    wire.proxy.heal();
}

#[tenure_testkit::test]
async fn a_time_out_of_range_is_refused() {
    let a = Tenure::connect("memory://").await.unwrap();
    let parts = ["the time to keep", "from 1 ms to half of the ttl"];
    for keep in [Duration::from_micros(999), ms(15_001)] {
        let lock = a.lock("n").keep(keep);
        check_refused(lock.acquire().await, ErrorKind::InvalidSetting, &parts);
        check_refused(lock.try_acquire().await, ErrorKind::InvalidSetting, &parts);
        let builder = Tenure::builder("memory://").keep(keep);
        check_refused(builder.connect().await, ErrorKind::InvalidSetting, &parts);
    }
    let shorter = a.lock("n").ttl(ms(1_000)).keep(ms(501));
    check_refused(shorter.acquire().await, ErrorKind::InvalidSetting, &parts);
    assert!(a.lock("n").keep(ms(15_000)).acquire().await.is_ok());
}

/// A lock may be shorter than the client's time is meant for, or switch it off.
#[tenure_testkit::test]
async fn the_clients_time_is_for_all_its_locks() {
    let server = RedisServer::start();
    let a = Tenure::builder(server.url()).keep(ms(10_000));
    let a = a.connect().await.unwrap();
    make_kept(&a, &a.lock("n")).await;
    make_kept(&a, &a.lock("short").ttl(ms(4_000))).await;
    let kept = a.stats().kept;
    drop(a.lock("off").keep(Duration::ZERO).acquire().await.unwrap());
    assert_eq!(a.stats().kept, kept);
}

#[tenure_testkit::test]
async fn a_redlock_keeps_nothing() {
    let urls = [
        "redis://127.0.0.1:1",
        "redis://127.0.0.1:2",
        "redis://127.0.0.1:3",
    ];
    let builder = Redlock::builder(urls).keep(ms(100));
    let error = refused(builder.connect().await);
    check_error(&error, ErrorKind::InvalidSetting, &["Redlock"]);
}
