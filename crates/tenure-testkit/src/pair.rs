//! A server and a lagging copy that swap roles.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::wait::eventually;
use crate::{Proxy, RedisServer, ServerBuilder};

/// Time limit for a copy to connect to its primary, even on a busy machine.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// Two servers, one of which replicates the other. They are not monitored: the test decides when the
/// copy replaces the primary, and redirects clients, for example with [`Proxy::swap_target`].
#[derive(Debug)]
pub struct Pair {
    servers: [RedisServer; 2],
    /// The proxies through which the servers replicate from each other.
    links: [Proxy; 2],
    primary: AtomicUsize,
}

impl Pair {
    /// Starts both with these settings, and returns when the copy is connected to its primary.
    pub fn start(setup: &ServerBuilder) -> Self {
        let servers = [setup.clone().start(), setup.clone().start()];
        let links = [0, 1].map(|index: usize| Proxy::start(servers[index].addr()));
        let pair = Self {
            servers,
            links,
            primary: AtomicUsize::new(0),
        };
        pair.follow(1, 0);
        pair
    }

    /// The server for clients.
    pub fn primary(&self) -> &RedisServer {
        &self.servers[self.index()]
    }

    /// The other one.
    pub fn copy(&self) -> &RedisServer {
        &self.servers[1 - self.index()]
    }

    /// Both, in the order of their start.
    pub fn servers(&self) -> &[RedisServer; 2] {
        &self.servers
    }

    /// Delays replication to the copy by `lag`; zero ends the delay.
    pub fn set_lag(&self, lag: Duration) {
        self.links[self.index()].delay_replies(lag);
    }

    /// Promotes the copy as it is: writes that have not reached it are lost. The old primary keeps serving
    /// until [`follow_new`](Self::follow_new).
    pub fn promote(&self) -> &RedisServer {
        let old = self.index();
        self.servers[1 - old].run(&["REPLICAOF", "NO", "ONE"]);
        self.primary.store(1 - old, Ordering::SeqCst);
        self.links[old].heal();
        self.primary()
    }

    /// Makes the old primary a copy of the new one, and returns when its data is replaced.
    pub fn follow_new(&self) {
        let new = self.index();
        self.follow(1 - new, new);
    }

    fn follow(&self, copy: usize, primary: usize) {
        let port = self.links[primary].addr().port().to_string();
        self.servers[copy].run(&["REPLICAOF", "127.0.0.1", &port]);
        let is_up = eventually(SYNC_LIMIT, || {
            self.servers[copy].master_link().as_deref() == Some("up")
        });
        assert!(is_up, "the copy does not connect to its primary");
    }

    fn index(&self) -> usize {
        self.primary.load(Ordering::SeqCst)
    }
}
