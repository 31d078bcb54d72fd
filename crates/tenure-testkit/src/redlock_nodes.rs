//! Independent servers, the nodes of a Redlock.

use crate::server::start_all;
use crate::{ClockShim, Fsync, Proxy, RedisServer, ServerBuilder};

/// Independent servers, killed when dropped.
///
/// Three by default, each with an append-only file that is synced before each reply. To make a node
/// forget its votes in a crash, use [`restart_empty`](RedisServer::restart_empty) or
/// [`without_aof`](RedlockNodesBuilder::without_aof).
#[derive(Debug)]
pub struct RedlockNodes {
    /// Declared before the servers, so that no connection is forwarded to a killed server.
    proxies: Vec<Proxy>,
    servers: Vec<RedisServer>,
}

/// Builds and starts nodes; see [`RedlockNodes::builder`].
#[derive(Debug, Clone)]
pub struct RedlockNodesBuilder {
    nodes: usize,
    fsync: Option<Fsync>,
    forgetful: Vec<usize>,
    proxied: bool,
    directives: Vec<(String, String)>,
    clocks: Vec<(usize, ClockShim)>,
    passwords: Vec<(usize, String)>,
}

impl RedlockNodes {
    /// Starts three nodes.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Builds nodes with custom settings.
    pub fn builder() -> RedlockNodesBuilder {
        RedlockNodesBuilder {
            nodes: 3,
            fsync: Some(Fsync::Always),
            forgetful: Vec::new(),
            proxied: false,
            directives: Vec::new(),
            clocks: Vec::new(),
            passwords: Vec::new(),
        }
    }

    /// The URL of each node, with its password and through its proxy, if it has them.
    pub fn urls(&self) -> Vec<String> {
        let servers = self.servers.iter().enumerate();
        let url = |(index, server): (usize, &RedisServer)| match self.proxies.get(index) {
            Some(proxy) => server.url_by_way_of(proxy.addr()),
            None => server.url(),
        };
        servers.map(url).collect()
    }

    /// All nodes.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.servers
    }

    /// One node, counted from zero.
    #[track_caller]
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.servers[index]
    }

    /// The proxy of a node. Panics if the nodes were built without proxies.
    #[track_caller]
    pub fn proxy(&self, index: usize) -> &Proxy {
        let proxy = self.proxies.get(index);
        proxy.unwrap_or_else(|| panic!("node `{index}` has no proxy"))
    }
}

impl RedlockNodesBuilder {
    /// The number of nodes.
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// When the append-only files reach the disk; before each reply by default.
    #[must_use]
    pub fn aof(mut self, fsync: Fsync) -> Self {
        self.fsync = Some(fsync);
        self
    }

    /// No persistence: a restarted node has forgotten its votes.
    #[must_use]
    pub fn without_aof(mut self) -> Self {
        self.fsync = None;
        self
    }

    /// No persistence at one node.
    #[must_use]
    pub fn without_aof_at(mut self, index: usize) -> Self {
        self.forgetful.push(index);
        self
    }

    /// Puts a [`Proxy`] in front of each node, and its address into the URL.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// A directive of `redis.conf` for all nodes.
    #[must_use]
    pub fn config(mut self, directive: impl Into<String>, value: impl Into<String>) -> Self {
        self.directives.push((directive.into(), value.into()));
        self
    }

    /// Makes one node use a clock that the test changes (keep a clone of it).
    #[must_use]
    pub fn clock(mut self, index: usize, clock: ClockShim) -> Self {
        self.clocks.push((index, clock));
        self
    }

    /// Sets a password at one node.
    #[must_use]
    pub fn password(mut self, index: usize, password: impl Into<String>) -> Self {
        self.passwords.push((index, password.into()));
        self
    }

    /// Starts the nodes and returns when all answer.
    pub fn start(self) -> RedlockNodes {
        let servers = start_all((0..self.nodes).map(|index| self.node(index)).collect());
        let proxies = if self.proxied {
            servers
                .iter()
                .map(|server| Proxy::start(server.addr()))
                .collect()
        } else {
            Vec::new()
        };
        RedlockNodes { proxies, servers }
    }

    fn node(&self, index: usize) -> ServerBuilder {
        let mut setup = RedisServer::builder();
        if let Some(fsync) = self.fsync.filter(|_| !self.forgetful.contains(&index)) {
            setup = setup.aof(fsync);
        }
        for (directive, value) in &self.directives {
            setup = setup.config(directive, value);
        }
        for (_, clock) in self.clocks.iter().filter(|(at, _)| *at == index) {
            setup = setup.clock(clock.clone());
        }
        for (_, password) in self.passwords.iter().filter(|(at, _)| *at == index) {
            setup = setup.password(password);
        }
        setup
    }
}
