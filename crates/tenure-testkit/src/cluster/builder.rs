//! The settings of a cluster.

use std::sync::Mutex;
use std::time::Duration;

use super::Cluster;
use crate::server::start_all;
use crate::tls::Certificates;
use crate::{ClockShim, Fsync, RedisServer, ServerBuilder};

const STEADY_TIMEOUT: Duration = Duration::from_secs(60);
/// Nodes exchange gossip twice in this time, so a long timeout makes them slow to meet.
const FORMING_TIMEOUT: Duration = Duration::from_secs(1);

/// Builds and starts a cluster; see [`Cluster::builder`].
#[derive(Debug, Clone)]
pub struct ClusterBuilder {
    masters: usize,
    replicas: usize,
    node_timeout: Duration,
    server: ServerBuilder,
    with_tls: bool,
    latecomer: bool,
    clocks: Vec<(usize, ClockShim)>,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            masters: 3,
            replicas: 1,
            node_timeout: Duration::from_secs(1),
            server: RedisServer::builder(),
            with_tls: false,
            latecomer: false,
            clocks: Vec::new(),
        }
    }
}

impl ClusterBuilder {
    /// The number of masters, at least one; three by default. With fewer than three there is no majority
    /// to replace one that dies.
    #[must_use]
    pub fn masters(mut self, masters: usize) -> Self {
        assert!(masters > 0, "a cluster needs a master");
        self.masters = masters;
        self
    }

    /// The number of replicas of each master; one by default.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Prepares one more node, which is down until it [joins](Cluster::join_latecomer) the first shard.
    /// It is the last of the servers, and not in the URL.
    #[must_use]
    pub fn latecomer(mut self) -> Self {
        self.latecomer = true;
        self
    }

    /// How long a node may be silent before others consider it down; a second by default.
    #[must_use]
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Considers no node dead, however slow the machine is. For clusters whose nodes no test kills,
    /// especially shared ones.
    #[must_use]
    pub fn steady(self) -> Self {
        self.node_timeout(STEADY_TIMEOUT)
    }

    /// Lets nodes serve their slots even if another slot is not served. By default the whole cluster
    /// stops then.
    #[must_use]
    pub fn partial_coverage(self) -> Self {
        self.config("cluster-require-full-coverage", "no")
    }

    /// Sets a password for the default user of all nodes.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.server = self.server.password(password);
        self
    }

    /// Enables TLS for nodes and clients, with certificates from an authority for this cluster. The kit
    /// itself still uses the plain ports.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.with_tls = true;
        self
    }

    /// Whether TLS clients must present a certificate. They need not by default.
    #[must_use]
    pub fn auth_clients(mut self, demanded: bool) -> Self {
        self.server = self.server.auth_clients(demanded);
        self
    }

    /// Gives each node an append-only file.
    #[must_use]
    pub fn aof(mut self, fsync: Fsync) -> Self {
        self.server = self.server.aof(fsync);
        self
    }

    /// A directive of `redis.conf` for all nodes.
    #[must_use]
    pub fn config(mut self, directive: impl Into<String>, value: impl Into<String>) -> Self {
        self.server = self.server.config(directive, value);
        self
    }

    /// Makes one node use a clock that the test changes (keep a clone of it).
    #[must_use]
    pub fn clock(mut self, index: usize, clock: ClockShim) -> Self {
        self.clocks.push((index, clock));
        self
    }

    /// Starts the nodes, forms the cluster and returns when it is [ok](Cluster::wait_until_ok). This
    /// takes more than two seconds, because a new master refuses to serve for that long.
    #[track_caller]
    pub fn start(mut self) -> Cluster {
        let certificates = self.with_tls.then(Certificates::generate);
        if let Some(Certificates { files, .. }) = &certificates {
            let server = self.server.tls_among(files.clone());
            self.server = server.config("tls-cluster", "yes");
        }
        let nodes = self.masters * (1 + self.replicas);
        let servers = start_all((0..nodes).map(|index| self.node(index)).collect());
        let mut cluster = Cluster {
            servers,
            has_latecomer: self.latecomer,
            masters: self.masters,
            ending_migration: Mutex::default(),
            migrating: Mutex::default(),
            certificates,
        };
        cluster.set_node_timeout(self.node_timeout.min(FORMING_TIMEOUT));
        cluster.form();
        cluster.set_node_timeout(self.node_timeout);
        if self.latecomer {
            let late = self.node(nodes).start();
            late.kill();
            cluster.servers.push(late);
        }
        cluster
    }

    fn node(&self, index: usize) -> ServerBuilder {
        let timeout = self.node_timeout.as_millis().to_string();
        let mut setup = self
            .server
            .clone()
            .config("cluster-enabled", "yes")
            .config("cluster-node-timeout", timeout)
            // Replicas stay in their shard, so that a test knows which node succeeds which.
            .config("cluster-allow-replica-migration", "no");
        for (_, clock) in self.clocks.iter().filter(|(at, _)| *at == index) {
            setup = setup.clock(clock.clone());
        }
        setup
    }
}
