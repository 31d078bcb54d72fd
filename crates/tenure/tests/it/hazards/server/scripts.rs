//! H22, H31, H32: a script that fails leaves nothing half done, and fences never repeat.

use tenure::{ErrorKind, Tenure};
use tenure_testkit::{RedisServer, RespClient};

use crate::lua::{ACQUIRE, ADOPT, RECORD, RELEASE, RENEW, STAY, WAITERS, check_bad_numbers, eval};
use crate::stage::ms;
use crate::verdict::{check_nothing_left, check_refused, check_usable, refused};

const LOCK_KEYS: [&str; 6] = [
    "n",
    "tenure:fences",
    "tenure:fences:{n}",
    "tenure:queue:{n}",
    "tenure:alive:{n}",
    "tenure:meta:{n}",
];
const COUNTER: &str = LOCK_KEYS[1];
/// The last fence that Lua and JSON can tell from its neighbours is below 2^53.
const FENCE_MAX: u64 = 9_007_199_254_740_990;

#[test]
fn h22_adopt_refuses_every_number_that_is_none() {
    let latest = FENCE_MAX.to_string();
    check_bad_numbers(
        ADOPT,
        &["n", "tenure:meta:{n}"],
        &["old", "new", "1000", &latest],
        &[2, 3],
        &["SET", "n", "old", "PX", "60000"],
    );
}

const ACQUIRE_ARGS: [&str; 8] = [
    "me",
    "30000",
    "9000000000000000",
    "7",
    "queue",
    "",
    "field",
    "value",
];

#[test]
fn h22_acquire_checks_every_number_before_it_writes() {
    let prepare = ["SET", "other", "1"];
    check_bad_numbers(ACQUIRE, &LOCK_KEYS, &ACQUIRE_ARGS, &[1, 2, 3], &prepare);
}

#[test]
fn h22_acquire_of_a_busy_lock_checks_every_number_too() {
    let prepare = ["SET", "n", "somebody"];
    check_bad_numbers(ACQUIRE, &LOCK_KEYS, &ACQUIRE_ARGS, &[1, 2, 3], &prepare);
}

#[test]
fn h22_acquire_checks_that_metadata_come_in_pairs() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let reply = eval(&mut redis, ACQUIRE, &LOCK_KEYS, &ACQUIRE_ARGS[..7]);
    assert!(reply.is_err(), "{reply:?}");
    assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
}

#[test]
fn h22_renew_checks_its_number_before_it_writes() {
    let keys = ["n", "tenure:meta:{n}"];
    check_bad_numbers(
        RENEW,
        &keys,
        &["me", "1000", "0"],
        &[1],
        &["SET", "n", "me"],
    );
}

#[test]
fn h22_a_record_never_stays_without_an_end() {
    let good = ["30000", "all", "1", "host", "h"];
    let prepare = ["SET", "other", "1"];
    check_bad_numbers(RECORD, &["tenure:client:1"], &good, &[0, 2], &prepare);
}

/// Whatever is granted has an end, also when the grant is the second half of something.
#[test]
fn h22_every_key_of_a_granted_lock_has_an_end() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let reply = eval(&mut redis, ACQUIRE, &LOCK_KEYS, &ACQUIRE_ARGS).unwrap();
    let mut other = ACQUIRE_ARGS;
    other[0] = "other";
    eval(&mut redis, ACQUIRE, &LOCK_KEYS, &other).unwrap();
    check_ends(&mut redis, 6);
    let keys = [
        "n",
        "tenure:queue:{n}",
        "tenure:alive:{n}",
        "tenure:fences",
        "tenure:fences:{n}",
        "tenure:meta:{n}",
    ];
    let used = reply.int().to_string();
    eval(&mut redis, RELEASE, &keys, &["me", "", &used]).unwrap();
    assert_eq!(redis.command(&["GET", "n"]).text(), "other");
    // The lock and the shared counter.
    check_ends(&mut redis, 2);
}

/// A waiter that says that it lives never gets a place by that which it has lost.
#[test]
fn h22_stay_never_makes_a_place() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let keys = ["tenure:queue:{n}", "tenure:alive:{n}"];
    let reply = eval(&mut redis, STAY, &keys, &["me"]).unwrap();
    assert_eq!(reply.int(), 0);
    assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
    redis.command(&["ZADD", keys[0], "1", "me"]);
    let reply = eval(&mut redis, STAY, &keys, &["me"]).unwrap();
    assert_eq!(reply.int(), 1);
    assert_eq!(redis.command(&["EXISTS", keys[1]]).int(), 0);
}

/// Its time is moved forward, and then it is no longer taken for dead.
#[test]
fn h22_stay_moves_forward_until_when_a_waiter_lives() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let keys = ["tenure:queue:{n}", "tenure:alive:{n}"];
    for (place, waiter) in [("1", "silent"), ("2", "dead"), ("3", "living")] {
        redis.command(&["ZADD", keys[0], place, waiter]);
    }
    redis.command(&["ZADD", keys[1], "1", "dead", "1", "living"]);
    let waiters = |redis: &mut RespClient| {
        let reply = eval(redis, WAITERS, &keys, &[]).unwrap();
        let waiters = reply.array().iter();
        waiters.map(|it| it.text().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(waiters(&mut redis), ["silent"]);
    eval(&mut redis, STAY, &keys, &["living"]).unwrap();
    assert_eq!(waiters(&mut redis), ["silent", "living"]);
    let time = redis.command(&["TIME"]).array()[0].text().to_owned();
    let now_ms = time.parse::<i64>().unwrap() * 1_000;
    let until = redis.command(&["ZSCORE", keys[1], "living"]);
    let left = until.text().parse::<i64>().unwrap() - now_ms;
    assert!((1..=7_000).contains(&left), "{left}");
}

#[track_caller]
fn check_ends(redis: &mut RespClient, count: usize) {
    let keys = redis.command(&["KEYS", "*"]);
    assert_eq!(keys.array().len(), count, "{keys:?}");
    for key in keys.array() {
        let left = redis.command(&["PTTL", key.text()]).int();
        assert!(left > 0, "{} has no end", key.text());
    }
}

/// The script has taken the lock when the server refuses its next command. Nobody holds that lock,
/// so it must not stay for its ttl.
#[tenure_testkit::test]
async fn h22_a_refusal_in_the_middle_of_a_grant_leaves_nothing() {
    let rules = "on >pw ~* &* +@all -hset";
    let server = RedisServer::builder().user("worker", rules).start();
    let tenure = Tenure::connect(format!("redis://worker:pw@{}", server.addr()))
        .await
        .unwrap();
    for wait in [true, false] {
        let lock = tenure.lock("n").meta("why", "report");
        let error = if wait {
            refused(lock.wait(ms(2_000)).acquire().await)
        } else {
            refused(lock.try_acquire().await)
        };
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        check_nothing_left(&server, "n");
    }
    check_usable(&tenure, "n").await;
}

/// A foreign key in place of the queue: waiting may fail, releasing must not.
#[tenure_testkit::test]
async fn h22_a_broken_queue_does_not_keep_a_lock_from_being_released() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server
        .client()
        .command(&["SET", "tenure:queue:{n}", "mine"]);
    check_usable(&tenure, "n").await;
    let guard = tenure.lock("n").acquire().await.unwrap();
    check_refused(
        tenure.lock("n").wait(ms(500)).acquire().await,
        ErrorKind::Protocol,
        &["WRONGTYPE"],
    );
    assert_eq!(guard.release().await.unwrap(), tenure::Released::WasHeld);
    assert!(server.client().command(&["GET", "n"]).is_nil());
}

#[tenure_testkit::test]
async fn h31_fences_are_exact_up_to_the_last_one() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    set_counter(&server, &id_of(FENCE_MAX - 3));
    for expected in FENCE_MAX - 2..=FENCE_MAX {
        let guard = tenure.lock("n").acquire().await.unwrap();
        assert_eq!(guard.fence().get(), expected);
        guard.release().await.unwrap();
    }
    check_used_up(&server, &tenure).await;
}

#[tenure_testkit::test]
async fn h31_h32_a_used_up_counter_is_refused() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let last_of_redis = format!("{0}-{0}", u64::MAX);
    for counter in [id_of(FENCE_MAX), id_of(FENCE_MAX + 1_000), last_of_redis] {
        set_counter(&server, &counter);
        check_used_up(&server, &tenure).await;
    }
}

/// The counter is a stream without entries: its last id is the last fence.
fn set_counter(server: &RedisServer, id: &str) {
    let mut redis = server.client();
    redis.command(&["DEL", COUNTER]);
    redis.command(&["XADD", COUNTER, "MAXLEN", "0", id, "f", ""]);
}

/// The id of a fence in its counter.
fn id_of(fence: u64) -> String {
    format!("{}-{}", fence / 1_000, fence % 1_000)
}

async fn check_used_up(server: &RedisServer, tenure: &Tenure) {
    let parts = ["fence counter", "`tenure:fences`", "exhausted"];
    check_refused(
        tenure.lock("n").try_acquire().await,
        ErrorKind::Protocol,
        &parts,
    );
    check_refused(
        tenure.lock("n").acquire().await,
        ErrorKind::Protocol,
        &parts,
    );
    check_nothing_left(server, "n");
}

/// The holder still gets rid of the lock, though no fence can be minted for the next one.
#[tenure_testkit::test]
async fn h32_a_lock_whose_counter_ended_can_still_be_released() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(1_000)).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let tenure = tenure.clone();
        async move { tenure.lock("n").acquire().await }
    });
    tokio::time::sleep(ms(100)).await;
    set_counter(&server, &id_of(FENCE_MAX));
    assert_eq!(guard.release().await.unwrap(), tenure::Released::WasHeld);
    check_refused(waiting.await.unwrap(), ErrorKind::Protocol, &["exhausted"]);
    check_nothing_left(&server, "n");
}
