//! Keys that are no such lock, and settings that contradict each other.

use tenure::{ErrorKind, Layout, LeaseId, Tenure};
use tenure_testkit::RedisServer;

use super::{ours, stage};
use crate::stage::ms;
use crate::verdict::{check_refused, refused};

const READER: &str = "3f2a9c1e-7b1d-4c2e-9d3f-444455556666:7";

/// Every way to ask for the lock is refused like this, and nothing is touched.
async fn check_not_a_lock(server: &RedisServer, ours: &Tenure, name: &str, parts: &[&str]) {
    let digest = server.client().command(&["DEBUG", "DIGEST"]);
    let lock = ours.lock(name);
    check_refused(lock.try_acquire().await, ErrorKind::NotALock, parts);
    check_refused(lock.acquire().await, ErrorKind::NotALock, parts);
    check_refused(
        lock.clone().wait(ms(200)).acquire().await,
        ErrorKind::NotALock,
        parts,
    );
    check_refused(lock.holder().await, ErrorKind::NotALock, parts);
    assert_eq!(server.client().command(&["DEBUG", "DIGEST"]), digest);
}

#[tenure_testkit::test]
async fn a_lock_in_the_native_layout_is_named_with_the_remedy() {
    let (server, ours, _java) = stage().await;
    let native = Tenure::connect(server.url()).await.unwrap();
    let guard = native.lock("n").acquire().await.unwrap();
    check_not_a_lock(&server, &ours, "n", &["a string", "layout `native`"]).await;
    assert!(guard.is_valid());
}

#[tenure_testkit::test]
async fn a_lock_of_java_is_named_with_the_remedy_where_the_layout_is_native() {
    let (server, _ours, mut java) = stage().await;
    assert!(java.try_lock("n"));
    let native = Tenure::connect(server.url()).await.unwrap();
    check_not_a_lock(&server, &native, "n", &["a hash", "layout `redisson`"]).await;
}

/// A plain lock and a read-write lock of one name would not exclude each other.
#[tenure_testkit::test]
async fn a_read_write_lock_is_refused() {
    let (server, ours, _java) = stage().await;
    let mut redis = server.client();
    redis.command(&["HSET", "read", "mode", "read", READER, "1"]);
    let writer = format!("{READER}:write");
    redis.command(&["HSET", "write", "mode", "write", &writer, "2"]);
    for name in ["read", "write"] {
        check_not_a_lock(&server, &ours, name, &["a read-write lock of Redisson"]).await;
    }
    let released = ours.force_release("read", &LeaseId::new(READER)).await;
    check_refused(released, ErrorKind::NotALock, &["a read-write lock"]);
    assert_eq!(redis.command(&["HLEN", "read"]).int(), 2);
}

#[tenure_testkit::test]
async fn what_is_not_a_lock_at_all_is_named() {
    let (server, ours, _java) = stage().await;
    let mut redis = server.client();
    redis.command(&["RPUSH", "list", "x"]);
    redis.command(&["ZADD", "zset", "1", "x"]);
    redis.command(&["HSET", "user", "name", "Ada"]);
    redis.command(&["HSET", "group", "a", "1", "b", "2"]);
    for (name, found) in [
        ("list", "holds list"),
        ("zset", "holds zset"),
        ("user", "holds hash"),
        ("group", "holds hash"),
    ] {
        check_not_a_lock(&server, &ours, name, &[found, "not a lock"]).await;
    }
}

#[tenure_testkit::test]
async fn a_hash_without_expiry_is_busy_and_never_touched() {
    let (server, ours, _java) = stage().await;
    let mut redis = server.client();
    redis.command(&["HSET", "n", READER, "1"]);
    assert!(ours.lock("n").try_acquire().await.unwrap().is_none());
    check_refused(
        ours.lock("n").wait(ms(300)).acquire().await,
        ErrorKind::Busy,
        &[READER, "held without expiry, perhaps not a lock"],
    );
    let holder = ours.lock("n").holder().await.unwrap().unwrap();
    assert_eq!((holder.remaining, holder.lease.as_str()), (None, READER));
    assert_eq!(redis.command(&["HGET", "n", READER]).text(), "1");
    assert_eq!(redis.command(&["PTTL", "n"]).int(), -1);
}

/// Bytes that are no text: whatever they are, somebody holds the lock.
#[tenure_testkit::test]
async fn a_field_of_any_bytes_is_a_holder() {
    let (server, ours, _java) = stage().await;
    let words: [&[u8]; 4] = [b"HSET", b"n", b"\xff\x00\xfe", b"1"];
    server.client().command(&words);
    assert!(ours.lock("n").try_acquire().await.unwrap().is_none());
    assert!(ours.lock("n").holder().await.unwrap().is_some());
}

#[tenure_testkit::test]
async fn what_redisson_keeps_as_its_counter_must_be_one() {
    let (server, ours, _java) = stage().await;
    let mut redis = server.client();
    redis.command(&["RPUSH", "redisson_lock_token:{n}", "x"]);
    let error = refused(ours.lock("n").try_acquire().await);
    let text = error.to_string();
    assert!(
        text.contains("`redisson_lock_token:{n}` is not a string"),
        "{text}"
    );
    assert_eq!(
        redis.command(&["EXISTS", "n"]).int(),
        0,
        "nothing was taken"
    );
}

#[tenure_testkit::test]
async fn settings_that_contradict_each_other_are_refused() {
    let server = RedisServer::start();
    let url = format!("{}?layout=native", server.url());
    check_refused(
        Tenure::builder(url)
            .layout(Layout::Redisson)
            .connect()
            .await,
        ErrorKind::InvalidSetting,
        &[
            "`native` as the layout",
            "the builder set different layouts",
        ],
    );
    check_refused(
        Tenure::builder("memory://")
            .layout(Layout::Redisson)
            .connect()
            .await,
        ErrorKind::InvalidSetting,
        &["`redisson` as the layout", "omit it with `memory://`"],
    );
    let agreed = Tenure::builder(format!("{}?layout=redisson", server.url()));
    agreed.layout(Layout::Redisson).connect().await.unwrap();
    let memory = Tenure::builder("memory://").layout(Layout::Native);
    memory.connect().await.unwrap();
}

/// A lease travels between processes of one layout only.
#[tenure_testkit::test]
async fn a_lease_of_one_layout_is_not_adopted_in_the_other() {
    let server = RedisServer::start();
    let native = Tenure::connect(server.url()).await.unwrap();
    let lease = native.lock("n").acquire().await.unwrap().detach().unwrap();
    let adopted = ours(&server).await.adopt(&lease).await;
    check_refused(adopted, ErrorKind::Lost, &["`n`"]);
    assert_eq!(server.client().command(&["TYPE", "n"]).text(), "string");
}
