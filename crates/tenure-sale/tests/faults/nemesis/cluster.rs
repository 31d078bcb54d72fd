//! Masters of a cluster that are replaced, and slots that move while their items are sold.

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_testkit::{ClientKind, Cluster, FailoverKind, RedisServer, eventually};

use super::server::{Cut, LAG_MS, NOTICE_LIMIT, is_used};
use super::{Kind, random_time};

/// How long a failover may take, and all that follows from it.
const SETTLE_LIMIT: Duration = Duration::from_mins(1);

/// Does it to the node that has an item, undoes it; true if clients were hit.
pub(super) fn strike(kind: Kind, cluster: &Cluster, item: &str, rng: &mut StdRng) -> bool {
    let slot = Cluster::slot_of(format!("{{{item}}}"));
    let master = cluster.master_of_slot(slot);
    match kind {
        Kind::MigrateSlot => migrate(cluster, slot, rng),
        Kind::ScriptFlush => {
            master.script_flush();
            eventually(NOTICE_LIMIT, || master.stat("number_of_cached_scripts") > 0)
        }
        Kind::KillConnections => master.kill_clients(ClientKind::Normal) > 0,
        Kind::PlannedFailover => promote(cluster, master, FailoverKind::Orderly),
        Kind::ForcedFailover => promote(cluster, master, FailoverKind::Force),
        Kind::CutThenPromote => {
            let Some(_cut) = Cut::between(replica_of(cluster, master), master) else {
                cluster.wait_until_ok(SETTLE_LIMIT);
                return false;
            };
            thread::sleep(Duration::from_millis(rng.random_range(LAG_MS)));
            promote(cluster, master, FailoverKind::Force)
        }
        Kind::KillMaster => kill_master(cluster, slot, rng),
        other => unreachable!("`{}` is not done to a cluster", other.name()),
    }
}

/// Moves a slot to another master while its item is sold.
fn migrate(cluster: &Cluster, slot: u16, rng: &mut StdRng) -> bool {
    let source = cluster.master_of_slot(slot);
    let mut others: Vec<&RedisServer> = cluster.servers().iter().collect();
    others.retain(|server| server.info("role") == "master" && server.port() != source.port());
    let target = others.choose(rng).unwrap();
    let migration = cluster.begin_migration(slot, target);
    thread::sleep(random_time(rng) / 4);
    migration.move_keys();
    thread::sleep(random_time(rng) / 4);
    migration.finish();
    is_used(target)
}

fn replica_of<'a>(cluster: &'a Cluster, master: &RedisServer) -> &'a RedisServer {
    let mut shard = cluster.shard_of(master).into_iter();
    let other = shard.find(|server| server.is_running() && server.port() != master.port());
    other.expect("each master has a replica")
}

fn promote(cluster: &Cluster, master: &RedisServer, kind: FailoverKind) -> bool {
    let replica = replica_of(cluster, master);
    cluster.failover(replica, kind);
    is_used(replica)
}

/// Kills a master, and brings it back when its replica has taken its place.
fn kill_master(cluster: &Cluster, slot: u16, rng: &mut StdRng) -> bool {
    let old = cluster.kill_master_of(slot);
    let new = cluster.wait_for_failover(old, SETTLE_LIMIT);
    let used = is_used(new);
    thread::sleep(random_time(rng));
    old.restart();
    cluster.wait_until_ok(SETTLE_LIMIT) && used
}
