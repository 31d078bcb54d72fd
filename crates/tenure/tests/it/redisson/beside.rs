//! A read-write lock of Redisson's beside a lock of ours: Redisson grants it over a plain lock. What is
//! not ours alone is not ours to change.

use tenure::{Guard, Released, Tenure};
use tenure_testkit::{RedisServer, eventually};
use tokio::task::JoinHandle;

use super::ours;
use crate::stage::ms;

const WRITER: &str = "9c2d3f00-0000-4000-8000-000000000001:41:write";

/// What `getReadWriteLock("n").writeLock().lock()` leaves where a plain lock is held.
fn java_writes(server: &RedisServer) {
    let mut redis = server.client();
    redis.command(&["HSET", "n", "mode", "write", WRITER, "1"]);
    redis.command(&["PEXPIRE", "n", "30000"]);
}

/// Java's writer has its field and its time.
#[track_caller]
fn check_untouched(server: &RedisServer) {
    let mut redis = server.client();
    assert_eq!(redis.command(&["HGET", "n", WRITER]).text(), "1");
    assert_eq!(redis.command(&["HGET", "n", "mode"]).text(), "write");
    let left = redis.command(&["PTTL", "n"]).int();
    assert!((15_000..=30_000).contains(&left), "{left} ms are left");
}

/// A waiter of this client, the last of so many clients in the queue.
fn wait(server: &RedisServer, tenure: Tenure, queued: i64) -> JoinHandle<tenure::Result<Guard>> {
    let waiting = tokio::spawn(async move { tenure.lock("n").wait(ms(60_000)).acquire().await });
    let count = || {
        server
            .client()
            .command(&["ZCARD", "tenure:queue:{n}"])
            .int()
    };
    assert!(eventually(ms(20_000), || count() == queued));
    waiting
}

async fn held(server: &RedisServer) -> (Tenure, Guard) {
    let tenure = ours(server).await;
    let guard = tenure.lock("n").acquire().await.unwrap();
    (tenure, guard)
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_leaves_a_writer_of_redissons_its_time() {
    let server = RedisServer::start();
    let (_tenure, guard) = held(&server).await;
    let waiting = wait(&server, ours(&server).await, 1);
    java_writes(&server);
    guard.release().await.unwrap();
    check_untouched(&server);
    waiting.abort();
}

/// After some turns inside a process the store is asked whose turn it is.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_leaves_a_writer_of_redissons_its_time() {
    let server = RedisServer::start();
    let (tenure, guard) = held(&server).await;
    let here = wait(&server, tenure, 1);
    let elsewhere = wait(&server, ours(&server).await, 2);
    java_writes(&server);
    drop(guard);
    let released = || {
        let fields = server.client().command(&["HLEN", "n"]).int();
        fields == 2
    };
    assert!(eventually(ms(20_000), released), "our own field stays");
    check_untouched(&server);
    here.abort();
    elsewhere.abort();
}

/// A holder that no longer excludes everybody is told so, and does not prolong what is not its own.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_leaves_a_writer_of_redissons_its_time_and_the_holder_is_told() {
    let server = RedisServer::start();
    let tenure = ours(&server).await;
    let guard = tenure.lock("n").ttl(ms(3_000)).acquire().await.unwrap();
    java_writes(&server);
    tokio::time::timeout(ms(30_000), guard.lost())
        .await
        .unwrap();
    check_untouched(&server);
    assert_ne!(guard.release().await.unwrap(), Released::WasHeld);
    check_untouched(&server);
}
