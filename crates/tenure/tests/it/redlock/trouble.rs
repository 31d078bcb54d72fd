//! Bad input, and nodes in trouble.

use tenure::{ErrorKind, Redlock};
use tenure_testkit::{Fsync, RedisServer, RedlockNodes};

use super::{connect, count};
use crate::log;
use crate::stage::{ms, soon};

async fn refused(urls: &[String], kind: ErrorKind, parts: &[&str]) {
    let builder = Redlock::builder(urls).unreachable_after(ms(1_500));
    let error = builder.connect().await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` in: {text}");
    }
}

fn urls<const N: usize>(urls: [&str; N]) -> Vec<String> {
    urls.map(ToOwned::to_owned).to_vec()
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_or_wrong_nodes_are_refused_before_anything_is_sent() {
    let setting = ErrorKind::InvalidSetting;
    refused(&[], setting, &["`0`", "at least three"]).await;
    refused(&urls(["redis://h"]), setting, &["`1`", "`Tenure::connect`"]).await;
    let memory = urls(["redis://a", "redis://b", "memory://"]);
    refused(&memory, setting, &["`memory://`", "Redis servers"]).await;
    let bad = urls(["redis://a", "redis://b:port", "redis://c"]);
    refused(
        &bad,
        ErrorKind::InvalidUrl,
        &["`redis://b:***`", "the port `***`"],
    )
    .await;
    let mixed = urls([
        "redis://a?layout=redisson",
        "redis://b?layout=native",
        "redis://c",
    ]);
    refused(&mixed, setting, &["layout", "all must be the same"]).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_node_twice_is_refused() {
    let nodes = RedlockNodes::start();
    let mut urls = nodes.urls();
    // Another name for the first.
    urls[2] = urls[0].replace("127.0.0.1", "localhost");
    let parts = ["the same server as", "vote twice"];
    refused(&urls, ErrorKind::InvalidSetting, &parts).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_even_number_is_warned_of_and_works() {
    let nodes = RedlockNodes::builder().nodes(4).start();
    log::keep();
    let client = connect(&nodes).await;
    assert!(log::said(&["redlock.even", "nodes=4"]));
    let guard = client.lock("n").acquire().await.unwrap();
    assert!(guard.is_valid());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_than_a_majority_are_listed_with_their_reasons() {
    let nodes = RedlockNodes::start();
    nodes.node(0).kill();
    nodes.node(1).pause();
    let dead = nodes.node(0).port().to_string();
    let hung = nodes.node(1).port().to_string();
    let parts = [
        "fewer than 2 of 3 nodes can be reached",
        &dead,
        "is Redis running?",
        &hung,
        "in time",
    ];
    refused(&nodes.urls(), ErrorKind::Unavailable, &parts).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_down_is_warned_of_and_joins_later() {
    let nodes = RedlockNodes::start();
    nodes.node(2).kill();
    log::keep();
    let client = connect(&nodes).await;
    let port = nodes.node(2).port().to_string();
    assert!(log::said(&["redlock.node_unreachable", &port]));
    nodes.node(2).restart();
    let on_all = async || {
        let guard = client.lock("n").acquire().await.unwrap();
        tokio::time::sleep(ms(20)).await;
        let on_all = count(&nodes, "n") == 3;
        guard.release().await.unwrap();
        on_all
    };
    assert!(soon(on_all).await, "the node was never asked");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_with_another_password_is_named() {
    let nodes = RedlockNodes::builder().password(1, "hunter2").start();
    let mut urls = nodes.urls();
    urls[1] = urls[1].replace("hunter2", "wrong");
    let port = nodes.node(1).port().to_string();
    refused(&urls, ErrorKind::Denied, &["wrong user or password", &port]).await;
    let client = connect(&nodes).await;
    assert!(client.lock("n").try_acquire().await.unwrap().is_some());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_that_is_too_old_is_named_and_a_newer_one_is_no_trouble() {
    let nodes = RedlockNodes::builder().proxied().start();
    let version = nodes.node(1).info("redis_version");
    let says = |other: &str| {
        let (from, to) = (
            format!("redis_version:{version}"),
            format!("redis_version:{other}"),
        );
        assert_eq!(from.len(), to.len(), "replies keep their length");
        nodes.proxy(1).heal();
        nodes
            .proxy(1)
            .rewrite_replies(from.as_bytes(), to.as_bytes());
    };
    let padded = |start: &str| format!("{start}{}", "0".repeat(version.len() - start.len()));
    says(&padded("6.2.1"));
    let port = nodes.proxy(1).addr().port().to_string();
    let parts = ["`6.2.1", "7.0 or newer", &port];
    refused(&nodes.urls(), ErrorKind::Unsupported, &parts).await;
    says(&padded("9.9.1"));
    let client = connect(&nodes).await;
    assert!(client.lock("n").try_acquire().await.unwrap().is_some());
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_all_kinds_go_together() {
    let builder = || RedisServer::builder().aof(Fsync::Always);
    let tls = builder().with_tls().start();
    let secret = builder().password("hunter2").start();
    let socket = builder().unix_socket().start();
    let urls = [tls.tls_url(), secret.url(), socket.unix_url()];
    let client = Redlock::connect(urls).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    let servers = [&tls, &secret, &socket];
    let on_all = async || {
        let mut all = servers.iter();
        all.all(|it| it.client().command(&["EXISTS", "n"]).int() == 1)
    };
    assert!(soon(on_all).await);
    guard.release().await.unwrap();
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_beyond_the_longest_is_refused() {
    let nodes = RedlockNodes::start();
    let client = connect(&nodes).await;
    let error = client
        .lock("n")
        .ttl(ms(31_000))
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting);
    assert!(
        error.to_string().contains("`longest_ttl` is 30s"),
        "{error}"
    );
    let error = client
        .lock("n")
        .ttl(ms(31_000))
        .no_renewal()
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_no_lock_is_an_error() {
    let nodes = RedlockNodes::start();
    for node in nodes.nodes() {
        node.client().command(&["RPUSH", "list", "1"]);
    }
    let client = connect(&nodes).await;
    let error = client.lock("list").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
}
