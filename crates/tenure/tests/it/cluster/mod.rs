//! A Redis Cluster: locks on several nodes, whose slots move while they are held and waited for.
//!
//! One cluster for most tests of this process: they use names of their own, and so slots of their own.

use std::sync::LazyLock;

use tenure::{Builder, Tenure};
use tenure_testkit::{Cluster, RedisServer};
use tokio::sync::{Mutex, MutexGuard};

/// Taking, holding and releasing locks on all nodes; what clients say of themselves.
mod basics;
/// Requests of concurrent callers that travel together.
mod combining;
/// `tenure::redis`: commands and scripts next to the locks.
mod commands;
/// A master that is replaced.
mod failover;
/// Fences where a master comes back with less than it had.
mod fences;
/// Many clients on many locks, while slots move to and fro.
mod load;
/// Messages that wake waiters, wherever their lock has gone.
mod messages;
/// Slots that move while locks are held, waited for, renewed and taken.
mod migration;
/// Where Redisson's locks can be, and where not.
mod redisson;
/// Replicas that confirm, and a new master that waits.
mod replicas;
/// All nodes speak TLS.
mod tls;
/// Connecting to what is no cluster, or not a whole one.
mod trouble;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::builder().steady().start());

/// One whose nodes may be stopped for a while without being replaced, and whose counts are those of
/// one test at a time.
static QUIET: LazyLock<Mutex<Cluster>> = LazyLock::new(|| {
    let nodes = Cluster::builder().masters(2).replicas(0);
    Mutex::new(nodes.steady().start())
});

async fn quiet() -> MutexGuard<'static, Cluster> {
    QUIET.lock().await
}

fn builder() -> Builder {
    Tenure::builder(CLUSTER.url())
}

async fn client() -> Tenure {
    builder().connect().await.unwrap()
}

/// A lock whose slot no other test uses, most likely.
fn fresh_name() -> String {
    format!("lock-{:016x}", rand::random::<u64>())
}

/// A master that does not have the slot of this lock.
fn other_master<'a>(cluster: &'a Cluster, name: &str) -> &'a RedisServer {
    let here = cluster.master_of_key(name);
    let mut masters = cluster.servers().iter().take(2);
    masters.find(|server| server.port() != here.port()).unwrap()
}

/// Moves the slot of a lock elsewhere, and returns where to.
fn migrate(name: &str) -> &'static RedisServer {
    let target = other_master(&CLUSTER, name);
    CLUSTER.migrate_slot(Cluster::slot_of(name), target);
    target
}

/// The value of a key on the node that has it.
fn holder_at(cluster: &Cluster, name: &str) -> Option<String> {
    let reply = cluster.master_of_key(name).client().command(&["GET", name]);
    (!reply.is_nil()).then(|| reply.text().to_owned())
}
