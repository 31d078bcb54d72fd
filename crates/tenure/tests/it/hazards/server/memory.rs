//! H23 and H24: memory that is full, and servers that throw keys away.

use tenure::{ErrorKind, Released, Tenure};
use tenure_testkit::{ClientKind, RedisServer};

use crate::stage::{ms, soon};
use crate::verdict::{check_nothing_left, check_refused, check_usable};

#[tenure_testkit::test]
async fn h23_acquire_is_refused_under_oom_and_leaves_nothing() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.fill_memory();
    let (kind, parts) = (ErrorKind::OutOfMemory, ["no memory left", "`maxmemory`"]);
    check_refused(tenure.lock("n").try_acquire().await, kind, &parts);
    check_refused(tenure.lock("n").acquire().await, kind, &parts);
    let limited = tenure.lock("n").wait(ms(1_000)).acquire().await;
    check_refused(limited, kind, &parts);
    check_nothing_left(&server, "n");
    server.free_memory();
    check_usable(&tenure, "n").await;
}

#[tenure_testkit::test]
async fn h23_release_and_renew_work_under_oom() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let lock = tenure.lock("n").ttl(ms(600)).meta("why", "report");
    let guard = lock.acquire().await.unwrap();
    server.fill_memory();
    tokio::time::sleep(ms(1_500)).await;
    assert!(guard.is_valid(), "renewed for more than two ttls");
    assert_eq!(tenure.stats().renewals_failed, 0);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_nothing_left(&server, "n");
}

/// The waiter was promised the lock before the memory was full. It has it, or is refused, and what it
/// was offered must not stay behind.
#[tenure_testkit::test]
async fn h23_a_release_under_oom_strands_nobody() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let guard = holder.lock("n").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { tenure.lock("n").acquire().await });
    tokio::time::sleep(ms(200)).await;
    server.fill_memory();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    match waiting.await.unwrap() {
        // The offer was a grant, and its renewal is allowed.
        Ok(guard) => assert_eq!(guard.release().await.unwrap(), Released::WasHeld),
        refused => check_refused(refused, ErrorKind::OutOfMemory, &[]),
    }
    check_nothing_left(&server, "n");
}

async fn warnings_with(policy: &str, maxmemory: &str) -> u64 {
    let server = RedisServer::builder()
        .config("maxmemory", maxmemory)
        .config("maxmemory-policy", policy)
        .start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    check_usable(&tenure, "n").await;
    // New connections see the same server: that is no news.
    server.kill_clients(ClientKind::Normal);
    assert!(soon(async || tenure.lock("n").is_locked().await.is_ok()).await);
    assert!(tenure.stats().connections > 1, "{:?}", tenure.stats());
    tenure.stats().eviction_warnings
}

#[tenure_testkit::test]
async fn h24_an_evicting_server_is_warned_of_once() {
    assert_eq!(warnings_with("allkeys-lru", "100mb").await, 1);
    assert_eq!(warnings_with("volatile-ttl", "100mb").await, 1);
}

#[tenure_testkit::test]
async fn h24_a_server_that_keeps_its_keys_is_not_warned_of() {
    assert_eq!(warnings_with("noeviction", "100mb").await, 0);
    // Without a limit nothing is ever evicted.
    assert_eq!(warnings_with("allkeys-lru", "0").await, 0);
}
