//! How a cluster is set up.

use std::sync::Mutex;
use std::time::Duration;

use super::Cluster;
use crate::server::start_all;
use crate::tls::Certificates;
use crate::{ClockShim, Fsync, RedisServer, ServerBuilder};

const STEADY_TIMEOUT: Duration = Duration::from_secs(60);
/// Nodes tell each other what they know twice in this time, so a long one makes them slow to meet.
const FORMING_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of a cluster to be started; see [`Cluster::builder`].
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
    /// How many masters, at least one; three by default. With fewer than three nobody has the
    /// majority to replace one that dies.
    #[must_use]
    pub fn masters(mut self, masters: usize) -> Self {
        assert!(masters > 0, "a cluster has a master");
        self.masters = masters;
        self
    }

    /// How many replicas each master has; one by default.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Has one more node ready, which is down until it [joins](Cluster::join_latecomer) the first
    /// shard. It is the last of the servers, and the URL does not name it.
    #[must_use]
    pub fn latecomer(mut self) -> Self {
        self.latecomer = true;
        self
    }

    /// How long a node may be silent before others think that it is down; a second by default.
    #[must_use]
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Takes no node for dead, however slow the machine is: for clusters whose nodes no test kills,
    /// and above all for those that tests share.
    #[must_use]
    pub fn steady(self) -> Self {
        self.node_timeout(STEADY_TIMEOUT)
    }

    /// Lets nodes serve their own slots also while nobody serves some other slot. By default the
    /// whole cluster stops then.
    #[must_use]
    pub fn partial_coverage(self) -> Self {
        self.config("cluster-require-full-coverage", "no")
    }

    /// Demands a password of the default user of all nodes.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.server = self.server.password(password);
        self
    }

    /// Lets nodes and clients speak TLS, by certificates that one authority made for this cluster. The
    /// kit itself still uses the plain ports.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.with_tls = true;
        self
    }

    /// Whether TLS clients must show a certificate of their own. They need not by default.
    #[must_use]
    pub fn auth_clients(mut self, demanded: bool) -> Self {
        self.server = self.server.auth_clients(demanded);
        self
    }

    /// Keeps an append-only file at each node.
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

    /// Lets one node live by a clock that the test turns (keep a clone of it).
    #[must_use]
    pub fn clock(mut self, index: usize, clock: ClockShim) -> Self {
        self.clocks.push((index, clock));
        self
    }

    /// Starts the nodes, lets them form a cluster and returns when it is
    /// [ok](Cluster::wait_until_ok). It takes more than two seconds: for so long a master that has
    /// just started refuses to work.
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
            // Replicas stay with their shard, so that a test knows who succeeds whom.
            .config("cluster-allow-replica-migration", "no");
        for (_, clock) in self.clocks.iter().filter(|(at, _)| *at == index) {
            setup = setup.clock(clock.clone());
        }
        setup
    }
}
