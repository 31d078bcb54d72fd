//! A Redis Cluster: masters that share the slots, and their replicas.

mod builder;
mod failover;
mod forming;
mod joining;
mod migration;
mod slot;
mod view;

use std::sync::Mutex;
use std::time::Duration;

pub use builder::ClusterBuilder;
pub use failover::FailoverKind;
pub use migration::Migration;

use view::View;

use crate::server::log_tails;
use crate::tls::Certificates;
use crate::wait::until_ok;
use crate::{RedisServer, TlsFiles};

/// How long anything that is not bound to fail may take on a crowded machine.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);

/// Three masters with a replica each, by default: real processes on `127.0.0.1`, killed when
/// dropped.
///
/// The nodes are counted from zero in [`servers`](Self::servers): the first masters in the order of
/// their slots, then the first master's replica, the second's and so on. They keep their numbers
/// whoever is master. Each can be [paused](RedisServer::pause), [killed](RedisServer::kill) and
/// [restarted](RedisServer::restart) by itself, and remembers the cluster; what it remembers of its
/// keys is in the [append-only file](ClusterBuilder::aof) if there is one. After
/// [`restart_empty`](RedisServer::restart_empty) it has forgotten who it was and is a stranger.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<RedisServer>,
    masters: usize,
    /// Whether the last of the servers joins later.
    has_latecomer: bool,
    /// One slot at a time gets its new master. Whoever gets one raises its own epoch: if that were the
    /// source of another, it would claim that one back before it is told, and its new master would
    /// drop the keys.
    ending_migration: Mutex<()>,
    /// One `MIGRATE` at a time. It blocks its server until the target has answered, so two of them
    /// in opposite directions would wait for each other, and both nodes would look dead. Nobody but
    /// the kit sends one, and a cluster belongs to the process that started it.
    migrating: Mutex<()>,
    /// Those of all nodes, if they speak TLS.
    certificates: Option<Certificates>,
}

impl Cluster {
    /// Starts three masters with a replica each.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A cluster with settings of one's own.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The slot of a key: of what stands between its first `{` and the next `}`, if that is
    /// anything, else of all of it.
    pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
        slot::slot_of(key.as_ref())
    }

    /// `redis-cluster://127.0.0.1:PORT,127.0.0.1:PORT,..` with all nodes, and before them the
    /// password if there is one. With TLS `rediss-cluster://`, the ports for that, and `?ca=PATH`.
    pub fn url(&self) -> String {
        let credentials = self.servers[0].credentials();
        let addrs = self.founders().iter();
        let addrs = addrs.map(|one| one.peer_addr().to_string());
        let addrs = addrs.collect::<Vec<_>>().join(",");
        if self.certificates.is_none() {
            return format!("redis-cluster://{credentials}{addrs}");
        }
        let certificates = self.servers[0].tls_parameters();
        format!("rediss-cluster://{credentials}{addrs}?{certificates}")
    }

    /// The certificates in use. Panics if the cluster was built without TLS.
    #[track_caller]
    pub fn tls_files(&self) -> &TlsFiles {
        let certificates = self.certificates.as_ref();
        &certificates.expect("the cluster has no tls").files
    }

    /// All nodes.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The node that serves a slot, in the eyes of the node that knows the latest of it; dead or
    /// alive. Panics if nobody does.
    #[track_caller]
    pub fn master_of_slot(&self, slot: u16) -> &RedisServer {
        let views = self.awake().filter_map(|server| View::of(server).ok());
        let owners = views.filter_map(|view| view.owner_of(slot).cloned());
        let owner = owners.max_by_key(|owner| owner.epoch);
        let owner = owner.unwrap_or_else(|| panic!("nobody serves slot `{slot}`"));
        self.server_at(owner.port)
    }

    /// The node that serves a key.
    #[track_caller]
    pub fn master_of_key(&self, key: impl AsRef<[u8]>) -> &RedisServer {
        self.master_of_slot(Self::slot_of(key))
    }

    /// The nodes that were started to replicate each other, master or not: `server` and the others
    /// of its shard.
    #[track_caller]
    pub fn shard_of(&self, server: &RedisServer) -> Vec<&RedisServer> {
        let shard = self.index_of(server) % self.masters;
        let shard = self.servers.iter().skip(shard).step_by(self.masters);
        shard.collect()
    }

    /// The number of a node in [`servers`](Self::servers).
    #[track_caller]
    pub fn index_of(&self, server: &RedisServer) -> usize {
        let found = self.servers.iter().position(|own| own.is(server));
        found.unwrap_or_else(|| panic!("`{}` is not one of these nodes", server.addr()))
    }

    /// Waits until all nodes that run see each other, agree on who is master and on every slot, say
    /// `cluster_state:ok`, and the replicas among them are in sync. `false` if they do not within
    /// `limit`.
    pub fn wait_until_ok(&self, limit: Duration) -> bool {
        until_ok(limit, || self.is_ok()).is_ok()
    }

    /// Takes a slot from its master, so that nobody serves it, and returns when all nodes know.
    ///
    /// The whole cluster refuses to work then, unless it was built for [partial
    /// coverage](ClusterBuilder::partial_coverage).
    #[track_caller]
    pub fn uncover_slot(&self, slot: u16) {
        let word = slot.to_string();
        // A node that hears of the old master in between believes it again.
        self.expect(|cluster| {
            for server in cluster.awake() {
                // Refused where the slot is uncovered already.
                let _ = server.try_run(&["CLUSTER", "DELSLOTS", &word]);
            }
            cluster.all_see(slot, None)
        });
    }

    /// The end of [`uncover_slot`](Self::uncover_slot): gives the slot to a master.
    #[track_caller]
    pub fn cover_slot(&self, slot: u16, by: &RedisServer) {
        by.run(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
        self.expect(|cluster| cluster.all_see(slot, Some(by)));
    }

    /// Whether all nodes that run see this master, or nobody, serve a slot.
    fn all_see(&self, slot: u16, owner: Option<&RedisServer>) -> Result<(), String> {
        for server in self.awake() {
            let view = View::of(server)?;
            let seen = view.owner_of(slot).map(|node| node.port);
            if seen != owner.map(RedisServer::port) {
                let addr = server.addr();
                return Err(format!("`{addr}` sees slot `{slot}` at `{seen:?}`"));
            }
        }
        Ok(())
    }

    /// Waits until `condition` is fulfilled; panics with what is in its way and the logs if that
    /// takes too long.
    #[track_caller]
    fn expect(&self, condition: impl Fn(&Self) -> Result<(), String>) {
        if let Err(obstacle) = until_ok(SETTLE_LIMIT, || condition(self)) {
            self.fail(&obstacle);
        }
    }

    fn awake(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter().filter(|server| server.is_awake())
    }

    #[track_caller]
    fn server_at(&self, port: u16) -> &RedisServer {
        // A node tells the kit, which asks without TLS, the plain ports; a replica says where it
        // finds its master itself.
        let is_there = |one: &&RedisServer| one.port() == port || one.peer_port() == port;
        let found = self.servers.iter().find(is_there);
        found.unwrap_or_else(|| panic!("no node of this cluster listens on port `{port}`"))
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{}", log_tails(&self.servers));
    }
}
