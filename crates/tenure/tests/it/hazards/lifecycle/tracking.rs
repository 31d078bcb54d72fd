//! What the server tells of watched leases: their loss is known at once, not at the next renewal.

use std::time::Instant;

use tenure::{Guard, LostReason, Tenure};
use tenure_testkit::RedisServer;

use crate::stage::{ms, soon};
use crate::verdict::check_within;

/// A lease that is old enough to be watched, and whose next renewal is seconds away.
async fn watched(tenure: &Tenure) -> Guard {
    let guard = tenure.lock("n").ttl(ms(24_000)).acquire().await.unwrap();
    tokio::time::sleep(ms(1_400)).await;
    guard
}

/// The connections that track keys, by their ids.
fn tracking_connections(server: &RedisServer) -> Vec<String> {
    let list = server.client().command(&["CLIENT", "LIST"]);
    let word = |line: &str, key: &str| {
        let mut words = line.split(' ');
        words.find_map(|word| word.strip_prefix(key).map(str::to_owned))
    };
    list.text()
        .lines()
        .filter(|line| word(line, "flags=").is_some_and(|flags| flags.contains('t')))
        .filter_map(|line| word(line, "id="))
        .collect()
}

#[tenure_testkit::test]
async fn a_deleted_lease_is_noticed_at_once() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = watched(&tenure).await;
    let begun = Instant::now();
    server.client().command(&["DEL", "n"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    check_within(begun, ms(5_000));
}

#[tenure_testkit::test]
async fn an_overwritten_lease_is_noticed_at_once() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = watched(&tenure).await;
    let begun = Instant::now();
    server.client().command(&["SET", "n", "theirs"]);
    assert_eq!(guard.lost().await, LostReason::Taken);
    check_within(begun, ms(5_000));
    drop(guard);
    tokio::time::sleep(ms(100)).await;
    let found = server.client().command(&["GET", "n"]);
    assert_eq!(found.text(), "theirs", "dropping it harms nobody");
}

#[tenure_testkit::test]
async fn flushing_the_server_is_noticed_at_once() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = watched(&tenure).await;
    let begun = Instant::now();
    server.client().command(&["FLUSHALL"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    check_within(begun, ms(5_000));
}

/// Renewals make the server forget what it tracks; each must ask for it again.
#[tenure_testkit::test]
async fn a_lease_is_still_watched_after_renewals() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(12_000)).acquire().await.unwrap();
    assert!(soon(async || tenure.stats().renewed >= 1).await);
    assert!(soon(async || tenure.stats().renewed >= 2).await);
    let renewed = tenure.stats().renewed;
    let begun = Instant::now();
    server.client().command(&["DEL", "n"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    // The next renewal would be four seconds away.
    check_within(begun, ms(3_500));
    assert_eq!(tenure.stats().renewed, renewed, "no renewal was needed");
}

#[tenure_testkit::test]
async fn where_tracking_is_refused_the_next_renewal_notices() {
    let rules = "on >pw ~* &* +@all -client|tracking";
    let server = RedisServer::builder().user("plain", rules).start();
    let url = format!("redis://plain:pw@{}", server.addr());
    let tenure = Tenure::connect(url).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(9_000)).acquire().await.unwrap();
    assert!(soon(async || tenure.stats().tracking_refused > 0).await);
    assert!(soon(async || tenure.stats().renewed > 0).await);
    let begun = Instant::now();
    server.client().command(&["DEL", "n"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    let noticed = begun.elapsed();
    assert!(noticed > ms(700), "{noticed:?}: who told?");
    check_within(begun, ms(8_000));
    assert_eq!(tenure.stats().tracking_refused, 1, "said once");
}

#[tenure_testkit::test]
async fn tracking_comes_back_after_its_connection_was_killed() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = watched(&tenure).await;
    for _ in 0..2 {
        let ids = tracking_connections(&server);
        assert_eq!(ids.len(), 1, "one connection tracks");
        server.client().command(&["CLIENT", "KILL", "ID", &ids[0]]);
        let came_back = soon(async || {
            let now = tracking_connections(&server);
            now.len() == 1 && now != ids
        });
        assert!(came_back.await, "there is a new one");
        tokio::time::sleep(ms(200)).await;
        assert!(guard.is_valid());
    }
    let begun = Instant::now();
    server.client().command(&["DEL", "n"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    check_within(begun, ms(5_000));
}

/// The key is deleted while nobody listens.
#[tenure_testkit::test]
async fn what_happens_while_tracking_is_away_is_noticed_when_it_is_back() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = watched(&tenure).await;
    let ids = tracking_connections(&server);
    let mut redis = server.client();
    let begun = Instant::now();
    redis.command(&["MULTI"]);
    redis.command(&["CLIENT", "KILL", "ID", &ids[0]]);
    redis.command(&["DEL", "n"]);
    redis.command(&["EXEC"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    check_within(begun, ms(2_000));
}
