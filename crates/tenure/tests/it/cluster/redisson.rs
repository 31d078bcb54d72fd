//! Where Redisson's locks can be, and where not.

use tenure::{ErrorKind, Layout, Released, Sharded};
use tenure_testkit::{Cluster, Redisson};

use super::{CLUSTER, builder, fresh_name, migrate, other_master};
use crate::stage::{ms, soon};

#[tenure_testkit::test]
async fn names_that_redisson_would_split_are_refused() {
    let tenure = builder().layout(Layout::Redisson).connect().await.unwrap();
    for name in ["x{y", "{"] {
        let error = tenure.lock(name).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{name}");
        assert!(error.to_string().contains("several slots"), "{error}");
        let error = tenure.lock(name).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{name}");
    }
    for name in [fresh_name(), format!("{{{}}}:a", fresh_name())] {
        let guard = tenure.lock(&name).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let native = builder().connect().await.unwrap();
    drop(native.lock("x{y").acquire().await.unwrap());
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_lock_in_redissons_bytes_moves_too() {
    let tenure = builder().layout(Layout::Redisson).connect().await.unwrap();
    let other = builder().layout(Layout::Redisson).connect().await.unwrap();
    let name = fresh_name();
    let guard = tenure.lock(&name).ttl(ms(900)).acquire().await.unwrap();
    let lock = other.lock(&name);
    let waiting = tokio::spawn(async move { lock.wait(ms(10_000)).acquire().await });
    migrate(&name);
    tokio::time::sleep(ms(1_500)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    let woken = tokio::time::timeout(ms(5_000), waiting).await;
    drop(woken.expect("nobody woke it").unwrap().unwrap());
}

/// Where a slot is on its way, a key that is gone cannot be made again: not even by the script that
/// has just deleted it to offer the lock to the next in the queue.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_lock_on_its_way_is_released_though_others_wait() {
    let tenure = builder().layout(Layout::Redisson).connect().await.unwrap();
    let other = builder().layout(Layout::Redisson).connect().await.unwrap();
    let name = fresh_name();
    let guard = tenure.lock(&name).acquire().await.unwrap();
    let lock = other.lock(&name);
    let waiting = tokio::spawn(async move { lock.wait(ms(10_000)).acquire().await });
    let queue = format!("tenure:queue:{{{name}}}");
    let mut redis = CLUSTER.master_of_key(&name).client();
    let mut waits = || redis.command(&["ZCARD", &queue]).int() == 1;
    assert!(soon(async || waits()).await, "nobody waits in `{queue}`");

    let target = other_master(&CLUSTER, &name);
    let migration = CLUSTER.begin_migration(Cluster::slot_of(&name), target);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    migration.finish();
    let woken = tokio::time::timeout(ms(2_000), waiting).await;
    drop(woken.expect("nobody woke it").unwrap().unwrap());
}

/// A Java process that knows no sharded messages: its fleet says `sharded=off`.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn an_old_java_process_wakes_ours_where_the_switch_is_off() {
    let plain = builder().layout(Layout::Redisson).sharded(Sharded::Off);
    let tenure = plain.connect().await.unwrap();
    let name = fresh_name();
    let mut java = Redisson::connect(CLUSTER.master_of_key(&name).addr());
    assert!(java.try_lock(&name));
    let lock = tenure.lock(&name);
    let waiting = tokio::spawn(async move { lock.wait(ms(20_000)).acquire().await });
    tokio::time::sleep(ms(400)).await;
    java.unlock(&name);
    let woken = tokio::time::timeout(ms(700), waiting).await;
    drop(woken.expect("nobody woke it").unwrap().unwrap());
}
