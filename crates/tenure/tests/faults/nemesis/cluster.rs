//! Masters that share the slots, and their replicas.

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_testkit::{ClientKind, Cluster, FailoverKind, RedisServer, eventually};

use super::replication::Cut;
use super::sentinel::{flush_scripts, pause_briefly};
use super::service::{is_used, redirections};
use super::{Kind, random_time};
use crate::client::{BRISK, HOT, SAFE_HOT};
use crate::stage::masters;

/// How long a failover may take, and all that follows from it: some seconds where there is room.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
const NOTICE_LIMIT: Duration = Duration::from_millis(500);
const LAG_MS: std::ops::Range<u64> = 100..400;

/// Does it, undoes it; true if clients were hit.
pub(super) fn strike(kind: Kind, cluster: &Cluster, rng: &mut StdRng) -> bool {
    let key = [HOT, BRISK, SAFE_HOT].choose(rng).unwrap();
    let master = cluster.master_of_key(key);
    let replica = || replica_of(cluster, master);
    match kind {
        Kind::MigrateSlot => migrate(cluster, Cluster::slot_of(key), rng),
        Kind::PauseServer => pause_briefly(master, rng),
        Kind::PauseReplica => {
            replica().pause();
            thread::sleep(super::short_time(rng));
            replica().resume();
            cluster.wait_until_ok(SETTLE_LIMIT) && is_used(master)
        }
        Kind::ScriptFlush => flush_scripts(master),
        Kind::KillConnections => master.kill_clients(ClientKind::Normal) > 0,
        Kind::KillSubscribers => master.kill_clients(ClientKind::Pubsub) > 0,
        Kind::OrderlyFailover => promote(cluster, master, FailoverKind::Orderly),
        Kind::ForcedFailover => promote(cluster, master, FailoverKind::Force),
        Kind::Takeover => promote(cluster, master, FailoverKind::Takeover),
        Kind::CutThenForce => {
            let Some(_cut) = Cut::between(replica(), master) else {
                // The cluster did something by itself, and this makes no sense any more.
                cluster.wait_until_ok(SETTLE_LIMIT);
                return false;
            };
            thread::sleep(Duration::from_millis(rng.random_range(LAG_MS)));
            promote(cluster, master, FailoverKind::Force)
        }
        Kind::KillMaster => kill_master(cluster, key, rng),
        Kind::PromoteUnknown => promote_unknown(cluster, rng),
        other => unreachable!("`{}` is not done to a cluster", other.name()),
    }
}

/// Moves a slot to another master while its locks are used; true if clients were sent after it.
fn migrate(cluster: &Cluster, slot: u16, rng: &mut StdRng) -> bool {
    let source = cluster.master_of_slot(slot);
    let mut others = masters(cluster);
    others.retain(|master| master.port() != source.port());
    let before = redirections(source);
    let migration = cluster.begin_migration(slot, others.choose(rng).unwrap());
    thread::sleep(random_time(rng) / 4);
    migration.move_keys();
    thread::sleep(random_time(rng) / 4);
    migration.finish();
    eventually(NOTICE_LIMIT, || redirections(source) > before)
}

fn replica_of<'a>(cluster: &'a Cluster, master: &RedisServer) -> &'a RedisServer {
    let mut shard = cluster.shard_of(master).into_iter();
    let other = shard.find(|server| server.is_running() && server.port() != master.port());
    other.expect("each master has a replica")
}

fn promote(cluster: &Cluster, master: &RedisServer, kind: FailoverKind) -> bool {
    let was_used = is_used(master);
    let replica = replica_of(cluster, master);
    cluster.failover(replica, kind);
    was_used && is_used(replica)
}

/// Kills the master of a lock, and brings it back when its replica has taken its place.
fn kill_master(cluster: &Cluster, key: &str, rng: &mut StdRng) -> bool {
    let slot = Cluster::slot_of(key);
    let was_used = is_used(cluster.master_of_slot(slot));
    let old = cluster.kill_master_of(slot);
    let new = cluster.wait_for_failover(old, SETTLE_LIMIT);
    let is_used_now = is_used(new);
    thread::sleep(random_time(rng));
    old.restart();
    cluster.wait_until_ok(SETTLE_LIMIT) && was_used && is_used_now
}

/// Has a replica take its master's place that has just joined, lags, and is in no client's map. It
/// leaves as soon as the old master has its place again.
fn promote_unknown(cluster: &Cluster, rng: &mut StdRng) -> bool {
    let late = cluster.join_latecomer();
    let master = masters(cluster)
        .into_iter()
        .find(|master| {
            cluster
                .shard_of(late)
                .iter()
                .any(|it| it.port() == master.port())
        })
        .expect("each shard has a master");
    if let Some(_cut) = Cut::between(late, master) {
        thread::sleep(Duration::from_millis(rng.random_range(LAG_MS)));
        cluster.failover(late, FailoverKind::Takeover);
    }
    let was_used = is_used(late);
    thread::sleep(random_time(rng));
    cluster.failover(master, FailoverKind::Orderly);
    cluster.dismiss_latecomer();
    was_used
}

/// Has the replica of a lock's master take its place without a vote, and without what it has
/// not heard of for a moment.
pub(super) fn depose(cluster: &Cluster, key: &str, rng: &mut StdRng) -> bool {
    let master = cluster.master_of_key(key);
    let replica = replica_of(cluster, master);
    let Some(_cut) = Cut::between(replica, master) else {
        cluster.wait_until_ok(SETTLE_LIMIT);
        return false;
    };
    thread::sleep(Duration::from_millis(rng.random_range(LAG_MS)));
    promote(cluster, master, FailoverKind::Takeover)
}
