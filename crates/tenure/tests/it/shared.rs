//! Shared leases beside other libraries, other deployments, and what they cost the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure::{ErrorKind, Layout, Mode, Redlock, Tenure};
use tenure_testkit::{RedisServer, RedlockNodes};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::lua::{
    DOWNGRADE, SHARED_ACQUIRE, SHARED_ADOPT, SHARED_RENEW, UPGRADE, check_bad_numbers,
};
use crate::stage::{ms, soon};

const LATEST: &str = "9000000000000000";

#[tenure_testkit::test]
async fn other_libraries_and_readers_exclude_each_other() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let reader = tenure.lock("n").shared();
    let guard = reader.acquire().await.unwrap();
    let mut set = || redis.command(&["SET", "n", "theirs", "NX", "PX", "60000"]);
    assert!(set().is_nil(), "beside a reader");
    guard.release().await.unwrap();
    assert!(!set().is_nil());
    assert!(reader.try_acquire().await.unwrap().is_none());
    server.client().command(&["DEL", "n"]);
    assert!(reader.try_acquire().await.unwrap().is_some());
}

/// A client that knows nothing of readers offers the lock to a waiting one as to anybody.
#[tenure_testkit::test]
async fn an_offer_to_a_reader_alone_becomes_shared() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let (a, b) = (
        Tenure::connect(server.url()).await.unwrap(),
        Tenure::connect(server.url()).await.unwrap(),
    );
    redis.command(&["SET", "n", "theirs", "PX", "60000"]);
    let wait = |tenure: &Tenure| {
        let reader = tenure.lock("n").shared();
        tokio::spawn(async move { reader.acquire().await.unwrap() })
    };
    let (one, two) = (wait(&a), wait(&b));
    let mut queue = server.client();
    let both = async || queue.command(&["ZCARD", "tenure:queue:{n}"]).int() == 2;
    assert!(soon(both).await);
    let first = redis.command(&["ZPOPMIN", "tenure:queue:{n}"]);
    let first = first.array()[0].text().to_owned();
    redis.command(&["SET", "n", &first, "PX", "2000"]);
    redis.command(&["PUBLISH", "tenure:wake:{n}", &first]);
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    assert_eq!(one.fence(), two.fence());
    assert_eq!((one.mode(), two.mode()), (Mode::Shared, Mode::Shared));
    let value = redis.command(&["GET", "n"]);
    assert_eq!(value.text(), format!("tenure:shared:{}", one.fence()));
}

/// Readers that wait only for a writer that has died get in as soon as anybody notices that it has.
#[tenure_testkit::test]
async fn who_notices_that_a_writer_died_wakes_the_readers_behind_it() {
    const DEAD: &str = "tenure:00000000000080008000000000000001:7:60000";
    let server = RedisServer::start();
    let mut redis = server.client();
    let connect = async || Tenure::connect(server.url()).await.unwrap();
    let (a, b, c) = (connect().await, connect().await, connect().await);
    let guard = a.lock("n").shared().acquire().await.unwrap();
    // Without a time until which it counts as living, it lives.
    redis.command(&["ZADD", "tenure:queue:{n}", "1", DEAD]);
    let wait = |tenure: &Tenure| {
        let reader = tenure.lock("n").shared();
        tokio::spawn(async move { reader.acquire().await.unwrap() })
    };
    let (one, two) = (wait(&b), wait(&c));
    let all = async || redis.command(&["ZCARD", "tenure:queue:{n}"]).int() == 3;
    assert!(soon(all).await);
    redis.command(&["ZADD", "tenure:alive:{n}", "1", DEAD]);
    let refused = guard.try_upgrade().await.unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Busy);
    // Sooner than a reader asks that hears nothing.
    let both = tokio::time::timeout(ms(3_500), async {
        (one.await.unwrap(), two.await.unwrap())
    });
    assert!(both.await.is_ok(), "they were not woken");
    drop(refused);
}

/// The last reference to a lease may be the one of a caller that asks in the other mode.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_asks_in_the_other_mode_while_it_releases_does_not_hang() {
    let tenure = Tenure::connect("memory://").await.unwrap();
    let owner = tenure.owner();
    let (writer, reader) = (owner.lock("n"), owner.lock("n").shared());
    let turns = Arc::new(AtomicU64::new(0));
    let writers_turns = Arc::clone(&turns);
    let writing = tokio::spawn(async move {
        for _ in 0..100_000 {
            drop(writer.try_acquire().await);
            writers_turns.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut reading = tokio::spawn(async move {
        while !writing.is_finished() {
            drop(reader.try_acquire().await);
        }
    });
    // However slow the machine is, some turns are made.
    let mut before = None;
    while tokio::time::timeout(ms(20_000), &mut reading)
        .await
        .is_err()
    {
        let now = Some(turns.load(Ordering::Relaxed));
        assert_ne!(now, before, "one of them hangs");
        before = now;
    }
}

/// Every reader after the first joins its lease.
#[tenure_testkit::test]
async fn readers_of_one_process_cost_the_server_nothing() {
    let server = RedisServer::start();
    let tenure = Tenure::builder(server.url()).hand_off_time(ms(60_000));
    let tenure = tenure.connect().await.unwrap();
    let reader = tenure.lock("n").shared();
    let first = reader.acquire().await.unwrap();
    server.reset_stats();
    for _ in 0..100 {
        let guard = reader.acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(server.command_calls("evalsha"), 0);
    drop(first);
}

#[tenure_testkit::test]
async fn a_reader_asks_once_and_releases_once() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let reader = tenure.lock("n").shared();
    reader.acquire().await.unwrap().release().await.unwrap();
    server.reset_stats();
    for _ in 0..10 {
        let guard = reader.acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(server.command_calls("evalsha"), 20);
    assert_eq!(server.command_calls("publish"), 0);
}

#[tenure_testkit::test]
async fn where_locks_cannot_be_shared_it_is_refused_and_nothing_is_sent() {
    let server = RedisServer::start();
    let java = Tenure::builder(server.url()).layout(Layout::Redisson);
    let java = java.connect().await.unwrap();
    let nodes = RedlockNodes::builder().nodes(3).start();
    let redlock = Redlock::connect(nodes.urls()).await.unwrap();
    for locks in [java.as_locks(), redlock.as_locks()] {
        let refused = locks.lock("n").shared().acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidSetting);
        assert!(refused.to_string().contains("shared"), "{refused}");
        assert!(!locks.lock("n").is_locked().await.unwrap());
    }
    let native = Tenure::connect(server.url()).await.unwrap();
    let with_meta = native.lock("n").shared().meta("a", "b");
    let refused = with_meta.acquire().await.unwrap_err();
    assert!(refused.to_string().contains("metadata"), "{refused}");
}

#[tenure_testkit::test]
async fn a_key_of_another_type_is_named() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.client().command(&["HSET", "n", "a", "1"]);
    let refused = tenure.lock("n").shared().acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotALock);
    // A set of readers that is something else blocks nobody for good.
    server.client().command(&["DEL", "n"]);
    server.client().command(&["SET", "tenure:readers:{n}", "x"]);
    let guard = tenure.lock("n").shared().acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Redis does not roll back, so a script checks its numbers first.
#[test]
fn h22_scripts_of_readers_check_every_number_before_they_write() {
    let keys = [
        "n",
        "tenure:fences",
        "tenure:fences:{n}",
        "tenure:queue:{n}",
        "tenure:alive:{n}",
        "tenure:readers:{n}",
    ];
    let free = ["SET", "other", "1"];
    let acquire = ["me", "30000", LATEST, "1", "queue", ""];
    check_bad_numbers(SHARED_ACQUIRE, &keys, &acquire, &[1, 2], &free);
    let shared = ["SET", "n", "tenure:shared:7", "PX", "60000"];
    let change = ["old", "new", "1000", LATEST, ""];
    check_bad_numbers(UPGRADE, &keys, &change, &[2, 3], &shared);
    let with_meta = [&keys[..], &["tenure:meta:{n}"]].concat();
    let held = ["SET", "n", "old", "PX", "60000"];
    check_bad_numbers(DOWNGRADE, &with_meta, &change, &[2, 3], &held);
    let keys = ["n", "tenure:readers:{n}"];
    check_bad_numbers(SHARED_RENEW, &keys, &["me", "1000", "0"], &[1], &shared);
    check_bad_numbers(SHARED_ADOPT, &keys, &change, &[2, 3], &shared);
}

/// So many readers that the lock is shared all the time, in two processes.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h38_a_writer_enters_among_readers_that_never_stop() {
    let server = RedisServer::start();
    let connect = async || Tenure::connect(server.url()).await.unwrap();
    let clients = [connect().await, connect().await];
    let mut readers = JoinSet::new();
    for number in 0..100 {
        // Each with a lease of its own.
        let lock = clients[number % 2].owner().lock("n").shared();
        readers.spawn(async move {
            loop {
                let guard = lock.acquire().await.unwrap();
                tokio::time::sleep(ms(20)).await;
                guard.release().await.unwrap();
            }
        });
    }
    let is_shared = async || {
        let holder = clients[0].lock("n").holder_brief().await.unwrap();
        holder.is_some_and(|holder| holder.readers > 20)
    };
    assert!(soon(is_shared).await, "too few readers");
    for writer in &clients {
        let lock = writer.lock("n");
        let entering = timeout(ms(20_000), lock.acquire()).await;
        let guard = entering.expect("no writer enters");
        guard.unwrap().release().await.unwrap();
    }
    readers.abort_all();
}
