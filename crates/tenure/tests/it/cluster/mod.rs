//! A Redis Cluster: locks on several nodes, whose slots move while they are held and waited for.
//!
//! One cluster for all tests of this process: they use names of their own, and so slots of their own.

use std::sync::LazyLock;

use tenure::{Builder, Tenure};
use tenure_testkit::{Cluster, RedisServer};

mod basics;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

pub fn builder() -> Builder {
    Tenure::builder(CLUSTER.url())
}

pub async fn client() -> Tenure {
    builder().connect().await.unwrap()
}

/// A lock whose slot no other test uses, most likely.
pub fn fresh_name() -> String {
    format!("lock-{:016x}", rand::random::<u64>())
}

/// A master that does not have the slot of this lock.
pub fn other_master(name: &str) -> &'static RedisServer {
    let here = CLUSTER.master_of_key(name);
    let mut masters = CLUSTER.servers().iter().take(3);
    masters.find(|server| server.port() != here.port()).unwrap()
}
