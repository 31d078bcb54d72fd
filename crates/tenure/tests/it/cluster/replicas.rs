//! Replicas that confirm, and a new master that waits.

use std::time::Duration;

use tenure::{ErrorKind, Released, Tenure};
use tenure_testkit::{Cluster, FailoverKind, eventually};

use super::{builder, client, fresh_name, migrate};
use crate::stage::ms;
use crate::verdict::check_not_yet;

#[tenure_testkit::test]
async fn replicas_confirm_a_lock_wherever_it_moves() {
    let (tenure, name) = (client().await, fresh_name());
    let lock = tenure.lock(&name).ttl(ms(6_000)).replicas(1);
    let guard = lock.acquire().await.unwrap();
    migrate(&name);
    let renewed = tenure.stats().renewed;
    let renewed_there = || tenure.stats().renewed > renewed;
    assert!(eventually(ms(20_000), renewed_there));
    assert!(guard.is_valid(), "it was not renewed at its new place");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    // There is one replica for each master.
    let error = tenure.lock(&name).replicas(2).try_acquire().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NotReplicated);
    assert!(!tenure.lock(&name).is_locked().await.unwrap());
}

#[tenure_testkit::test]
async fn many_confirmed_leases_are_renewed_on_all_nodes() {
    let tenure = builder().replicas(1).connect().await.unwrap();
    let mut guards = Vec::new();
    for _ in 0..12 {
        let lock = tenure.lock(fresh_name()).ttl(ms(2_000));
        guards.push(lock.acquire().await.unwrap());
    }
    tokio::time::sleep(ms(3_000)).await;
    assert!(guards.iter().all(tenure::Guard::is_valid));
}

/// Each master has a reign of its own, and one that was replaced keeps only its own locks waiting.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h50_a_new_master_of_a_shard_gives_no_new_locks_for_a_while() {
    let cluster = Cluster::start();
    let wait = Duration::from_secs(4);
    let builder = Tenure::builder(cluster.url()).ttl(ms(3_000));
    let tenure = builder.after_failover(wait).connect().await.unwrap();
    let name = fresh_name();
    let master = cluster.master_of_key(&name);
    let elsewhere = loop {
        let name = fresh_name();
        if cluster.master_of_key(&name).port() != master.port() {
            break name;
        }
    };
    // Both masters are old enough after this.
    let guard = tenure.lock(&name).wait(wait * 2).acquire().await.unwrap();
    let lock = tenure.lock(&elsewhere);
    drop(lock.clone().wait(wait * 2).acquire().await.unwrap());
    let mut shard = cluster.shard_of(master).into_iter();
    let replica = shard.find(|server| server.port() != master.port());
    cluster.failover(replica.unwrap(), FailoverKind::Orderly);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_not_yet(async || tenure.lock(&name).try_acquire().await).await;
    // The other shard does not wait.
    drop(lock.wait(wait / 2).acquire().await.unwrap());
    drop(tenure.lock(&name).wait(wait * 2).acquire().await.unwrap());
}
