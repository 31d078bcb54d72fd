//! Clients with different prefixes do not see, wake or exclude each other.

use std::time::Duration;

use tenure::{Layout, LockName, Locks, Redlock, Released, Tenure};

use super::team::names_on;
use crate::stage::{Stage, StageBuilder, ms, soon};

const PREFIXES: [&str; 3] = ["", "a:", "b:"];

/// A client of each prefix.
async fn clients(stage: &Stage) -> [Locks; 3] {
    let mut clients = Vec::new();
    for prefix in PREFIXES {
        let builder = match stage.builder() {
            StageBuilder::Tenure(builder) => StageBuilder::Tenure(builder.prefix(prefix)),
            StageBuilder::Redlock(builder) => StageBuilder::Redlock(builder.prefix(prefix)),
        };
        clients.push(builder.connect().await.unwrap());
    }
    clients.try_into().unwrap()
}

async fn they_do_not_meet(stage: Stage) {
    let clients = clients(&stage).await;
    let mut guards = Vec::new();
    for client in &clients {
        let guard = client.lock("n").try_acquire().await.unwrap();
        guards.push(guard.expect("no other team has its lock"));
    }
    // Each sees its own holder, by its own name.
    let is_listed = async |client: &Locks, guard: &tenure::Guard| {
        let listing = client.list(|_| true).await.unwrap();
        let [lock] = &listing.locks[..] else {
            return false;
        };
        lock.name.as_str() == "n" && lock.lease.as_ref() == Some(guard.lease_id())
    };
    for (client, guard) in clients.iter().zip(&guards) {
        assert!(soon(async || is_listed(client, guard).await).await);
        assert_eq!(client.clients().await.unwrap().len(), 1);
    }
    // A release of one frees no lock of another, and tells none of its waiters.
    let waiting = {
        let lock = clients[1].lock("n").ttl(ms(20_000));
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    assert!(soon(async || clients[1].stats().busy >= 2).await);
    let woken = clients[1].stats().woken_by_message;
    guards.remove(2).release().await.unwrap();
    guards.remove(0).release().await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    assert_eq!(clients[1].stats().woken_by_message, woken);
    // Nor does a forced one.
    let own = guards.remove(0);
    let forced = clients[2].force_release("n", own.lease_id()).await.unwrap();
    assert_eq!(forced, Released::AlreadyGone);
    own.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_server() {
    they_do_not_meet(Stage::redis()).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory() {
    they_do_not_meet(Stage::memory()).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_redissons_layout() {
    they_do_not_meet(Stage::redisson()).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster() {
    they_do_not_meet(Stage::cluster()).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_redlock() {
    they_do_not_meet(Stage::redlock_3()).await;
}

/// As docs/wire-format.md says, for those who write another client.
#[tenure_testkit::test]
async fn keys_are_those_of_the_wire_format() {
    let server = tenure_testkit::RedisServer::start();
    let url = format!("{}?prefix=a:", server.url());
    let (tenure, other) = (
        Tenure::connect(&url).await.unwrap(),
        Tenure::connect(&url).await.unwrap(),
    );
    let guard = tenure.lock("n").meta("job", "x").acquire().await.unwrap();
    let lock = other.lock("n");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let mut expected = vec![
        "a:n".to_owned(),
        "a:tenure:alive:{a:n}".to_owned(),
        format!("a:tenure:client:{}", tenure.id()),
        format!("a:tenure:client:{}", other.id()),
        "a:tenure:clients".to_owned(),
        "a:tenure:fences".to_owned(),
        "a:tenure:meta:{a:n}".to_owned(),
        "a:tenure:queue:{a:n}".to_owned(),
        "a:tenure:wake:{a:n}".to_owned(),
    ];
    expected.sort();
    let found = || {
        let mut names = names_on(&server);
        names.sort();
        names
    };
    let is_there = soon(async || found() == expected).await;
    assert!(is_there, "{:#?}", found());
    let value = server.client().command(&["GET", "a:n"]);
    assert_eq!(value.text(), guard.lease_id().as_str());
    waiting.abort();
}

/// A foreign library that locks `a:n` and a client with the prefix `a:` that locks `n` exclude each
/// other: the prefix is part of the key.
#[tenure_testkit::test]
async fn another_library_names_the_whole_key() {
    let server = tenure_testkit::RedisServer::start();
    let tenure = Tenure::builder(server.url())
        .prefix("a:")
        .connect()
        .await
        .unwrap();
    server
        .client()
        .command(&["SET", "a:n", "other", "PX", "60000"]);
    assert!(tenure.lock("n").try_acquire().await.unwrap().is_none());
    server
        .client()
        .command(&["SET", "m", "other", "PX", "60000"]);
    assert!(tenure.lock("m").try_acquire().await.unwrap().is_some());
}

/// A watched lease that is deleted: the invalidation names the key.
#[tenure_testkit::test]
async fn a_deleted_lock_is_noticed_at_once() {
    for layout in [Layout::Native, Layout::Redisson] {
        let server = tenure_testkit::RedisServer::start();
        let builder = Tenure::builder(server.url()).prefix("a:").layout(layout);
        let tenure = builder.connect().await.unwrap();
        // Renewed every four minutes.
        let guard = tenure
            .lock("n")
            .ttl(Duration::from_secs(720))
            .acquire()
            .await
            .unwrap();
        // It is watched once it is a second old.
        let is_watched = soon(async || server.info("tracking_total_keys") == "1").await;
        assert!(is_watched, "{layout}");
        server.client().command(&["DEL", "a:n"]);
        let lost = tokio::time::timeout(Duration::from_secs(30), guard.lost()).await;
        assert!(lost.is_ok(), "{layout}: it was not noticed");
    }
}

#[tenure_testkit::test]
async fn nodes_of_a_redlock_store_what_they_know_for_each_prefix() {
    let stage = Stage::redlock_3();
    let urls = match &stage {
        Stage::Redlock { nodes, .. } => nodes.nodes.urls(),
        _ => unreachable!(),
    };
    let builder = Redlock::builder(urls).prefix("a:");
    let builder = builder
        .longest_ttl(Duration::from_secs(60))
        .ttl(Duration::from_secs(45));
    let redlock = builder.connect().await.unwrap();
    let guard = redlock.lock("n").acquire().await.unwrap();
    for server in stage.masters() {
        let names = soon(async || {
            let names = names_on(server);
            [
                "a:tenure:nodes",
                "a:tenure:longest-ttl",
                "a:tenure:fence:{a:n}",
            ]
            .iter()
            .all(|name| names.iter().any(|found| found == name))
        });
        assert!(names.await, "{:?}", names_on(server));
        assert!(names_on(server).iter().all(|name| name.starts_with("a:")));
    }
    guard.release().await.unwrap();
    assert!(LockName::new("n").is_ok());
}
