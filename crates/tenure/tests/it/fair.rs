//! Fair locks where a real server keeps the queue: dead waiters, lost replies, wrong keys and numbers.

use std::process::Command;
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Layout, Tenure};
use tenure_testkit::{ClientProcess, RedisServer, RespClient, eventually};
use tokio::time::timeout;

use crate::hazards::wire::Wire;
use crate::lua::{FAIR_ACQUIRE, check_bad_numbers, eval};
use crate::stage::{ms, soon};

const LONG: Duration = ms(30_000);
const LATEST: &str = "9000000000000000";
const QUEUE: &str = "tenure:queue:{n}";
const ALIVE: &str = "tenure:alive:{n}";
const WAIT_AT: &str = "TENURE_TEST_WAIT_FAIRLY_AT";

async fn connect(server: &RedisServer) -> Tenure {
    Tenure::connect(server.url()).await.unwrap()
}

fn now_ms(redis: &mut RespClient) -> i64 {
    let now = redis.command(&["TIME"]);
    now.array()[0].text().parse::<i64>().unwrap() * 1_000
}

/// Puts waiters of a process that has died at the head of the queue. They count as living for so long.
fn put_dead(redis: &mut RespClient, count: usize, lives_ms: i64) {
    let ends = (now_ms(redis) + lives_ms).to_string();
    for number in 0..count {
        let id = format!(
            "tenure:00112233445566778899aabbccddeeff:00{}:30000",
            number + 1
        );
        redis.command(&["ZADD", QUEUE, &number.to_string(), &id]);
        redis.command(&["ZADD", ALIVE, &ends, &id]);
    }
}

/// They are all passed over in one step.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_died_cost_nothing() {
    let server = RedisServer::start();
    let tenure = connect(&server).await;
    put_dead(&mut server.client(), 1_000, -10_000);
    let calls = server.command_calls("evalsha");
    let guard = tenure.lock("n").fair().try_acquire().await.unwrap();
    assert!(guard.is_some(), "the dead are waited for");
    assert_eq!(server.client().command(&["EXISTS", QUEUE]).int(), 0);
    assert!(server.command_calls("evalsha") <= calls + 1);
}

/// They are offered the lock as if they lived, each for a moment, and no longer than they count as living.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_have_just_died_cost_a_moment() {
    let server = RedisServer::start();
    let tenure = connect(&server).await;
    put_dead(&mut server.client(), 2, 60_000);
    let begun = Instant::now();
    let guard = timeout(LONG, tenure.lock("n").fair().acquire()).await;
    assert!(guard.expect("in time").unwrap().is_valid());
    // Half a second for each, as long as the server sees that nobody hears of the offer.
    assert!(begun.elapsed() >= ms(900), "{:?}", begun.elapsed());
}

/// A process whose callers wait for their turn. Does nothing unless started by the test below.
#[test]
fn waiting_program() {
    let Ok(url) = std::env::var(WAIT_AT) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let tenure = Tenure::connect(&url).await.unwrap();
        let waiting = (0..3).map(|_| {
            let lock = tenure.lock("n").fair();
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        });
        for waiter in waiting.collect::<Vec<_>>() {
            let _ = waiter.await;
        }
    });
}

/// The first places of the queue are those of a process that is killed.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h39_fair_waiters_that_are_killed_are_passed_over() {
    let server = RedisServer::start();
    let tenure = connect(&server).await;
    let holder = tenure.lock("n").fair().acquire().await.unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "fair::waiting_program", "--nocapture"]);
    let dead = ClientProcess::spawn(program.env(WAIT_AT, server.url()));
    let waiters = |count: i64| {
        let mut redis = server.client();
        let is_so = || redis.command(&["ZCARD", QUEUE]).int() == count;
        assert!(eventually(LONG, is_so), "not {count} waiters");
    };
    waiters(3);
    let lock = tenure.lock("n").fair();
    let living = tokio::spawn(async move { lock.acquire().await.unwrap() });
    waiters(4);
    dead.kill();
    holder.release().await.unwrap();
    let next = timeout(LONG, living)
        .await
        .expect("the dead are waited for");
    assert!(next.unwrap().is_valid());
}

/// A queue that is no queue blocks nobody.
#[tenure_testkit::test]
async fn a_queue_of_the_wrong_type_is_an_empty_one() {
    let server = RedisServer::start();
    let tenure = connect(&server).await;
    server.client().command(&["SET", QUEUE, "x"]);
    let guard = tenure.lock("n").fair().try_acquire().await.unwrap();
    assert!(guard.is_some());
}

/// The attempt has run: its repetition finds its own grant.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_lost_reply_on_a_fair_acquire_ends_in_one_grant() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    wire.proxy.reset_after_request_with(b"EVALSHA");
    let guard = a.lock("n").fair().acquire().await.unwrap();
    assert!(b.lock("n").fair().try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let is_free = async || b.lock("n").fair().try_acquire().await.unwrap().is_some();
    assert!(soon(is_free).await);
}

/// A caller gives up, and its request arrives later: it leaves neither a lease nor a place.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_a_late_fair_acquire_leaves_nothing() {
    let wire = Wire::start();
    let a = wire.builder().response_timeout(ms(300));
    let (a, b) = (a.connect().await.unwrap(), wire.bystander().await);
    wire.proxy.hold_requests();
    let acquiring = a.lock("n").fair().wait(ms(500));
    assert!(acquiring.acquire().await.is_err());
    wire.proxy.release_requests();
    for _ in 0..3 {
        let guard = timeout(LONG, b.lock("n").fair().acquire()).await;
        guard.expect("it is free").unwrap().release().await.unwrap();
    }
}

#[tenure_testkit::test]
async fn fair_locks_are_refused_in_redissons_layout() {
    let server = RedisServer::start();
    let tenure = Tenure::builder(server.url()).layout(Layout::Redisson);
    let tenure = tenure.connect().await.unwrap();
    let error = tenure.lock("n").fair().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting);
    assert!(error.to_string().contains("Redisson's layout"), "{error}");
    assert_eq!(server.client().command(&["EXISTS", "n"]).int(), 0);
}

#[tenure_testkit::test]
async fn a_key_of_another_kind_is_not_locked() {
    let server = RedisServer::start();
    let tenure = connect(&server).await;
    server.client().command(&["LPUSH", "n", "x"]);
    let error = tenure.lock("n").fair().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotALock);
    assert!(error.to_string().contains("list"), "{error}");
    assert_eq!(server.client().command(&["EXISTS", QUEUE]).int(), 0);
}

const KEYS: [&str; 5] = ["n", "tenure:fences", "tenure:fences:{n}", QUEUE, ALIVE];

#[test]
fn bad_numbers_are_refused_before_anything_is_written() {
    let good = ["me", "1000", LATEST, "1", "queue", ""];
    check_bad_numbers(FAIR_ACQUIRE, &KEYS, &good, &[1, 2], &["DEL", "n"]);
}

#[test]
fn whatever_the_script_writes_expires() {
    let server = RedisServer::start();
    let mut redis = server.client();
    for lease in ["me", "other"] {
        let words = [lease, "1000", LATEST, "1", "queue", ""];
        eval(&mut redis, FAIR_ACQUIRE, &KEYS, &words).unwrap();
    }
    for key in ["n", "tenure:fences", QUEUE, ALIVE] {
        let left = redis.command(&["PTTL", key]).int();
        assert!(left > 0, "{key}: {left}");
    }
}
