//! Deployments that tests use one after the other: starting a cluster takes longer than most tests.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use tenure_testkit::{ClientKind, Cluster, RedisServer, RedlockNodes, Sentinels};

/// Deployments of one kind that no test uses at this moment.
pub struct Pool<T> {
    idle: Mutex<Vec<T>>,
    start: fn() -> T,
}

/// A deployment as it is, until the test is over. Then the next one gets it, empty, unless the test
/// failed.
pub struct Lent<T: Deployment + 'static> {
    deployment: Option<T>,
    pool: &'static Pool<T>,
}

/// Something to run the contract on.
pub trait Deployment {
    /// The servers that take writes.
    fn masters(&self) -> Vec<&RedisServer>;
}

impl<T: Deployment> Pool<T> {
    pub const fn new(start: fn() -> T) -> Self {
        Self {
            idle: Mutex::new(Vec::new()),
            start,
        }
    }

    pub fn lend(&'static self) -> Lent<T> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        Lent {
            deployment: Some(idle.unwrap_or_else(self.start)),
            pool: self,
        }
    }
}

impl<T: Deployment> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.deployment.as_ref().unwrap()
    }
}

impl<T: Deployment> Drop for Lent<T> {
    fn drop(&mut self) {
        let Some(deployment) = self.deployment.take() else {
            return;
        };
        if std::thread::panicking() {
            return;
        }
        for master in deployment.masters() {
            // What clients still do in the background must not reach the next test.
            master.kill_clients(ClientKind::Normal);
            master.kill_clients(ClientKind::Pubsub);
            master.client().command(&["FLUSHALL"]);
        }
        let mut idle = self
            .pool
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        idle.push(deployment);
    }
}

impl Deployment for Sentinels {
    fn masters(&self) -> Vec<&RedisServer> {
        vec![self.master()]
    }
}

impl Deployment for Cluster {
    fn masters(&self) -> Vec<&RedisServer> {
        let masters = self.servers().iter();
        masters
            .filter(|server| server.info("role") == "master")
            .collect()
    }
}

/// Several nodes, of which the last may not answer.
pub struct Nodes {
    pub nodes: RedlockNodes,
    pub answering: usize,
}

impl Deployment for Nodes {
    fn masters(&self) -> Vec<&RedisServer> {
        self.nodes.nodes().iter().take(self.answering).collect()
    }
}
