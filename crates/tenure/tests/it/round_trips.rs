//! What an operation costs the server, counted by the server itself.

use std::time::Instant;

use tenure::Tenure;
use tenure_testkit::RedisServer;

use crate::stage::{ms, soon};

#[tenure_testkit::test]
async fn a_free_lock_is_taken_in_one_round_trip_and_released_in_one() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.reset_stats();
    for _ in 0..10 {
        let guard = tenure.lock("n").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(questions(&server), 20);
    assert_eq!(server.command_calls("eval"), 0);
    assert_eq!(server.command_calls("subscribe"), 0);
    assert_eq!(
        server.command_calls("publish"),
        0,
        "nobody waits, nobody is told"
    );
}

#[tenure_testkit::test]
async fn re_entering_costs_nothing() {
    let server = RedisServer::start();
    let owner = Tenure::connect(server.url()).await.unwrap().owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    server.reset_stats();
    for _ in 0..10 {
        let inner = owner.lock("n").acquire().await.unwrap();
        inner.release().await.unwrap();
    }
    assert_eq!(questions(&server), 0);
    drop(outer);
}

#[tenure_testkit::test]
async fn a_busy_lock_is_tried_in_one_round_trip() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let _guard = tenure.lock("n").acquire().await.unwrap();
    server.reset_stats();
    for count in 1..=3 {
        assert!(tenure.lock("n").try_acquire().await.unwrap().is_none());
        assert_eq!(questions(&server), count);
    }
    // A lock that is found busy again and again is not written to.
    assert!(server.command_calls("xadd") <= 1);
}

#[tenure_testkit::test]
async fn a_held_lock_costs_three_renewals_per_ttl() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(600)).acquire().await.unwrap();
    server.reset_stats();
    tokio::time::sleep(ms(900)).await;
    let calls = server.command_calls("evalsha");
    // Four in 900 ms; the record, once the lease is half a second old, costs two more.
    assert!((3..=8).contains(&calls), "{calls}");
    guard.release().await.unwrap();
}

#[tenure_testkit::test]
async fn a_released_lock_costs_nothing_more() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let released = tenure.lock("n").ttl(ms(900)).acquire().await.unwrap();
    let dropped = tenure.lock("m").ttl(ms(900)).acquire().await.unwrap();
    drop(dropped);
    released.release().await.unwrap();
    assert!(soon(async || tenure.stats().released == 2).await);
    server.reset_stats();
    // Renewals would be due after a third of the ttl.
    tokio::time::sleep(ms(600)).await;
    assert_eq!(server.command_calls("evalsha"), 0, "renewed in spite of it");
}

/// Of those who wait, only the first look after a lock whose holder renews it; the others have an eye
/// on its lease, say rarely that they are there, and hear of everything else.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_crowd_that_waits_costs_little_while_nothing_changes() {
    const CROWD: usize = 24;
    let server = RedisServer::start();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let _guard = holder.lock("n").ttl(ms(9_000)).acquire().await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        let tenure = Tenure::connect(server.url()).await.unwrap();
        let lock = tenure.lock("n");
        tokio::spawn(async move { lock.acquire().await.map(drop) });
        crowd.push(tenure);
    }
    // Each has looked once, after a third of the ttl: what it costs to come is over.
    let looked = |tenure: &Tenure| tenure.stats().woken_by_timer > 0;
    let settled = tenure_testkit::eventually(ms(60_000), || crowd.iter().all(looked));
    assert!(settled, "they do not wait");
    server.reset_stats();
    let begun = Instant::now();
    tokio::time::sleep(ms(10_000)).await;
    let (commands, told) = commands(&server);
    let per_second = commands / begun.elapsed().as_secs();
    // That it lives, each says in four commands every two seconds. What else is asked would be about 75
    // if all asked once in a third of the ttl and pinged every three seconds.
    let alive = CROWD as u64 * 4 / 2;
    assert!(
        per_second <= 40 + alive * 5 / 4,
        "{per_second} commands a second: {told}"
    );
}

/// How many commands the server has carried out, those of scripts as well, without those of the kit.
fn commands(server: &RedisServer) -> (u64, String) {
    let stats = server.client().command(&["INFO", "commandstats"]);
    let of_kit = [
        "cmdstat_info:",
        "cmdstat_auth:",
        "cmdstat_config|resetstat:",
    ];
    let is_counted = |line: &&str| !of_kit.iter().any(|name| line.starts_with(name));
    let calls = |line: &str| -> Option<u64> {
        let calls = line.split_once(":calls=")?.1.split(',').next()?;
        calls.parse().ok()
    };
    let lines: Vec<&str> = stats.text().lines().filter(is_counted).collect();
    let count = lines.iter().filter_map(|line| calls(line)).sum();
    (count, lines.join(" "))
}

/// How often the server was asked: by a script, or by a transaction.
fn questions(server: &RedisServer) -> u64 {
    server.command_calls("evalsha") + server.command_calls("exec")
}
