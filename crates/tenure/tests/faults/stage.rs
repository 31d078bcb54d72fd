//! The servers of a phase, however they stand together.

use std::net::SocketAddr;
use std::time::Duration;

use tenure::Layout;
use tenure_testkit::{Cluster, Fsync, Pair, Proxy, RedisServer, RedlockNodes, Sentinels};

use crate::deployment::Deployment;
use crate::layout;
use crate::nemesis::Clock;
use crate::phase::{Aof, Clocks, Servers};

/// Nodes of a Redlock: two may fail.
const NODES: usize = 5;
/// The node of a Redlock whose clock is turned, if one is.
pub const NODE_WITH_CLOCK: usize = 0;
/// The nodes of a Redlock that keep nothing, where some do: most of them.
pub const FORGETFUL: [usize; 3] = [2, 3, 4];
/// By so much a clock is wrong until it is set right.
pub const WRONG_BY: Duration = Duration::from_secs(3600);
/// Nodes of a cluster that clients know. There may be one more.
const CLUSTER_NODES: usize = 6;
/// Sentinels stand before the servers in the order of [`Stage::fronts`].
const SENTINELS: usize = 3;

pub enum Stage {
    Single(RedisServer),
    Pair(Box<Pair>),
    Redlock(RedlockNodes),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

impl Stage {
    /// Starts servers as a phase wants them, some of them by clocks that can be turned.
    pub fn start(deployment: Deployment, servers: Servers, clocks: &[Clock]) -> Self {
        match deployment {
            Deployment::Single if servers.pair => Self::pair(clocks.first()),
            Deployment::Single => Self::single(clocks.first()),
            Deployment::Redlock => Self::redlock(servers, clocks),
            Deployment::Sentinel => Self::sentinel(clocks.first()),
            Deployment::Cluster => Self::cluster(servers, clocks.first()),
        }
    }

    /// Servers that live by one clock, if by any: they agree, and differ from their clients.
    fn sentinel(clock: Option<&Clock>) -> Self {
        let builder = Sentinels::builder().aof(Fsync::Always);
        let on = |builder, index| match clock {
            Some(clock) => tenure_testkit::SentinelsBuilder::clock(builder, index, clock.shim()),
            None => builder,
        };
        Self::Sentinel((0..3).fold(builder, on).start())
    }

    fn cluster(servers: Servers, clock: Option<&Clock>) -> Self {
        let mut builder = Cluster::builder().aof(Fsync::Always);
        if servers.latecomer {
            builder = builder.latecomer();
        }
        let on = |builder, index| match clock {
            Some(clock) => tenure_testkit::ClusterBuilder::clock(builder, index, clock.shim()),
            None => builder,
        };
        Self::Cluster((0..=CLUSTER_NODES).fold(builder, on).start())
    }

    fn pair(clock: Option<&Clock>) -> Self {
        let mut builder = RedisServer::builder();
        if let Some(clock) = clock {
            builder = builder.clock(clock.shim());
        }
        Self::Pair(Box::new(Pair::start(&builder)))
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

    fn redlock(servers: Servers, clocks: &[Clock]) -> Self {
        let builder = RedlockNodes::builder().nodes(NODES);
        let mut builder = builder.config("busy-reply-threshold", "50");
        if servers.aof == Aof::Mixed {
            builder = FORGETFUL
                .iter()
                .fold(builder, |builder, index| builder.without_aof_at(*index));
        }
        let with_clocks: &[usize] = match servers.clocks {
            Clocks::OfTheForgetful => &FORGETFUL,
            _ => &[NODE_WITH_CLOCK],
        };
        for (index, clock) in with_clocks.iter().zip(clocks) {
            builder = builder.clock(*index, clock.shim());
        }
        if servers.clocks != Clocks::OfTheForgetful {
            return Self::Redlock(builder.start());
        }
        // They shall vote from the beginning, and so must seem to have run for long.
        for clock in clocks {
            clock.step_back(WRONG_BY);
        }
        let nodes = builder.start();
        clocks.iter().for_each(Clock::set_right);
        Self::Redlock(nodes)
    }

    /// The servers that each client reaches through a proxy of its own, sentinels first.
    pub fn fronts(&self) -> Vec<SocketAddr> {
        let (watchers, servers): (&[RedisServer], Vec<&RedisServer>) = match self {
            Self::Sentinel(it) => (it.sentinels(), it.servers().iter().collect()),
            Self::Cluster(it) => (&[], it.servers().iter().collect()),
            Self::Single(_) | Self::Pair(_) | Self::Redlock(_) => (&[], self.keepers()),
        };
        let all = watchers.iter().chain(servers);
        all.map(RedisServer::addr).collect()
    }

    /// A proxy before each of the [fronts](Self::fronts), for one client. Servers that name each
    /// other seem to name the proxies.
    pub fn proxies(&self) -> Vec<Proxy> {
        let fronts = self.fronts();
        let start = match self {
            Self::Pair(_) => Proxy::start_swappable,
            _ => Proxy::start,
        };
        let proxies: Vec<Proxy> = fronts.iter().copied().map(start).collect();
        for proxy in &proxies {
            for (front, stand_in) in fronts.iter().zip(&proxies) {
                let (from, to) = (front.port().to_string(), stand_in.addr().port().to_string());
                // All ports of this kind have five digits; others cannot be told apart anyway.
                if from.len() == to.len() {
                    for (before, after) in self.names_of_servers() {
                        let name = |port: &str| format!("127.0.0.1{before}{port}{after}");
                        proxy.translate_replies(name(&from).as_bytes(), name(&to).as_bytes());
                    }
                }
            }
        }
        proxies
    }

    /// The text before and after the port where servers name each other: in answers of
    /// sentinels and in their messages; in the map of a cluster and in its redirections.
    fn names_of_servers(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Single(_) | Self::Pair(_) | Self::Redlock(_) => &[],
            Self::Sentinel(_) => &[("\r\n$5\r\n", "\r\n"), (" ", "")],
            Self::Cluster(_) => &[("\r\n:", "\r\n"), (":", "\r\n")],
        }
    }

    /// Which of the [fronts](Self::fronts) a data server is.
    pub fn front_of(&self, server: &RedisServer) -> usize {
        let fronts = self.fronts();
        let at = fronts.iter().position(|front| *front == server.addr());
        at.expect("each server has a front")
    }

    /// The fronts of servers that keep data, masters or not.
    pub fn data_fronts(&self) -> std::ops::Range<usize> {
        let first = match self {
            Self::Sentinel(_) => SENTINELS,
            _ => 0,
        };
        first..self.fronts().len()
    }

    /// What to connect to, by way of these proxies if there are any: one URL, or one for each node
    /// of a Redlock.
    pub fn urls(&self, proxies: &[Proxy], layout: Layout) -> Vec<String> {
        let joined = |proxies: &[Proxy]| {
            let addrs = proxies.iter().map(|proxy| proxy.addr().to_string());
            addrs.collect::<Vec<_>>().join(",")
        };
        let urls = match self {
            Self::Sentinel(it) if !proxies.is_empty() => {
                let (watchers, name) = (joined(&proxies[..SENTINELS]), it.name());
                vec![format!("redis-sentinel://{watchers}/{name}")]
            }
            Self::Cluster(_) if !proxies.is_empty() => {
                let told = &proxies[..CLUSTER_NODES];
                vec![format!("redis-cluster://{}", joined(told))]
            }
            _ if !proxies.is_empty() => proxies.iter().map(Proxy::url).collect(),
            Self::Single(server) => vec![server.url()],
            Self::Pair(pair) => vec![pair.primary().url()],
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
            Self::Pair(pair) => vec![pair.primary()],
            Self::Redlock(nodes) => nodes.nodes().iter().collect(),
            Self::Sentinel(sentinels) => vec![sentinels.master()],
            Self::Cluster(cluster) => masters(cluster),
        }
    }

    /// How many replicas a lock has.
    pub fn replicas(&self) -> u32 {
        match self {
            Self::Single(_) | Self::Pair(_) | Self::Redlock(_) => 0,
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
            Self::Single(_) | Self::Pair(_) | Self::Redlock(_) => 0,
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

/// All masters of a cluster that run.
pub fn masters(cluster: &Cluster) -> Vec<&RedisServer> {
    let is_master = |server: &&RedisServer| server.is_running() && server.info("role") == "master";
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
