//! The servers of a phase, however they stand together.

use std::net::SocketAddr;

use tenure::Layout;
use tenure_testkit::{Cluster, Fsync, Proxy, RedisServer, RedlockNodes, Sentinels};

use crate::deployment::Deployment;
use crate::layout;
use crate::nemesis::Clock;

/// Nodes of a Redlock: two may fail.
const NODES: usize = 5;
/// The node of a Redlock whose clock is turned, if one is.
pub const NODE_WITH_CLOCK: usize = 0;

pub enum Stage {
    Single(RedisServer),
    Redlock(RedlockNodes),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

impl Stage {
    /// Starts servers that keep what they grant, if they are told to, and the first of them by a
    /// clock that can be turned.
    pub fn start(deployment: Deployment, persistent: bool, clock: Option<&Clock>) -> Self {
        match deployment {
            Deployment::Single => Self::single(clock),
            Deployment::Redlock => Self::redlock(persistent, clock),
            Deployment::Sentinel => Self::Sentinel(Sentinels::builder().aof(Fsync::Always).start()),
            Deployment::Cluster => Self::Cluster(Cluster::builder().aof(Fsync::Always).start()),
        }
    }

    fn single(clock: Option<&Clock>) -> Self {
        let mut builder = RedisServer::builder()
            .aof(Fsync::Always)
            // Long scripts are answered with BUSY instead of silence.
            .config("busy-reply-threshold", "50");
        if let Some(clock) = clock {
            builder = builder.clock(clock.shim());
        }
        Self::Single(builder.start())
    }

    fn redlock(persistent: bool, clock: Option<&Clock>) -> Self {
        let builder = RedlockNodes::builder().nodes(NODES);
        let mut builder = builder.config("busy-reply-threshold", "50");
        if !persistent {
            builder = builder.without_aof();
        }
        if let Some(clock) = clock {
            builder = builder.clock(NODE_WITH_CLOCK, clock.shim());
        }
        Self::Redlock(builder.start())
    }

    /// The servers that each client reaches through a proxy of its own. Sentinels and clusters name
    /// their servers themselves, so nothing can stand between.
    pub fn fronts(&self) -> Vec<SocketAddr> {
        match self {
            Self::Single(_) | Self::Redlock(_) => self.keepers().iter().map(|s| s.addr()).collect(),
            Self::Sentinel(_) | Self::Cluster(_) => Vec::new(),
        }
    }

    /// What to connect to, by way of these proxies if there are any: one URL, or one for each node
    /// of a Redlock.
    pub fn urls(&self, proxies: &[Proxy], layout: Layout) -> Vec<String> {
        let urls = match self {
            _ if !proxies.is_empty() => proxies.iter().map(Proxy::url).collect(),
            Self::Single(server) => vec![server.url()],
            Self::Redlock(nodes) => nodes.urls(),
            Self::Sentinel(sentinels) => vec![sentinels.url()],
            Self::Cluster(cluster) => vec![cluster.url()],
        };
        urls.iter().map(|url| layout::url(url, layout)).collect()
    }

    /// The servers that keep locks at this moment.
    pub fn keepers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Single(server) => vec![server],
            Self::Redlock(nodes) => nodes.nodes().iter().collect(),
            Self::Sentinel(sentinels) => vec![sentinels.master()],
            Self::Cluster(cluster) => masters(cluster),
        }
    }

    /// How many replicas a lock has.
    pub fn replicas(&self) -> u32 {
        match self {
            Self::Single(_) | Self::Redlock(_) => 0,
            Self::Sentinel(_) => 2,
            Self::Cluster(_) => 1,
        }
    }

    /// How often a replica has taken its master's place without that one's help, by the servers'
    /// own account.
    pub fn promotions(&self) -> usize {
        let said = |servers: &[RedisServer], words: &str| -> usize {
            let logs = servers.iter().map(RedisServer::log);
            logs.map(|log| log.matches(words).count()).sum()
        };
        match self {
            Self::Single(_) | Self::Redlock(_) => 0,
            Self::Sentinel(sentinels) => said(sentinels.servers(), "MASTER MODE enabled"),
            Self::Cluster(cluster) => {
                let logs = cluster.servers().iter().map(RedisServer::log);
                logs.map(|log| elections_without_help(&log)).sum()
            }
        }
    }

    /// On how many of the keepers a lease must stand to be one.
    pub fn keepers_needed(&self) -> usize {
        match self {
            Self::Redlock(nodes) => nodes.nodes().len() / 2 + 1,
            _ => 1,
        }
    }
}

fn masters(cluster: &Cluster) -> Vec<&RedisServer> {
    let is_master = |server: &&RedisServer| server.info("role") == "master";
    cluster.servers().iter().filter(is_master).collect()
}

/// How often a node of a cluster has taken its master's place by itself. One that has all of what its
/// master had is helped by it: it stands still until it is replaced, or until both give up.
fn elections_without_help(log: &str) -> usize {
    let mut helped = false;
    let mut count = 0;
    for line in log.lines() {
        if line.contains("manual failover can start") {
            helped = true;
        } else if line.contains("Manual failover timed out") {
            helped = false;
        } else if line.contains("Failover election won") || line.contains("Taking over the master")
        {
            count += usize::from(!helped);
            helped = false;
        }
    }
    count
}
