//! A Redis Cluster: which node to use, and which one to try next after a redirect.
//!
//! A node redirects before it runs anything, so trying elsewhere is safe. All other failures are
//! for the caller to decide: nothing that may have run is ever sent again.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use ::redis::Cmd;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

use self::redirect::NodeAddress;
pub(super) use self::redirect::Redirect;
use self::slot::Slot;
use self::slot_map::SlotMap;
use super::channels::Channels;
use super::node::Node;
use super::script::Script;
use super::server::Server;
use super::value::Value;
use crate::error::{Error, ErrorKind};
use crate::moment::{Clock, Moment};
use crate::seeded::{Bug, bug};
use crate::stats::Stats;
use crate::store::{Event, Failure};
use crate::url::RedisTarget;

mod redirect;
mod refresh;
mod slot;
mod slot_map;
mod subscribe;

/// How many redirects to follow for one request. Nodes that point at each other have not agreed
/// yet, so waiting is better.
const REDIRECTS_MAX: u32 = 5;
/// How long to wait before retrying keys of a migrating slot, at first and at most.
const TRY_AGAIN_MIN: Duration = Duration::from_millis(2);
const TRY_AGAIN_MAX: Duration = Duration::from_millis(32);
/// How long to retry internally. Then the caller gets the reason, and retries for as long as it
/// likes.
const TRY_AGAIN_PATIENCE: Duration = Duration::from_millis(250);

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

/// The route to the node that has a key.
pub(super) struct Route {
    pub(super) node: Arc<Node>,
    /// Whether the key is there already although its slot is still migrating.
    pub(super) asking: bool,
    redirects: u32,
    /// Since when a migrating slot is retried, and how long to wait the next time.
    trying_since: Option<Moment>,
    pause: Duration,
}

impl Route {
    pub(super) fn to(node: Arc<Node>) -> Self {
        Self {
            node,
            asking: false,
            redirects: 0,
            trying_since: None,
            pause: TRY_AGAIN_MIN,
        }
    }

    /// Runs a command on this node.
    pub(super) async fn run(&self, command: &Cmd, limit: Moment) -> Result<Value, Failure> {
        let connection = self.node.commands.connection(limit).await?;
        connection.run_routed(self.asking, command, limit, 0).await
    }

    /// Runs a script on this node.
    pub(super) async fn script<K: AsRef<[u8]>, A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[K],
        arguments: &[A],
        limit: Moment,
    ) -> Result<Value, Failure> {
        let connection = self.node.commands.connection(limit).await?;
        connection
            .script_routed(self.asking, script, keys, arguments, limit, 0)
            .await
    }

    fn redirected(self, node: Arc<Node>, asking: bool) -> Self {
        Self {
            node,
            asking,
            redirects: self.redirects + 1,
            ..self
        }
    }
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

    /// The key under which a node stores since when it has been the primary: in its first slot, so
    /// that all clients use the same key. If that slot moves, the pause starts again, which only
    /// makes it longer.
    pub(super) fn reign_key(&self, node: &Arc<Node>) -> String {
        let slot = self.map().first_slot_of(node);
        let tag = slot.map_or(0, Slot::tag);
        format!("tenure:reign:{{{tag}}}")
    }

    fn owner(&self, slot: Slot) -> Option<Arc<Node>> {
        self.map().owner(slot).cloned()
    }

    /// The route to try after a failure, if the node did nothing and named another one, or asked
    /// for a retry.
    pub(super) async fn next_route(
        &self,
        key: &str,
        route: Route,
        failure: Failure,
        limit: Moment,
    ) -> Result<Route, Failure> {
        let redirect = Redirect::of(&failure).filter(|_| !bug(Bug::MovedNotFollowed));
        let Some(redirect) = redirect else {
            return Err(self.note_failure(&route.node, failure));
        };
        if redirect == Redirect::Down {
            return Err(self.cluster_down_error(key, &failure));
        }
        if self.clock.now() >= limit || route.redirects >= REDIRECTS_MAX {
            self.request_refresh();
            return Err(migrating_error(key, &failure));
        }
        match redirect {
            Redirect::Moved { slot, to } => {
                let node = self.note_slot_owner(slot, &to, &route.node);
                Ok(route.redirected(node, false))
            }
            Redirect::Ask { to } => {
                let node = self.node_at(&to, &route.node);
                Ok(route.redirected(node, true))
            }
            Redirect::TryAgain => self.try_again(key, &route, &failure, limit).await,
            Redirect::Down | Redirect::ReadOnly => Err(self.note_failure(&route.node, failure)),
        }
    }

    /// Waits for a migrating slot. By then it may have arrived.
    async fn try_again(
        &self,
        key: &str,
        route: &Route,
        failure: &Failure,
        limit: Moment,
    ) -> Result<Route, Failure> {
        let now = self.clock.now();
        let since = route.trying_since.unwrap_or(now);
        if now >= since + TRY_AGAIN_PATIENCE {
            return Err(migrating_error(key, failure));
        }
        tokio::time::sleep(route.pause.min(limit.saturating_since(now))).await;
        Ok(Route {
            redirects: route.redirects,
            trying_since: Some(since),
            pause: (route.pause * 2).min(TRY_AGAIN_MAX),
            ..self.route(key)?
        })
    }

    /// Learns from a failure that is returned to the caller, and marks it transient if it was only
    /// a redirect.
    pub(super) fn note_failure(&self, node: &Arc<Node>, failure: Failure) -> Failure {
        let redirect = Redirect::of(&failure);
        if let Some(Redirect::Moved { slot, to }) = &redirect {
            self.note_slot_owner(*slot, to, node);
        } else if failure.transient || redirect.is_some() {
            // The node may be gone, and another one may have replaced it.
            self.request_refresh();
        }
        let only_elsewhere = redirect.is_some() && !bug(Bug::MovedNotFollowed);
        Failure {
            transient: failure.transient || only_elsewhere,
            ..failure
        }
    }

    /// Learns from an error reply inside a pipeline.
    pub(super) fn note_error_reply(&self, node: &Arc<Node>, reply: &str) {
        if let Some(Redirect::Moved { slot, to }) = Redirect::read(reply) {
            self.note_slot_owner(slot, &to, node);
        }
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
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!(
                "no node of the cluster serves slot `{}` of `{key}`: bring its master back or give the \
                 slot to another one; `redis-cli --cluster check` tells more",
                Slot::of(key.as_bytes())
            ),
        ))
    }

    /// The cluster reports that it does not serve this key.
    fn cluster_down_error(&self, key: &str, failure: &Failure) -> Failure {
        self.request_refresh();
        let slot = Slot::of(key.as_bytes());
        let said = super::server_error::reply_of(failure).unwrap_or_default();
        Failure::not_sent(
            Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the cluster does not serve slot `{slot}` of `{key}` now: {said}; \
                     `redis-cli --cluster check` tells more"
                ),
            )
            .caused_by(said),
        )
    }
}

/// The slot is migrating, and that takes longer than this request may.
fn migrating_error(key: &str, failure: &Failure) -> Failure {
    let slot = Slot::of(key.as_bytes());
    let said = super::server_error::reply_of(failure).unwrap_or_default();
    Failure::not_sent(
        Error::new(
            ErrorKind::Unavailable,
            format!("slot `{slot}` of `{key}` is being moved to another node: ask again later"),
        )
        .caused_by(said),
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
