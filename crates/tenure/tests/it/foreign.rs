//! Locks of other libraries, and keys that are none.

use std::time::Instant;

use tenure::{ErrorKind, Released, Tenure};
use tenure_testkit::{RedisServer, RespClient};

use crate::stage::{ms, soon};
use crate::verdict::{check_refused, check_usable, check_within, refused};

/// How redis-py and many others release: only if the token is still theirs.
const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    return redis.call('DEL', KEYS[1]) else return 0 end";

/// Another library's lock.
struct Theirs {
    redis: RespClient,
    token: &'static str,
}

impl Theirs {
    fn new(server: &RedisServer) -> Self {
        Self {
            redis: server.client(),
            token: "b6f1c7d0a0f911eebe560242ac120002",
        }
    }

    fn try_acquire(&mut self, name: &str, ttl_ms: u64) -> bool {
        let ttl_ms = ttl_ms.to_string();
        let words = ["SET", name, self.token, "NX", "PX", &ttl_ms];
        !self.redis.command(&words).is_nil()
    }

    fn release(&mut self, name: &str) -> bool {
        let words = ["EVAL", COMPARE_AND_DELETE, "1", name, self.token];
        self.redis.command(&words).int() == 1
    }
}

async fn stage() -> (RedisServer, Tenure, Theirs) {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let theirs = Theirs::new(&server);
    (server, tenure, theirs)
}

#[tenure_testkit::test]
async fn their_lock_excludes_us() {
    let (_server, tenure, mut theirs) = stage().await;
    assert!(theirs.try_acquire("n", 60_000));
    assert!(tenure.lock("n").try_acquire().await.unwrap().is_none());
    let error = refused(tenure.lock("n").wait(ms(300)).acquire().await);
    assert_eq!(error.kind(), ErrorKind::Busy);
    let text = error.to_string();
    assert!(text.contains(theirs.token), "{text}");
    assert!(text.contains("another library"), "{text}");
    assert!(theirs.release("n"), "ours did not touch it");
    check_usable(&tenure, "n").await;
}

#[tenure_testkit::test]
async fn our_lock_excludes_them() {
    let (_server, tenure, mut theirs) = stage().await;
    let guard = tenure.lock("n").acquire().await.unwrap();
    assert!(!theirs.try_acquire("n", 60_000));
    assert!(!theirs.release("n"), "theirs cannot release ours");
    assert!(guard.is_valid());
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(theirs.try_acquire("n", 60_000));
}

#[tenure_testkit::test]
async fn we_wait_behind_them() {
    let (_server, tenure, mut theirs) = stage().await;
    assert!(theirs.try_acquire("n", 60_000));
    let waiting = tokio::spawn(async move { tenure.lock("n").acquire().await });
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    let released = Instant::now();
    assert!(theirs.release("n"));
    drop(waiting.await.unwrap().unwrap());
    check_within(released, ms(3_000));
}

/// Theirs is released in silence, and all who look after the lock for us have gone: in the wire's
/// words, dead ones stand before us.
#[tenure_testkit::test]
async fn far_behind_we_see_that_they_let_go() {
    let (server, tenure, mut theirs) = stage().await;
    assert!(theirs.try_acquire("n", 60_000));
    let mut redis = server.client();
    for place in 1..=5 {
        let (score, waiter) = (place.to_string(), format!("dead{place}:1:1000"));
        redis.command(&["ZADD", "tenure:queue:{n}", &score, &waiter]);
    }
    let waiting = tokio::spawn({
        let tenure = tenure.clone();
        async move { tenure.lock("n").acquire().await }
    });
    // It knows by then how many stand before it.
    assert!(soon(async || tenure.stats().woken_by_timer > 0).await);
    let released = Instant::now();
    assert!(theirs.release("n"));
    drop(waiting.await.unwrap().unwrap());
    check_within(released, ms(20_000));
}

#[tenure_testkit::test]
async fn we_wait_for_the_end_of_their_lease() {
    let (_server, tenure, mut theirs) = stage().await;
    assert!(theirs.try_acquire("n", 700));
    let begun = Instant::now();
    let guard = tenure.lock("n").acquire().await.unwrap();
    assert!(begun.elapsed() > ms(500), "{:?}", begun.elapsed());
    check_within(begun, ms(2_500));
    assert!(!theirs.release("n"), "theirs has ended");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

/// They poll. Between two of ours in a line there is no gap to slip in, after the last there is.
#[tenure_testkit::test]
async fn they_get_the_lock_when_our_line_is_empty() {
    let (_server, tenure, mut theirs) = stage().await;
    let guard = tenure.lock("n").acquire().await.unwrap();
    let next = tokio::spawn(async move { tenure.lock("n").acquire().await });
    tokio::time::sleep(ms(200)).await;
    guard.release().await.unwrap();
    assert!(!theirs.try_acquire("n", 60_000), "handed over, not let go");
    next.await.unwrap().unwrap().release().await.unwrap();
    assert!(soon(async || theirs.try_acquire("n", 60_000)).await);
}

/// Their client deletes our lock without asking whose it is.
#[tenure_testkit::test]
async fn a_rude_release_of_theirs_is_noticed() {
    let (_server, tenure, mut theirs) = stage().await;
    let guard = tenure.lock("n").ttl(ms(600)).acquire().await.unwrap();
    theirs.redis.command(&["DEL", "n"]);
    assert!(theirs.try_acquire("n", 60_000));
    assert_eq!(guard.lost().await, tenure::LostReason::Taken);
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
    assert!(theirs.release("n"), "theirs was left alone");
}

#[tenure_testkit::test]
async fn the_holder_of_their_lock_is_shown_as_far_as_it_is_known() {
    let (_server, tenure, mut theirs) = stage().await;
    theirs.try_acquire("n", 60_000);
    let holder = tenure.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.lease.as_str(), theirs.token);
    assert!(!holder.lease.is_tenure());
    assert!(holder.remaining.unwrap() > ms(30_000));
    assert_eq!(holder.fence, None, "they know no fences");
    assert!(holder.client.is_none() && holder.meta.is_empty());
}

/// Data that an earlier lease of ours left is not attributed to theirs.
#[tenure_testkit::test]
async fn our_fence_and_metadata_are_not_taken_for_theirs() {
    let (_server, tenure, mut theirs) = stage().await;
    let lock = tenure.lock("n").meta("why", "report");
    let guard = lock.acquire().await.unwrap();
    theirs.redis.command(&["DEL", "n"]);
    theirs.try_acquire("n", 60_000);
    let holder = tenure.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.fence, None);
    assert!(holder.meta.is_empty(), "{:?}", holder.meta);
    drop(guard);
}

/// Bytes that are no text: whatever they are, somebody holds the lock.
#[tenure_testkit::test]
async fn a_token_of_any_bytes_is_a_holder() {
    let (_server, tenure, mut theirs) = stage().await;
    let words: [&[u8]; 6] = [b"SET", b"n", b"\xff\x00\xfe", b"NX", b"PX", b"60000"];
    theirs.redis.command(&words);
    assert!(tenure.lock("n").try_acquire().await.unwrap().is_none());
    assert!(tenure.lock("n").holder().await.unwrap().is_some());
}

#[tenure_testkit::test]
async fn a_string_without_expiry_is_busy_and_never_touched() {
    let (_server, tenure, mut theirs) = stage().await;
    theirs.redis.command(&["SET", "n", "settings"]);
    assert!(tenure.lock("n").try_acquire().await.unwrap().is_none());
    check_refused(
        tenure.lock("n").wait(ms(300)).acquire().await,
        ErrorKind::Busy,
        &["`settings`", "held without expiry, perhaps not a lock"],
    );
    let holder = tenure.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.remaining, None);
    let said = holder.to_string();
    assert!(said.contains("perhaps not a lock"), "{said}");
    assert_eq!(theirs.redis.command(&["GET", "n"]).text(), "settings");
    assert_eq!(theirs.redis.command(&["PTTL", "n"]).int(), -1);
}

#[tenure_testkit::test]
async fn a_key_of_another_type_is_named_and_never_touched() {
    let (_server, tenure, mut theirs) = stage().await;
    theirs.redis.command(&["RPUSH", "list", "x"]);
    theirs.redis.command(&["SADD", "set", "x"]);
    theirs.redis.command(&["ZADD", "zset", "1", "x"]);
    theirs.redis.command(&["XADD", "stream", "*", "k", "v"]);
    theirs.redis.command(&["HSET", "hash", "uuid:1", "1"]);
    let digest = theirs.redis.command(&["DEBUG", "DIGEST"]);
    for (name, parts) in [
        ("list", ["`list`", "not a lock"]),
        ("set", ["`set`", "not a lock"]),
        ("zset", ["`zset`", "not a lock"]),
        ("stream", ["`stream`", "not a lock"]),
        ("hash", ["Redisson", "layout `redisson`"]),
    ] {
        let lock = tenure.lock(name);
        check_refused(lock.try_acquire().await, ErrorKind::NotALock, &parts);
        check_refused(lock.acquire().await, ErrorKind::NotALock, &parts);
        let limited = lock.clone().wait(ms(200)).acquire().await;
        check_refused(limited, ErrorKind::NotALock, &parts);
        check_refused(lock.holder().await, ErrorKind::NotALock, &parts);
    }
    assert_eq!(theirs.redis.command(&["DEBUG", "DIGEST"]), digest);
}
