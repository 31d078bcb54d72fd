//! The store on one Redis server, or on the nodes of a Redis Cluster.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::channels::Channels;
use super::cluster::{Cluster, Route, Slot};
use super::keys::Keys;
use super::node::Node;
use super::operation::{Arrive, Proclaim, Release, Resize};
use super::routes::Routes;
use super::server::Server;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::lease::{ClientId, LeaseId};
use crate::moment::{Clock, Moment};
use crate::name::LockName;
use crate::pending_work::Pending;
use crate::seeded::{Bug, bug};
use crate::settings::RESPONSE_TIMEOUT_DEFAULT;
use crate::stats::Stats;
use crate::store::{
    AcquireReply, Arrival, Attempt, BoxFuture, CallerAcquire, Event, Failure, InFlight,
    InspectResult, LatchReply, LeaseSpec, LockState, ModeReply, NeedsMessages, Proclamation,
    QueuePosition, QueuedWaiter, Record, RecordChange, RecordWritten, ReleaseReply, RenewReply,
    RunRequest, RunState, SeveralReply, Store, TurnReply, WatchReply,
};
use crate::url::{RedisTarget, SentinelTarget};

pub(crate) struct RedisStore {
    pub(super) routes: Routes,
    /// The channels of waiters, on all nodes.
    pub(super) channels: Arc<Channels>,
    pub(super) keys: Keys,
    pub(super) response_timeout: Duration,
    /// Whether messages stay in the shard of their lock.
    pub(super) sharded: bool,
    pub(super) clock: Clock,
    pub(super) stats: Arc<Stats>,
    pub(super) tracking_warned: AtomicBool,
    /// How long a new primary grants no new locks.
    pub(super) after_failover: OnceLock<Duration>,
    /// How the lease ids of the client that uses this store begin, in the native layout.
    pub(super) own_prefix: OnceLock<String>,
}

impl RedisStore {
    /// Must be called on the engine. With a runtime, callers that run there use its connection.
    pub(crate) fn new(
        target: RedisTarget,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let server = Server::new(target, Arc::clone(&stats));
        Self::on_one(server, stats, runtime)
    }

    /// On the primary that the sentinels name. Must be called on the engine.
    pub(crate) fn by_sentinels(
        target: SentinelTarget,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let server = Server::by_sentinels(target, Arc::clone(&stats));
        Self::on_one(server, stats, runtime)
    }

    /// On the cluster that these nodes belong to. Must be called on the engine.
    pub(crate) fn in_cluster(
        nodes: Vec<RedisTarget>,
        sharded: bool,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let first = nodes.first();
        let keys = first.map(Keys::of).unwrap_or_default();
        let response_timeout = first.map_or(RESPONSE_TIMEOUT_DEFAULT, |node| node.response_timeout);
        let channels = Arc::new(Channels::default());
        let (for_nodes, heard) = (Arc::clone(&stats), Arc::clone(&channels));
        let cluster = Cluster::new(nodes, sharded, for_nodes, runtime, heard);
        let routes = Routes::Cluster(cluster);
        Self::on(routes, channels, keys, response_timeout, sharded, stats)
    }

    pub(super) fn on_one(
        server: Arc<Server>,
        stats: Arc<Stats>,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        let (keys, response_timeout) = (server.keys.clone(), server.target.response_timeout);
        let channels = Arc::new(Channels::default());
        let routes = Routes::One(Node::new(server, runtime, &channels));
        Self::on(routes, channels, keys, response_timeout, false, stats)
    }

    pub(super) fn on(
        routes: Routes,
        channels: Arc<Channels>,
        keys: Keys,
        response_timeout: Duration,
        sharded: bool,
        stats: Arc<Stats>,
    ) -> Arc<Self> {
        Arc::new(Self {
            routes,
            channels,
            keys,
            response_timeout,
            sharded,
            clock: Clock::Boot,
            stats,
            tracking_warned: AtomicBool::new(false),
            after_failover: OnceLock::new(),
            own_prefix: OnceLock::new(),
        })
    }

    /// Connects, so that a wrong address or password is reported at once.
    pub(crate) async fn connect(&self, limit: Moment) -> Result<(), Failure> {
        self.routes.connect(limit).await
    }

    /// The route to the node that has this lock, as far as is known.
    pub(super) fn route(&self, name: &LockName) -> Result<Route, Failure> {
        if matches!(self.routes, Routes::Cluster(_)) && self.keys.layout.splits(name) {
            let cause = "it contains a `{` but no hash tag, and Redisson would spread such a \
                         lock over several slots of the cluster: write `{tag}` or remove the `{`";
            return Err(Failure::refused(Error::invalid_name(name.as_str(), cause)));
        }
        self.routes.route(self.keys.lock(name).as_str())
    }

    /// The route to try after a failure, if there is one.
    pub(super) async fn next_route(
        &self,
        name: &LockName,
        route: Route,
        failure: Failure,
        limit: Moment,
    ) -> Result<Route, Failure> {
        self.routes
            .next_route(self.keys.lock(name).as_str(), route, failure, limit)
            .await
    }

    /// No command waits longer than the response timeout.
    pub(super) fn command_limit(&self, limit: Moment) -> Moment {
        limit.min(self.clock.now() + self.response_timeout)
    }
}

impl Store for RedisStore {
    fn start(
        &self,
        client: ClientId,
        events: mpsc::UnboundedSender<Event>,
        _: Pending,
        needs_messages: NeedsMessages,
    ) {
        // A store is started once.
        let _ = self.own_prefix.set(LeaseId::prefix_of(client));
        self.channels.set_needs_messages(needs_messages);
        self.routes.start(events);
    }

    fn acquire<'a>(
        &'a self,
        attempt: &'a Attempt,
        limit: Moment,
    ) -> BoxFuture<'a, Result<AcquireReply, Failure>> {
        Box::pin(self.try_acquire(attempt, limit))
    }

    fn acquire_on_caller<'a>(&'a self, attempt: &'a Attempt) -> Option<CallerAcquire<'a>> {
        self.try_acquire_on_caller(attempt)
    }

    /// Also on one server: it may be a node of a cluster, and clients learn that at different times.
    fn slot_of(&self, name: &LockName) -> u16 {
        Slot::of_key(&self.keys.lock(name)).number()
    }

    fn acquires_together(&self, names: &[&LockName]) -> bool {
        self.can_acquire_together(names)
    }

    fn acquire_several<'a>(
        &'a self,
        attempts: &'a [Attempt],
        limit: Moment,
    ) -> BoxFuture<'a, Result<SeveralReply, Failure>> {
        Box::pin(self.try_acquire_several(attempts, limit))
    }

    fn release_several<'a>(
        &'a self,
        leases: &'a [LeaseSpec],
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<ReleaseReply>>, Failure>> {
        Box::pin(self.try_release_several(leases, limit))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>> {
        Box::pin(self.try_renew(lease, watched, limit))
    }

    fn renew_all<'a>(
        &'a self,
        leases: Vec<&'a LeaseSpec>,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<RenewReply>>, Failure>> {
        Box::pin(self.try_renew_all(leases, watched, limit))
    }

    /// Not where messages may come from another server than the offer: its clock is another one. Not
    /// after a failover either, because the message does not tell which primary wrote the offer.
    fn grants_by_offer(&self) -> bool {
        let is_one_server = matches!(self.routes, Routes::One(_)) || self.sharded;
        self.keys.layout == Layout::Native && is_one_server && !self.pauses_after_failover()
    }

    fn node_of(&self, name: &LockName) -> u64 {
        if bug(Bug::PlacesRenewedTogether) {
            return 0;
        }
        self.route(name)
            .map_or(0, |route| route.node.listener.number())
    }

    fn adopt<'a>(
        &'a self,
        from: &'a LeaseId,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>> {
        Box::pin(self.try_adopt(from, lease, limit))
    }

    fn change_mode<'a>(
        &'a self,
        from: &'a LeaseId,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<ModeReply, Failure>> {
        Box::pin(self.try_change_mode(from, lease, limit))
    }

    fn resize<'a>(
        &'a self,
        name: &'a LockName,
        limit: u32,
        until: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            self.perform(&Resize { name, limit }, until).await?;
            Ok(())
        })
    }

    fn run_step<'a>(
        &'a self,
        request: &'a RunRequest,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RunState, Failure>> {
        Box::pin(self.try_run_step(request, limit))
    }

    fn arrive<'a>(
        &'a self,
        arrival: &'a Arrival,
        limit: Moment,
    ) -> BoxFuture<'a, Result<LatchReply, Failure>> {
        Box::pin(async move { Ok(self.perform(&Arrive(arrival), limit).await?.reply) })
    }

    fn watch<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>> {
        Box::pin(self.try_watch(lease, limit))
    }

    fn release<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<ReleaseReply, Failure>> {
        Box::pin(self.release_at_owner(self.heard_release(lease, dequeue), limit))
    }

    fn release_to<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
        to: &'a LeaseId,
        limit: Moment,
    ) -> BoxFuture<'a, Result<ReleaseReply, Failure>> {
        let release = Release {
            to: Some(to),
            ..self.heard_release(lease, dequeue)
        };
        Box::pin(self.release_at_owner(release, limit))
    }

    fn turn<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        fences: u32,
        place: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<TurnReply, Failure>> {
        Box::pin(self.try_turn(lease, fences, place, limit))
    }

    fn release_on_caller<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
    ) -> Option<BoxFuture<'a, Result<ReleaseReply, Failure>>> {
        let node = self.route(&lease.name).ok()?.node;
        let connection = node.caller_connection()?;
        Some(Box::pin(async move {
            let released = self.release_by_caller(&connection, lease, dequeue).await;
            released.map_err(|failure| self.routes.note_failure(&node, failure))
        }))
    }

    fn cancel<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        in_flight: InFlight,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<Duration>, Failure>> {
        Box::pin(self.try_cancel(lease, in_flight, limit))
    }

    fn inspect<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>> {
        Box::pin(self.try_inspect(name, limit))
    }

    fn observe<'a>(
        &'a self,
        _: ClientId,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>> {
        Box::pin(self.try_observe(name, limit))
    }

    fn proclaim<'a>(
        &'a self,
        proclamation: &'a Proclamation,
        limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>> {
        Box::pin(async move { Ok(self.perform(&Proclaim(proclamation), limit).await?.reply) })
    }

    fn inspect_all<'a>(
        &'a self,
        names: &'a [LockName],
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<InspectResult>, Failure>> {
        Box::pin(self.try_inspect_all(names, limit))
    }

    fn queue_position<'a>(
        &'a self,
        name: &'a LockName,
        place: &'a LeaseId,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<QueuePosition>, Failure>> {
        Box::pin(self.try_queue_position(name, place, limit))
    }

    fn heartbeat<'a>(
        &'a self,
        places: &'a [QueuedWaiter],
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<bool>>, Failure>> {
        Box::pin(self.try_heartbeat(places, limit))
    }

    fn waiters<'a>(
        &'a self,
        names: &'a [LockName],
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<Vec<LeaseId>>>, Failure>> {
        Box::pin(self.try_waiters(names, limit))
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.try_subscribe(name, limit))
    }

    fn unsubscribe<'a>(&'a self, name: &'a LockName, limit: Moment) -> BoxFuture<'a, ()> {
        Box::pin(self.try_unsubscribe(name, limit))
    }

    fn ask<'a>(
        &'a self,
        name: &'a LockName,
        holder: &'a LeaseId,
        limit: Moment,
    ) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(self.try_ask(name, holder, limit))
    }

    fn write_record<'a>(
        &'a self,
        client: ClientId,
        change: &'a RecordChange,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RecordWritten, Failure>> {
        Box::pin(self.try_write_record(client, change, limit))
    }

    fn records(
        &self,
        only: Option<ClientId>,
        limit: Moment,
    ) -> BoxFuture<'_, Result<Vec<Record>, Failure>> {
        Box::pin(self.try_records(only, limit))
    }
}
