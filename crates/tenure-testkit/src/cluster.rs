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

/// Time limit for steps that must succeed, even on a busy machine.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);

/// Three masters with a replica each, by default: real processes on `127.0.0.1`, killed when
/// dropped.
///
/// The nodes are counted from zero in [`servers`](Self::servers): the first masters in the order of
/// their slots, then the first master's replica, the second's and so on. They keep their numbers
/// whichever node is master. Each can be [paused](RedisServer::pause), [killed](RedisServer::kill) and
/// [restarted](RedisServer::restart) separately, and remembers the cluster. It keeps its keys only
/// with an [append-only file](ClusterBuilder::aof). After
/// [`restart_empty`](RedisServer::restart_empty) it has forgotten its identity, and the cluster does
/// not know it.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<RedisServer>,
    masters: usize,
    /// Whether the last server joins later.
    has_latecomer: bool,
    /// One slot at a time gets its new master. The node that gets a slot raises its own epoch. If it were
    /// also the source of another slot, it would claim that slot back before it learns of the move, and
    /// the new master would drop the keys.
    ending_migration: Mutex<()>,
    /// One `MIGRATE` at a time. It blocks its server until the target has replied, so two of them in
    /// opposite directions would deadlock, and both nodes would look dead. Only the kit sends `MIGRATE`,
    /// and a cluster belongs to the process that started it.
    migrating: Mutex<()>,
    /// Shared by all nodes, with TLS.
    certificates: Option<Certificates>,
}

impl Cluster {
    /// Starts three masters with a replica each.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Builds a cluster with custom settings.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The slot of a key: the hash of the text between its first `{` and the next `}` if that is not
    /// empty, else of the whole key.
    pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
        slot::slot_of(key.as_ref())
    }

    /// `redis-cluster://127.0.0.1:PORT,127.0.0.1:PORT,..` with all nodes, preceded by the password if
    /// there is one. With TLS: `rediss-cluster://`, the TLS ports, and `?ca=PATH`.
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

    /// The node that serves a slot according to the node with the latest information, dead or alive.
    /// Panics if there is none.
    #[track_caller]
    pub fn master_of_slot(&self, slot: u16) -> &RedisServer {
        let views = self.awake().filter_map(|server| View::of(server).ok());
        let owners = views.filter_map(|view| view.owner_of(slot).cloned());
        let owner = owners.max_by_key(|owner| owner.epoch);
        let owner = owner.unwrap_or_else(|| panic!("no node serves slot `{slot}`"));
        self.server_at(owner.port)
    }

    /// The node that serves a key.
    #[track_caller]
    pub fn master_of_key(&self, key: impl AsRef<[u8]>) -> &RedisServer {
        self.master_of_slot(Self::slot_of(key))
    }

    /// All nodes in the shard of `server`, masters and replicas.
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

    /// Waits until all running nodes see each other, agree on the masters and on every slot, report
    /// `cluster_state:ok`, and the replicas are in sync. Returns `false` if that takes longer than
    /// `limit`.
    pub fn wait_until_ok(&self, limit: Duration) -> bool {
        until_ok(limit, || self.is_ok()).is_ok()
    }

    /// Removes a slot from its master, so that no node serves it, and returns when all nodes know.
    ///
    /// The whole cluster then stops serving, unless it was built with [partial
    /// coverage](ClusterBuilder::partial_coverage).
    #[track_caller]
    pub fn uncover_slot(&self, slot: u16) {
        let word = slot.to_string();
        // Gossip about the old master may restore the slot in between.
        self.expect(|cluster| {
            for server in cluster.awake() {
                // Refused if the slot is already uncovered.
                let _ = server.try_run(&["CLUSTER", "DELSLOTS", &word]);
            }
            cluster.all_see(slot, None)
        });
    }

    /// Undoes [`uncover_slot`](Self::uncover_slot): assigns the slot to a master.
    #[track_caller]
    pub fn cover_slot(&self, slot: u16, by: &RedisServer) {
        by.run(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
        self.expect(|cluster| cluster.all_see(slot, Some(by)));
    }

    /// Whether all running nodes agree that `owner`, or no node, serves a slot.
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

    /// Waits until `condition` holds; panics with its last error and the logs if that takes too long.
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
        // Nodes report plain ports to the kit, which connects without TLS. A replica reports the port
        // on which it reaches its master.
        let is_there = |one: &&RedisServer| one.port() == port || one.peer_port() == port;
        let found = self.servers.iter().find(is_there);
        found.unwrap_or_else(|| panic!("no node of this cluster listens on port `{port}`"))
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        panic!("{what}\n{}", log_tails(&self.servers));
    }
}
