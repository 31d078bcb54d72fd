//! The store on several independent servers: a lease holds the lock if a majority of the nodes has
//! it.
//!
//! Requests go to all nodes at once, and are decided as soon as a majority agrees; a node that
//! hangs delays nothing. Votes of a failed attempt are released. How a node votes, and why the
//! fences of a majority are unique and grow, is explained in `vote.lua`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::deferred_release::DeferredRelease;
use self::fan_out::FanOut;
use self::grants::{Grants, NodeVote};
use self::late_replies::LateReplies;
use self::node::{Readiness, RedlockNode, lock};
use self::node_age::NodeAges;
use self::subscribe::Subscriptions;
use self::vote_count::majority;
use crate::error::{Error, ErrorKind, Result};
use crate::lease::{ClientId, LeaseId};
use crate::moment::{Clock, Moment};
use crate::name::LockName;
use crate::pending_work::Pending;
use crate::seeded::{Bug, bug};
use crate::settings::RESPONSE_TIMEOUT_DEFAULT;
use crate::store::redis::{PlaceAfter, RedisStore};
use crate::store::{
    AcquireReply, Attempt, BoxFuture, CallerAcquire, Event, Failure, InFlight, InspectResult,
    LeaseSpec, LockState, NeedsMessages, Proclamation, Record, RecordChange, RecordWritten,
    ReleaseReply, RenewReply, Store, TurnReply, WatchReply,
};

mod acquire;
mod client_records;
mod deferred_release;
mod fan_out;
mod grants;
mod inspect;
mod late_replies;
mod node;
mod node_age;
mod node_age_sync;
mod release;
mod release_round;
mod renew;
mod round_request;
mod subscribe;
mod turn;
mod vote_count;
mod vote_round;

/// How long a shutdown waits for requests in flight to a node.
const SHUTDOWN_WAIT: Duration = Duration::from_millis(200);
/// How long to wait for the remaining nodes after a majority.
const GRACE_MIN: Duration = Duration::from_millis(200);
/// How long a node offers a lock to the next waiter: as in release.lua.
const OFFER: Duration = Duration::from_millis(100);
/// How many crowded locks are remembered before old ones are forgotten.
const CROWDED_MAX: usize = 1_000;
/// How many fences a block has at most: no more than there are microseconds in a round of votes, or
/// fences would run ahead of the clocks.
const FENCES_MAX: u32 = 256;

pub(crate) struct RedlockStore {
    shared: Arc<RedlockShared>,
}

struct RedlockShared {
    nodes: Vec<Arc<RedlockNode>>,
    majority: usize,
    longest_ttl: Duration,
    ages: Arc<NodeAges>,
    clock: Clock,
    response_timeout: Duration,
    /// The engine's runtime, for background work.
    runtime: Handle,
    pending: OnceLock<Pending>,
    grants: Grants,
    subscriptions: Subscriptions,
    late_replies: LateReplies,
    /// How long a round of votes took recently, in microseconds.
    round_us: AtomicU32,
    /// Locks that this process leaves to others for a moment.
    held_back: Mutex<HashMap<LockName, Moment>>,
    /// Locks that were offered to a waiter when they were released, for a moment.
    crowded: Mutex<HashMap<LockName, Moment>>,
}

impl RedlockStore {
    /// Must be called on the engine.
    pub(crate) fn new(nodes: Vec<Arc<RedisStore>>, longest_ttl: Duration) -> Arc<Self> {
        let ages = Arc::new(NodeAges::new(nodes.len(), longest_ttl));
        let first = nodes.first();
        let response_timeout =
            first.map_or(RESPONSE_TIMEOUT_DEFAULT, |node| node.response_timeout());
        for node in &nodes {
            node.has_fence_for_each_lock();
        }
        let nodes = nodes.into_iter().enumerate();
        let nodes: Vec<_> = nodes
            .map(|(index, store)| Arc::new(RedlockNode::new(store, index, Arc::clone(&ages))))
            .collect();
        for node in &nodes {
            tokio::spawn(deferred_release::run(Arc::clone(node)));
            tokio::spawn(node::keep_ready(Arc::clone(node)));
        }
        let shared = RedlockShared {
            majority: majority(nodes.len()),
            nodes,
            longest_ttl,
            ages,
            clock: Clock::Boot,
            response_timeout,
            runtime: Handle::current(),
            pending: OnceLock::new(),
            grants: Grants::default(),
            subscriptions: Subscriptions::default(),
            late_replies: LateReplies::default(),
            round_us: AtomicU32::new(1_000),
            held_back: Mutex::default(),
            crowded: Mutex::default(),
        };
        let shared = Arc::new(shared);
        tokio::spawn(late_replies::run(Arc::clone(&shared)));
        Arc::new(Self { shared })
    }

    /// Connects to all nodes, so that a mistake is reported at once. A minority may be missing.
    pub(crate) async fn connect(&self, limit: Moment) -> Result<()> {
        let shared = &self.shared;
        let reached = shared.prepare_all(limit).await;
        for (index, failure) in &reached.failed {
            if !failure.transient {
                return Err(failure.error.share());
            }
            tracing::warn!(
                node = %shared.nodes[*index].store.target(), error = %failure.error,
                "redlock.node_unreachable: continuing with the others"
            );
        }
        if reached.count < shared.majority {
            return Err(shared.too_few("can be reached"));
        }
        self.check_distinct()?;
        node_age_sync::settle(shared, limit).await?;
        tokio::spawn(node_age_sync::run(Arc::clone(shared)));
        Ok(())
    }

    /// Refuses a server that is listed twice: its vote would count twice.
    fn check_distinct(&self) -> Result<()> {
        let mut known = HashMap::new();
        for node in &self.shared.nodes {
            let Some(run_id) = node.run_id() else {
                continue;
            };
            if let Some(same) = known.insert(run_id, node) {
                let (one, other) = (same.store.target(), node.store.target());
                return Err(Error::invalid_setting(
                    "a node of a Redlock",
                    &other,
                    &format!("it is the same server as `{one}`, and would vote twice"),
                ));
            }
        }
        Ok(())
    }
}

/// The result of connecting to all nodes.
struct Reached {
    count: usize,
    failed: Vec<(usize, Failure)>,
}

impl RedlockShared {
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// The same, and a shutdown waits for it, but not for a node that hangs.
    fn spawn_pending(&self, work: impl Future<Output = ()> + Send + 'static) {
        let pending = self.pending.get().map(Pending::begin);
        self.runtime.spawn(async move {
            tokio::pin!(work);
            let in_time = tokio::time::timeout(SHUTDOWN_WAIT, &mut work).await;
            drop(pending);
            if in_time.is_err() {
                work.await;
            }
        });
    }

    /// Sends the same request to all nodes. Must be called on the engine.
    fn send_to_all<T, F>(
        &self,
        request: impl Fn(Arc<RedisStore>) -> F,
    ) -> FanOut<Result<T, Failure>>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
        T: 'static,
    {
        let nodes = self.nodes.iter().enumerate();
        let requests = nodes.map(|(index, node)| {
            let request = request(Arc::clone(&node.store));
            (index, Box::pin(request) as BoxFuture<'static, _>)
        });
        FanOut::begin(requests.collect())
    }

    async fn prepare_all(&self, limit: Moment) -> Reached {
        let mut replies = self.preparing(limit);
        let mut reached = Reached {
            count: 0,
            failed: Vec::new(),
        };
        let begun = self.clock.now();
        loop {
            let next = if reached.count < self.majority {
                Ok(replies.next().await)
            } else {
                let taken = self.clock.now().saturating_since(begun);
                tokio::time::timeout((taken * 3).max(GRACE_MIN), replies.next()).await
            };
            match next {
                Ok(Some((_, Ok(())))) => reached.count += 1,
                Ok(Some((node, Err(failure)))) => reached.failed.push((node, failure)),
                Ok(None) => return reached,
                Err(_) => {
                    // The others connect later, or not at all.
                    self.spawn(async move { while replies.next().await.is_some() {} });
                    return reached;
                }
            }
        }
    }

    /// Connects until enough nodes are ready, or all have failed.
    async fn prepare_majority(&self, limit: Moment) {
        let mut replies = self.preparing(limit.min(self.clock.now() + self.response_timeout * 2));
        while let Some((_, _)) = replies.next().await {
            let ready = |node: &&Arc<RedlockNode>| matches!(node.ready(), Readiness::Ready(_));
            if self.nodes.iter().filter(ready).count() >= self.majority {
                break;
            }
        }
        self.runtime
            .spawn(async move { while replies.next().await.is_some() {} });
    }

    fn preparing(&self, limit: Moment) -> FanOut<Result<(), Failure>> {
        let nodes = self.nodes.iter().enumerate();
        let requests = nodes.map(|(index, node)| {
            let node = Arc::clone(node);
            let preparing = async move { node.prepare(limit).await };
            (index, Box::pin(preparing) as BoxFuture<'static, _>)
        });
        FanOut::begin(requests.collect())
    }

    /// An error that reports on every node.
    fn too_few(&self, what: &str) -> Error {
        let reasons: Vec<String> = self.nodes.iter().map(|node| node.reason()).collect();
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "fewer than {} of {} nodes {what}: {}",
                self.majority,
                self.nodes.len(),
                reasons.join("; ")
            ),
        )
    }

    /// Notes that a request about a lease may still run on a node.
    fn may_still_run(&self, lease: &LeaseSpec, node: usize, in_flight: InFlight) {
        if !self.grants.may_still_run(&lease.id, node, in_flight) {
            self.defer_release(lease, node, Some(in_flight));
        }
    }

    /// Leaves the release of a lease to the node's own task.
    fn defer_release(&self, lease: &LeaseSpec, node: usize, in_flight: Option<InFlight>) {
        self.nodes[node].defer_release(DeferredRelease {
            held: lease.clone(),
            ballot: None,
            in_flight,
            until: self.clock.now() + lease.ttl + self.response_timeout,
        });
    }

    /// How long a round of votes takes.
    fn round_time(&self) -> Duration {
        Duration::from_micros(self.round_us.load(Ordering::Relaxed).into())
    }

    fn note_round_time(&self, taken: Duration) {
        let taken = u32::try_from(taken.as_micros()).unwrap_or(u32::MAX);
        let taken = taken.clamp(100, 20_000);
        let before = self.round_us.load(Ordering::Relaxed);
        let smoothed = before - before / 8 + taken / 8;
        self.round_us.store(smoothed, Ordering::Relaxed);
    }

    /// A vote without a reply may still run, unless the next request follows it on the same
    /// connection.
    fn defer_unanswered(&self, lease: &LeaseSpec, grant: &grants::GrantedLease, behind: bool) {
        for NodeVote { node, sent, .. } in grant.unanswered() {
            let follows = behind && !sent.connection.is_broken();
            if !follows && !bug(Bug::RedlockStrayVoteLeft) {
                self.defer_release(lease, *node, Some(sent.in_flight));
            }
        }
    }

    /// The lease is no longer held: whatever may still run about it is released.
    fn discard(&self, lease: &LeaseSpec) {
        let Some(grant) = self.grants.take(&lease.id) else {
            return;
        };
        for (node, in_flight) in &grant.unknown {
            self.defer_release(lease, *node, Some(*in_flight));
        }
        self.defer_unanswered(lease, &grant, false);
    }

    /// Notes that others wait for a lock: the next caller here joins them at once, instead of asking
    /// for the lock first.
    fn note_crowd(&self, name: &LockName) {
        let now = self.clock.now();
        let mut crowded = lock(&self.crowded);
        if crowded.len() >= CROWDED_MAX {
            crowded.retain(|_, until| *until > now);
        }
        crowded.insert(name.clone(), now + OFFER);
    }

    fn is_crowded(&self, name: &LockName) -> bool {
        let crowded = lock(&self.crowded);
        let until = crowded.get(name).copied();
        until.is_some_and(|until| until > self.clock.now())
    }

    fn set_hold_back(&self, name: &LockName, until: Moment) {
        let mut held_back = lock(&self.held_back);
        let now = self.clock.now();
        held_back.retain(|_, until| *until > now);
        held_back.insert(name.clone(), until);
    }

    fn holds_back(&self, name: &LockName) -> Option<Moment> {
        let held_back = lock(&self.held_back);
        let until = held_back.get(name).copied();
        until.filter(|until| *until > self.clock.now())
    }

    async fn hold_back(&self, name: &LockName) {
        if let Some(until) = self.holds_back(name) {
            self.clock.sleep_until(until).await;
        }
    }
}

impl Store for RedlockStore {
    fn start(
        &self,
        client: ClientId,
        events: mpsc::UnboundedSender<Event>,
        pending: Pending,
        needs_messages: NeedsMessages,
    ) {
        for node in &self.shared.nodes {
            let (said, saying) = mpsc::unbounded_channel();
            let needs_messages = Arc::clone(&needs_messages);
            node.store.listen_as(client);
            node.store
                .start(client, said, pending.clone(), needs_messages);
            let shared = Arc::clone(&self.shared);
            tokio::spawn(subscribe::forward_events(shared, saying, events.clone()));
        }
        let _ = self.shared.pending.set(pending);
    }

    fn acquire<'a>(
        &'a self,
        attempt: &'a Attempt,
        limit: Moment,
    ) -> BoxFuture<'a, Result<AcquireReply, Failure>> {
        Box::pin(acquire::acquire(&self.shared, attempt, limit))
    }

    fn acquire_on_caller<'a>(&'a self, attempt: &'a Attempt) -> Option<CallerAcquire<'a>> {
        // A vote round releases its own votes when it is dropped.
        Some((None, acquire::acquire_on_caller(&self.shared, attempt)?))
    }

    fn renew<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>> {
        Box::pin(renew::renew(&self.shared, lease, watched, limit))
    }

    fn renew_all<'a>(
        &'a self,
        leases: Vec<&'a LeaseSpec>,
        watched: bool,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<Option<RenewReply>>, Failure>> {
        Box::pin(renew::renew_all(&self.shared, leases, watched, limit))
    }

    fn adopt<'a>(
        &'a self,
        from: &'a LeaseId,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RenewReply, Failure>> {
        Box::pin(renew::adopt(&self.shared, from, lease, limit))
    }

    fn watch<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>> {
        Box::pin(renew::watch(&self.shared, lease, limit))
    }

    fn release<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<ReleaseReply, Failure>> {
        let place = dequeue.map(|waiter| (waiter.clone(), PlaceAfter::Leave));
        Box::pin(release::release(&self.shared, lease, place, limit))
    }

    fn release_on_caller<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        dequeue: Option<&'a LeaseId>,
    ) -> Option<BoxFuture<'a, Result<ReleaseReply, Failure>>> {
        let place = dequeue.map(|waiter| (waiter.clone(), PlaceAfter::Leave));
        release::release_on_caller(&self.shared, lease, place)
    }

    fn fences_max(&self) -> u32 {
        FENCES_MAX
    }

    fn turn<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        fences: u32,
        place: Option<&'a LeaseId>,
        limit: Moment,
    ) -> BoxFuture<'a, Result<TurnReply, Failure>> {
        Box::pin(turn::turn(&self.shared, lease, (fences, place), limit))
    }

    fn cancel<'a>(
        &'a self,
        lease: &'a LeaseSpec,
        in_flight: InFlight,
        _limit: Moment,
    ) -> BoxFuture<'a, Result<Option<Duration>, Failure>> {
        for node in 0..self.shared.nodes.len() {
            self.shared.defer_release(lease, node, Some(in_flight));
        }
        Box::pin(std::future::ready(Ok(None)))
    }

    fn inspect<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>> {
        Box::pin(inspect::inspect(&self.shared, name, limit))
    }

    fn observe<'a>(
        &'a self,
        client: ClientId,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<Option<LockState>, Failure>> {
        Box::pin(inspect::observe(&self.shared, client, name, limit))
    }

    fn proclaim<'a>(
        &'a self,
        proclamation: &'a Proclamation,
        limit: Moment,
    ) -> BoxFuture<'a, Result<WatchReply, Failure>> {
        Box::pin(renew::proclaim(&self.shared, proclamation, limit))
    }

    fn inspect_all<'a>(
        &'a self,
        names: &'a [LockName],
        limit: Moment,
    ) -> BoxFuture<'a, Result<Vec<InspectResult>, Failure>> {
        Box::pin(inspect::inspect_all(&self.shared, names, limit))
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a LockName,
        limit: Moment,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(subscribe::subscribe(&self.shared, name, limit))
    }

    fn unsubscribe<'a>(&'a self, name: &'a LockName, limit: Moment) -> BoxFuture<'a, ()> {
        Box::pin(subscribe::unsubscribe(&self.shared, name, limit))
    }

    fn write_record<'a>(
        &'a self,
        client: ClientId,
        change: &'a RecordChange,
        limit: Moment,
    ) -> BoxFuture<'a, Result<RecordWritten, Failure>> {
        Box::pin(client_records::write(&self.shared, client, change, limit))
    }

    fn records(
        &self,
        only: Option<ClientId>,
        limit: Moment,
    ) -> BoxFuture<'_, Result<Vec<Record>, Failure>> {
        Box::pin(client_records::read(&self.shared, only, limit))
    }
}
