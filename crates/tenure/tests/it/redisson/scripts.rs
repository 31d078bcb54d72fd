//! The scripts with arguments that the library would never send, and rights that are missing.

use tenure::{ErrorKind, Tenure};
use tenure_testkit::{RedisServer, RespClient};

use crate::lua::{check_bad_numbers, eval, redisson};
use crate::stage::ms;
use crate::verdict::{check_nothing_left, check_usable, refused};

const ME: &str = "00000000-0000-8000-8000-000000000001:100030000";
const OTHER: &str = "00000000-0000-8000-8000-000000000002:100030000";
const CHANNEL: &str = "redisson_lock__channel:{n}";
const LOCK_KEYS: [&str; 6] = [
    "n",
    "redisson_lock_token:{n}",
    "redisson_lock_token:{n}",
    "tenure:queue:{n}",
    "tenure:alive:{n}",
    "tenure:meta:{n}",
];
const ACQUIRE_ARGS: [&str; 8] = [
    ME,
    "30000",
    "9000000000000000",
    "7",
    "queue",
    "",
    "field",
    "value",
];

#[test]
fn every_number_is_checked_before_the_first_write() {
    let (acquire, held) = (redisson::ACQUIRE, ["HSET", "n", ME, "1"]);
    let numbers = [1, 2, 3];
    for prepare in [held, ["HSET", "n", OTHER, "1"], ["HSET", "other", "a", "1"]] {
        check_bad_numbers(acquire, &LOCK_KEYS, &ACQUIRE_ARGS, &numbers, &prepare);
    }
    let keys = ["n", "tenure:meta:{n}"];
    check_bad_numbers(redisson::RENEW, &keys, &[ME, "1000", "0"], &[1], &held);
    let adopt = [ME, OTHER, "1000", "9000000000000000"];
    check_bad_numbers(redisson::ADOPT, &keys, &adopt, &[2, 3], &held);
}

#[test]
fn metadata_come_in_pairs() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let reply = eval(
        &mut redis,
        redisson::ACQUIRE,
        &LOCK_KEYS,
        &ACQUIRE_ARGS[..7],
    );
    assert!(reply.is_err(), "{reply:?}");
    assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
}

/// An attempt that lay in a dead connection's buffer: it finds the lock free, its own or busy, and
/// changes nothing.
#[test]
fn an_attempt_that_comes_too_late_changes_nothing() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let mut late = ACQUIRE_ARGS;
    late[2] = "1600000000000000";
    for holder in ["", ME, OTHER] {
        redis.command(&["FLUSHALL"]);
        if !holder.is_empty() {
            redis.command(&["HSET", "n", holder, "1"]);
        }
        let before = redis.command(&["DEBUG", "DIGEST"]);
        let reply = eval(&mut redis, redisson::ACQUIRE, &LOCK_KEYS, &late).unwrap();
        assert_eq!(reply.array()[0].text(), "late", "{reply:?}");
        assert!(reply.array()[1].int() > 1_600_000_000_000_000, "{reply:?}");
        assert_eq!(redis.command(&["DEBUG", "DIGEST"]), before, "`{holder}`");
    }
}

/// All but the counter, which Redisson would begin anew.
#[test]
fn every_key_of_a_granted_lock_but_the_counter_has_an_end() {
    let server = RedisServer::start();
    let mut redis = server.client();
    eval(&mut redis, redisson::ACQUIRE, &LOCK_KEYS, &ACQUIRE_ARGS).unwrap();
    let mut other = ACQUIRE_ARGS;
    other[0] = OTHER;
    eval(&mut redis, redisson::ACQUIRE, &LOCK_KEYS, &other).unwrap();
    check_ends(&mut redis, 5);
    let keys = [
        "n",
        "tenure:queue:{n}",
        "tenure:alive:{n}",
        LOCK_KEYS[1],
        LOCK_KEYS[2],
        "tenure:meta:{n}",
    ];
    eval(&mut redis, redisson::RELEASE, &keys, &[ME, CHANNEL]).unwrap();
    assert_eq!(redis.command(&["HGET", "n", OTHER]).text(), "1");
    check_ends(&mut redis, 2);
}

#[track_caller]
fn check_ends(redis: &mut RespClient, count: usize) {
    let keys = redis.command(&["KEYS", "*"]);
    assert_eq!(keys.array().len(), count, "{keys:?}");
    for key in keys.array() {
        let left = redis.command(&["PTTL", key.text()]).int();
        let is_counter = key.text() == LOCK_KEYS[1];
        assert_eq!(left > 0, !is_counter, "{} ends in {left}", key.text());
    }
}

/// The script has made the hash when the server refuses its next command: it must not stay, and
/// least of all without an end.
#[tenure_testkit::test]
async fn a_refusal_in_the_middle_of_a_grant_leaves_nothing() {
    for right in ["pexpire", "set"] {
        let rules = format!("on >pw ~* &* +@all -{right}");
        let server = RedisServer::builder().user("worker", &rules).start();
        let url = format!("redis://worker:pw@{}?layout=redisson", server.addr());
        let tenure = Tenure::connect(url).await.unwrap();
        for error in [
            refused(tenure.lock("n").wait(ms(2_000)).acquire().await),
            refused(tenure.lock("n").try_acquire().await),
        ] {
            assert_eq!(error.kind(), ErrorKind::Denied, "{right}: {error:?}");
            check_nothing_left(&server, "n");
        }
    }
}

/// A foreign key in place of the queue: waiting may fail, releasing must not.
#[tenure_testkit::test]
async fn a_broken_queue_does_not_keep_a_lock_from_being_released() {
    let server = RedisServer::start();
    let tenure = super::ours(&server).await;
    server
        .client()
        .command(&["SET", "tenure:queue:{n}", "mine"]);
    check_usable(&tenure, "n").await;
    assert_eq!(server.client().command(&["EXISTS", "n"]).int(), 0);
}

/// A channel that the user may not publish to, or listen to, delays a waiter and fails nobody.
#[tenure_testkit::test]
async fn without_redissons_channel_everything_works_by_looking() {
    let rules = "on >pw ~* resetchannels &tenure:wake:* +@all";
    let server = RedisServer::builder().user("worker", rules).start();
    let url = format!("redis://worker:pw@{}?layout=redisson", server.addr());
    let tenure = Tenure::connect(url).await.unwrap();
    let guard = tenure.lock("n").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let tenure = tenure.clone();
        async move { tenure.lock("n").acquire().await }
    });
    tokio::time::sleep(ms(200)).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(tenure.stats().messages_refused, 1);
}

/// No memory left: what is held can still be renewed, handed over and released.
#[tenure_testkit::test]
async fn without_memory_a_lock_is_still_renewed_and_released() {
    let server = RedisServer::start();
    let tenure = super::ours(&server).await;
    let guard = tenure.lock("n").acquire().await.unwrap();
    server.fill_memory();
    guard.ensure(ms(29_000)).await.unwrap();
    guard.release().await.unwrap();
    let error = refused(tenure.lock("n").try_acquire().await);
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    server.free_memory();
    check_usable(&tenure, "n").await;
}
