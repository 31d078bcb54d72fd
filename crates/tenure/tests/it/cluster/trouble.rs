//! Connecting to what is no cluster, or not a whole one.

use std::sync::atomic::{AtomicU16, Ordering};

use tenure::{ErrorKind, Sharded, Tenure};
use tenure_testkit::{Cluster, RedisServer};

use super::{CLUSTER, fresh_name, other_master};
use crate::stage::ms;

async fn refused(url: &str) -> tenure::Error {
    let builder = Tenure::builder(url).unreachable_after(ms(1_500));
    builder.connect().await.unwrap_err()
}

/// A port that nothing listens on.
/// A port that nothing listens on, and that no server of another test will be given.
fn dead_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    1 + NEXT.fetch_add(1, Ordering::Relaxed) % 6
}

#[tenure_testkit::test]
async fn a_server_that_is_no_cluster_says_so() {
    let server = RedisServer::start();
    let error = refused(&format!("redis-cluster://{}", server.addr())).await;
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
    let text = error.to_string();
    assert!(text.contains("is not a cluster: use `redis://`"), "{error}");
    assert!(text.contains(&server.addr().to_string()), "{error}");
}

#[tenure_testkit::test]
async fn one_node_of_a_cluster_says_what_it_is() {
    let name = fresh_name();
    let elsewhere = other_master(&CLUSTER, &name);
    let tenure = Tenure::connect(elsewhere.url()).await.unwrap();
    let error = tenure.lock(&name).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

#[tenure_testkit::test]
async fn every_node_that_cannot_be_reached_is_named_with_its_reason() {
    let ports = [dead_port(), dead_port()];
    let [one, other] = ports;
    let url = format!("redis-cluster://127.0.0.1:{one},127.0.0.1:{other}");
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for port in ports {
        let named = format!("`redis://127.0.0.1:{port}`: connection refused");
        assert!(error.to_string().contains(&named), "{error}");
    }
}

#[tenure_testkit::test]
async fn one_node_that_can_be_reached_is_enough() {
    let alive = CLUSTER.servers()[1].addr();
    let url = format!("redis-cluster://127.0.0.1:{},{alive}", dead_port());
    let tenure = Tenure::connect(url).await.unwrap();
    for _ in 0..6 {
        drop(tenure.lock(fresh_name()).acquire().await.unwrap());
    }
}

#[tenure_testkit::test]
async fn nodes_announced_at_addresses_out_of_reach_are_named() {
    let port = dead_port();
    let nodes = Cluster::builder().masters(1).replicas(0);
    let cluster = nodes.start();
    let server = &cluster.servers()[0];
    server.set_config("cluster-announce-port", &port.to_string());
    let error = refused(&cluster.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("redis://127.0.0.1:{port}`")),
        "{error}"
    );
    assert!(text.contains("announce"), "{error}");
    // Without a host of its own a node is where it was asked.
    server.set_config("cluster-announce-port", "0");
    server.set_config("cluster-preferred-endpoint-type", "unknown-endpoint");
    let tenure = Tenure::connect(cluster.url()).await.unwrap();
    drop(tenure.lock("n").acquire().await.unwrap());
}

#[tenure_testkit::test]
async fn the_password_is_for_all_nodes() {
    let nodes = Cluster::builder().masters(2).replicas(0).steady();
    let cluster = nodes.password("sesame").start();
    let tenure = Tenure::connect(cluster.url()).await.unwrap();
    for _ in 0..6 {
        drop(tenure.lock(fresh_name()).acquire().await.unwrap());
    }
    let error = refused(&cluster.url().replace("sesame", "guess")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("guess"), "{error}");
    let other = &cluster.servers()[1];
    other.set_config("requirepass", "other");
    let error = refused(&cluster.url()).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(
        error.to_string().contains(&other.addr().to_string()),
        "{error}"
    );
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_slot_that_nobody_serves_is_named() {
    let nodes = Cluster::builder().masters(2).replicas(0).steady();
    let cluster = nodes.partial_coverage().start();
    let builder = Tenure::builder(cluster.url()).unreachable_after(ms(1_500));
    let tenure = builder.clone().connect().await.unwrap();
    let name = fresh_name();
    let (slot, owner) = (Cluster::slot_of(&name), cluster.master_of_key(&name));
    cluster.uncover_slot(slot);
    for tenure in [&tenure, &builder.connect().await.unwrap()] {
        let error = tenure.lock(&name).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let named = format!("slot `{slot}` of `{name}`");
        assert!(error.to_string().contains(&named), "{error}");
        let error = tenure.lock(&name).try_acquire().await.unwrap_err();
        assert!(error.to_string().contains(&named), "{error}");
    }
    // Others are served, and this one is when its slot is.
    let lock = tenure.lock(&name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(ms(300)).await;
    cluster.cover_slot(slot, owner);
    drop(waiting.await.unwrap().unwrap());
}

#[tenure_testkit::test]
async fn a_cluster_that_is_down_says_so_and_for_which_lock() {
    let nodes = Cluster::builder().masters(2).replicas(0).steady();
    let cluster = nodes.start();
    let builder = Tenure::builder(cluster.url()).unreachable_after(ms(1_200));
    let tenure = builder.connect().await.unwrap();
    let name = fresh_name();
    let slot = Cluster::slot_of(&name);
    // Any other: without it the whole cluster refuses.
    cluster.uncover_slot((slot + 1) % 16_384);
    let error = tenure.lock(&name).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("slot `{slot}` of `{name}`")),
        "{error}"
    );
    assert!(text.contains("CLUSTERDOWN"), "{error}");
}

#[tenure_testkit::test]
async fn only_a_cluster_has_shards_and_url_and_builder_must_agree() {
    let off = Tenure::builder("memory://").sharded(Sharded::Off);
    let error = off.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{error}");
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
    let url = format!("{}?sharded=off", CLUSTER.url());
    let error = Tenure::builder(&url).sharded(Sharded::On).connect().await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{error}");
    assert!(error.to_string().contains("the URL"), "{error}");
    Tenure::builder(&url)
        .sharded(Sharded::Off)
        .connect()
        .await
        .unwrap();
}
