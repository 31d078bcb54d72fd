//! A server and a copy of it that lags behind, which change places.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::wait::eventually;
use crate::{Proxy, RedisServer, ServerBuilder};

/// How long a copy may take to find its primary, however crowded the machine is.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// Two servers, one of which replicates the other. Nobody watches them: the test says when the copy
/// takes the primary's place, and what leads clients there, such as [`Proxy::swap_target`].
#[derive(Debug)]
pub struct Pair {
    servers: [RedisServer; 2],
    /// The way to each server for the other one.
    links: [Proxy; 2],
    primary: AtomicUsize,
}

impl Pair {
    /// Starts both with these settings, and returns when the copy has found its primary.
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

    /// The server that clients are to use.
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

    /// Lets what is written reach the copy so much later; zero ends it.
    pub fn set_lag(&self, lag: Duration) {
        self.links[self.index()].delay_replies(lag);
    }

    /// Makes the copy a primary as it is: what has not reached it is lost. The old primary works on
    /// until [`follow_new`](Self::follow_new).
    pub fn promote(&self) -> &RedisServer {
        let old = self.index();
        self.servers[1 - old].run(&["REPLICAOF", "NO", "ONE"]);
        self.primary.store(1 - old, Ordering::SeqCst);
        self.links[old].heal();
        self.primary()
    }

    /// Makes the old primary a copy of the new one, and returns when it has forgotten what it knew.
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
        assert!(is_up, "the copy does not find its primary");
    }

    fn index(&self) -> usize {
        self.primary.load(Ordering::SeqCst)
    }
}
