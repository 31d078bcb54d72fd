//! The servers of a run.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_testkit::{Cluster, Fsync, PostgresServer, Proxy, RedisServer, Sentinels};

use crate::deployment::Deployment;

const NODE_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Stage {
    pub gate: GateServers,
    pub ledger: PostgresServer,
}

pub enum GateServers {
    Single(RedisServer),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

impl Stage {
    pub fn start(deployment: Deployment) -> Self {
        let gate = match deployment {
            Deployment::Single | Deployment::Damaged => GateServers::Single(
                RedisServer::builder()
                    // With `everysec`, Redis replies before it writes while the disk is slow.
                    .aof(Fsync::Always)
                    // Long scripts are answered with BUSY instead of silence.
                    .config("busy-reply-threshold", "500")
                    .start(),
            ),
            Deployment::Sentinel => {
                GateServers::Sentinel(Sentinels::builder().aof(Fsync::Everysec).start())
            }
            Deployment::Cluster => {
                let cluster = Cluster::builder().aof(Fsync::Everysec);
                // No node is taken for dead by itself, unless the machine is very busy.
                GateServers::Cluster(cluster.node_timeout(NODE_TIMEOUT).start())
            }
        };
        Self {
            gate,
            ledger: PostgresServer::start(),
        }
    }

    /// The proxies between one process and the gate. Sentinels and clusters name their servers
    /// themselves, so nothing can stand between.
    pub fn proxy(&self) -> Option<Proxy> {
        match &self.gate {
            GateServers::Single(server) => Some(Proxy::start(server.addr())),
            GateServers::Sentinel(_) | GateServers::Cluster(_) => None,
        }
    }

    pub fn gate_url(&self, proxy: Option<&Proxy>) -> String {
        match (&self.gate, proxy) {
            (_, Some(proxy)) => proxy.url(),
            (GateServers::Single(server), None) => server.url(),
            (GateServers::Sentinel(sentinels), None) => sentinels.url(),
            (GateServers::Cluster(cluster), None) => cluster.url(),
        }
    }

    /// Another database on the gate's server, where there is one.
    pub fn wrong_gate_url(&self) -> Option<String> {
        match &self.gate {
            GateServers::Single(server) => Some(format!("{}1", server.url())),
            GateServers::Sentinel(_) | GateServers::Cluster(_) => None,
        }
    }

    pub fn ledger_url(&self) -> String {
        self.ledger.url()
    }

    /// The server that has this key of the gate now.
    pub fn server_of(&self, key: &str) -> &RedisServer {
        match &self.gate {
            GateServers::Single(server) => server,
            GateServers::Sentinel(sentinels) => sentinels.master(),
            GateServers::Cluster(cluster) => cluster.master_of_key(key),
        }
    }

    /// All keys of the gate that match a pattern.
    pub fn keys(&self, pattern: &str) -> BTreeSet<String> {
        let servers: Vec<&RedisServer> = match &self.gate {
            GateServers::Cluster(cluster) => cluster.servers().iter().collect(),
            _ => vec![self.server_of(pattern)],
        };
        let mut keys = BTreeSet::new();
        for server in servers {
            let reply = server.run(&["KEYS", pattern]);
            keys.extend(reply.array().iter().map(|key| key.text().to_owned()));
        }
        keys
    }
}
