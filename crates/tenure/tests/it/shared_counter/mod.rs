//! One fence counter for all locks of a database, and what becomes of the counters of single locks.

use std::time::Duration;

use tenure::{Released, Tenure};
use tenure_testkit::{ClockShim, Cluster, RedisServer, RespClient, eventually};

use crate::lua::eval;

const SHARED: &str = "tenure:fences";
const SOON: Duration = Duration::from_secs(20);

async fn fence(tenure: &Tenure, name: &str) -> u64 {
    let guard = tenure.lock(name).acquire().await.unwrap();
    let fence = guard.fence().get();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    fence
}

fn keys(redis: &mut RespClient, pattern: &str) -> Vec<String> {
    let keys = redis.command(&["KEYS", pattern]);
    let mut keys: Vec<_> = keys.array().iter().map(|it| it.text().to_owned()).collect();
    keys.sort();
    keys
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn no_key_is_left_for_each_name() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut last = 0;
    for number in 0..200 {
        let next = fence(&tenure, &format!("n{number}")).await;
        assert!(next > last, "fences grow over all names");
        last = next;
    }
    let mut redis = server.client();
    assert_eq!(keys(&mut redis, "tenure:fence*"), [SHARED]);
    assert!(redis.command(&["PTTL", SHARED]).int() > 0);
}

/// Hand-off reserves fences, and a lock has its own counter only for as long as that.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_handed_off_needs_no_counter_any_more() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let tasks = (0..8).map(|_| {
        let tenure = tenure.clone();
        tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..50 {
                last = fence(&tenure, "n").await;
            }
            last
        })
    });
    let mut last = 0;
    for task in tasks.collect::<Vec<_>>() {
        last = task.await.unwrap().max(last);
    }
    assert!(tenure.stats().handed_off > 10, "nothing was handed off");
    let mut redis = server.client();
    assert!(eventually(SOON, || keys(&mut redis, "tenure:fence*") == [SHARED]));
    assert!(fence(&tenure, "n").await > last);
}

/// A lease that had reserved fences is lost. Its counter stays, and the next grant, by a transaction or
/// not, is above what was reserved although the clock was set back.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn what_a_lost_lease_reserved_is_not_granted_again() {
    let clock = ClockShim::compile().expect("a C compiler");
    let server = RedisServer::builder().clock(clock.clone()).start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    fence(&tenure, "other").await; // From now on it asks by a transaction.
    let mut redis = server.client();
    let time = redis.command(&["TIME"]).array()[0].text().to_owned();
    let reserved = time.parse::<u64>().unwrap() + 60;
    let own = "tenure:fences:{n}";
    let id = format!("{reserved}000-7");
    redis.command(&["XADD", own, "MAXLEN", "0", &id, "f", ""]);
    let next = fence(&tenure, "n").await;
    assert!(next > reserved * 1_000_000 + 7, "{next} after {id}");
    assert!(fence(&tenure, "n").await > next);
    assert_eq!(keys(&mut redis, own), [own], "the clock has not passed it");
    clock.step_forward(Duration::from_secs(120));
    let passed = fence(&tenure, "n").await;
    assert!(passed > next);
    assert!(keys(&mut redis, own).is_empty(), "the clock has passed it");
    assert!(fence(&tenure, "n").await > passed);
}

/// A client of the version in which each lock had its own counter.
fn fence_of_older_client(redis: &mut RespClient, number: u64) -> u64 {
    const ACQUIRE: &str = include_str!("acquire_with_own_counter.lua");
    let id = format!("older:{number}");
    let keys = ["n", "tenure:fences:{n}"];
    let reply = eval(
        redis,
        ACQUIRE,
        &keys,
        &[&id, "30000", "9000000000000000", "1"],
    );
    let fence = reply.unwrap().int();
    redis.command(&["DEL", "n"]);
    u64::try_from(fence).unwrap()
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn fences_grow_beside_clients_that_know_no_shared_counter() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    let mut last = 0;
    for turn in 0..300_u64 {
        // In a row, and in turns.
        let older = turn % 7 < 3 || turn % 2 == 0;
        let next = if older {
            fence_of_older_client(&mut redis, turn)
        } else {
            fence(&tenure, "n").await
        };
        assert!(
            next > last,
            "turn {turn}, older {older}: {next} after {last}"
        );
        last = next;
    }
}

/// A node of a cluster that is used as one server: all keys of a call must be in one slot.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn where_all_keys_must_be_in_one_slot_each_lock_has_its_counter() {
    let cluster = Cluster::builder().start();
    let server = cluster.master_of_key("n");
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let first = fence(&tenure, "n").await;
    assert!(fence(&tenure, "n").await > first);
    let mut redis = server.client();
    assert_eq!(keys(&mut redis, "tenure:fence*"), ["tenure:fences:{n}"]);
}

/// Two that ask for one lock in one transaction share its fence, but only one is granted.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn one_of_two_that_ask_together_is_granted() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    fence(&tenure, "n").await;
    for _ in 0..50 {
        let tries = (0..8).map(|_| {
            let tenure = tenure.clone();
            tokio::spawn(async move { tenure.lock("n").try_acquire().await.unwrap() })
        });
        let mut granted = Vec::new();
        for task in tries.collect::<Vec<_>>() {
            granted.extend(task.await.unwrap());
        }
        assert!(granted.len() <= 1, "{} hold it", granted.len());
        for guard in granted {
            guard.release().await.unwrap();
        }
    }
}
