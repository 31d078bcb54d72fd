//! A master that is replaced.

use std::time::Duration;

use tenure::{Released, Tenure};
use tenure_testkit::{Cluster, FailoverKind};

use super::{fresh_name, holder_at};
use crate::stage::{ms, soon};

const LIMIT: Duration = Duration::from_secs(20);

/// Both in one test: a cluster of its own is dear.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_lock_is_held_on_though_its_master_is_replaced() {
    let cluster = Cluster::start();
    let tenure = Tenure::connect(cluster.url()).await.unwrap();
    let other = Tenure::connect(cluster.url()).await.unwrap();
    let name = fresh_name();
    let slot = Cluster::slot_of(&name);
    let guard = tenure.lock(&name).ttl(ms(12_000)).acquire().await.unwrap();
    let lock = other.lock(&name);
    let waiting = tokio::spawn(async move { lock.wait(LIMIT * 3).acquire().await });
    tokio::time::sleep(ms(300)).await;

    // With the master's help.
    let master = cluster.master_of_slot(slot);
    let replica = cluster.shard_of(master).into_iter();
    let mut replica = replica.filter(|server| server.port() != master.port());
    cluster.failover(replica.next().unwrap(), FailoverKind::Orderly);
    assert!(is_renewed(&tenure).await, "after an orderly failover");
    assert!(guard.is_valid());

    // Without.
    let dead = cluster.kill_master_of(slot);
    let promoted = cluster.wait_for_failover(dead, LIMIT);
    assert!(is_renewed(&tenure).await, "after a failover");
    assert!(guard.is_valid());
    assert!(!waiting.is_finished());
    let id = guard.lease_id().to_string();
    assert_eq!(holder_at(&cluster, &name), Some(id), "{}", promoted.addr());

    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let woken = tokio::time::timeout(ms(2_000), waiting).await;
    drop(
        woken
            .expect("nobody hears the new master")
            .unwrap()
            .unwrap(),
    );
    assert_eq!(tenure.stats().lost, 0);
}

/// Whether a renewal succeeds soon, that began from now on.
pub(super) async fn is_renewed(tenure: &Tenure) -> bool {
    let before = tenure.stats().renewed;
    for _ in 0..3 {
        if soon(async || tenure.stats().renewed >= before + 2).await {
            return true;
        }
    }
    false
}
