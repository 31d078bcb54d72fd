//! A Redis Cluster: its nodes, and which one has a key. `redirect.rs` follows redirects.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

pub(super) use self::redirect::Route;
use self::redirect_reply::NodeAddress;
pub(super) use self::redirect_reply::Redirect;
pub(super) use self::slot::Slot;
use self::slot_map::SlotMap;
use super::channels::Channels;
use super::node::Node;
use super::server::Server;
use crate::error::{Error, ErrorKind};
use crate::moment::Clock;
use crate::name::LockName;
use crate::stats::Stats;
use crate::store::{Event, Failure};
use crate::url::RedisTarget;

mod redirect;
mod redirect_reply;
mod refresh;
pub(super) mod slot;
mod slot_map;
mod subscribe;

pub(super) struct Cluster {
    /// The nodes of the URL: used first, and when no other node can be reached.
    seeds: OnceLock<Vec<Arc<Node>>>,
    /// Whether messages stay in the shard of their lock.
    sharded: bool,
    stats: Arc<Stats>,
    engine: Handle,
    runtime: Option<Handle>,
    clock: Clock,
    /// A std lock: never held across an await.
    map: RwLock<SlotMap>,
    channels: Arc<Channels>,
    events: OnceLock<mpsc::UnboundedSender<Event>>,
    /// The slot map may be outdated.
    outdated: Notify,
    /// The target of the last `MOVED` redirect: it knows the new map.
    last_redirect_target: Mutex<Option<Arc<Node>>>,
}

impl Cluster {
    /// Must be called on the engine.
    pub(super) fn new(
        seeds: Vec<RedisTarget>,
        sharded: bool,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
        channels: Arc<Channels>,
    ) -> Arc<Self> {
        let cluster = Arc::new(Self {
            seeds: OnceLock::new(),
            sharded,
            stats,
            engine: Handle::current(),
            runtime,
            clock: Clock::Boot,
            map: RwLock::default(),
            channels,
            events: OnceLock::new(),
            outdated: Notify::new(),
            last_redirect_target: Mutex::default(),
        });
        let seeds = seeds.into_iter().map(|seed| cluster.new_node(seed));
        let _ = cluster.seeds.set(seeds.collect());
        tokio::spawn(refresh::keep_refreshed(Arc::clone(&cluster)));
        tokio::spawn(subscribe::keep_subscribed(Arc::clone(&cluster)));
        cluster
    }

    /// Starts to forward what the nodes send. Must be called on the engine.
    pub(super) fn start(&self, events: mpsc::UnboundedSender<Event>) {
        if self.events.set(events).is_ok()
            && let Some(events) = self.events.get()
        {
            // Nodes made later are started then.
            let nodes = self.nodes();
            nodes
                .iter()
                .chain(self.seeds())
                .for_each(|node| node.start(events));
        }
    }

    fn seeds(&self) -> &[Arc<Node>] {
        self.seeds.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map().nodes().to_vec()
    }

    /// The route to the node that has this key, as far as is known.
    pub(super) fn route(&self, key: &str) -> Result<Route, Failure> {
        let slot = Slot::of(key.as_bytes());
        match self.owner(slot) {
            Some(node) => Ok(Route::to(node)),
            None => Err(self.no_owner_error(key)),
        }
    }

    /// The tag of the key under which a node stores since when it has been the primary: in its first
    /// slot, so that all clients use the same key. If that slot moves, the pause starts again, which only
    /// makes it longer.
    pub(super) fn reign_tag(&self, node: &Arc<Node>) -> u32 {
        let slot = self.map().first_slot_of(node);
        slot.map_or(0, Slot::tag)
    }

    fn owner(&self, slot: Slot) -> Option<Arc<Node>> {
        self.map().owner(slot).cloned()
    }

    /// The slot map may be outdated: fetches a new one in the background.
    pub(super) fn request_refresh(&self) {
        self.outdated.notify_one();
    }

    /// Notes which node has a slot now.
    fn note_slot_owner(&self, slot: Slot, to: &NodeAddress, reported_by: &Node) -> Arc<Node> {
        let node = self.node_at(to, reported_by);
        self.map
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .assign(slot, Arc::clone(&node));
        *lock(&self.last_redirect_target) = Some(Arc::clone(&node));
        self.channels.recheck();
        // Slots rarely move alone.
        self.request_refresh();
        node
    }

    /// The node at this address, made if it is not known.
    fn node_at(&self, at: &NodeAddress, reported_by: &Node) -> Arc<Node> {
        let target = at.relative_to(&reported_by.server.target);
        let known = self.map().node_at(&target.address).cloned();
        let seed = || self.seeds().iter().find(|seed| seed.is_at(&target.address));
        let known = known.or_else(|| seed().cloned());
        known.unwrap_or_else(|| self.new_node(target))
    }

    fn new_node(&self, target: RedisTarget) -> Arc<Node> {
        let _engine = self.engine.enter();
        let server = Server::in_cluster(target, self.sharded, Arc::clone(&self.stats));
        let node = Node::new(server, self.runtime.clone(), &self.channels);
        if let Some(events) = self.events.get() {
            node.start(events);
        }
        node
    }

    fn map(&self) -> RwLockReadGuard<'_, SlotMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// No known node serves the slot of this key.
    fn no_owner_error(&self, key: &str) -> Failure {
        self.request_refresh();
        // People know the lock by its name.
        let keys = self.seeds().first().map(|seed| &seed.server.keys);
        let name = keys.and_then(|keys| keys.name_of(key));
        let shown = name.as_ref().map_or(key, LockName::as_str);
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "no node of the cluster serves slot `{}` of `{shown}`: restore its primary or \
                 assign the slot to another one; see `redis-cli --cluster check`",
                Slot::of(key.as_bytes())
            ),
        ))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
