//! The state that all parts of one client share: store, clock, leases, waiters.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use crate::belief::Belief;
use crate::engine::detached::DetachedLeases;
use crate::engine::local_queue::LocalQueues;
use crate::engine::release::{self, ReleaseRequest, ReleaseResult};
use crate::engine::watchdog::{self, Watchdog};
use crate::engine::{Engine, client_record, fast_path, heartbeat};
use crate::error::{Error, Result};
use crate::guard::{LostReason, Released};
use crate::lease::{ClientId, Lease, LeaseId};
use crate::moment::{Clock, Moment};
use crate::name::LockName;
use crate::pending::{Pending, PendingOne};
use crate::seeded::{Bug, bug};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::store::{Event, InFlight, LeaseSpec, NeedsMessages, OFFER, Store};

/// How long the engine continues with releases after the last handle is gone.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(5);

/// A client as its handles and guards share it. When the last of them is gone, the engine finishes
/// pending work and ends.
pub(crate) struct ClientHandle {
    pub(crate) core: Arc<Core>,
    pub(crate) engine: Engine,
}

pub(crate) struct Core {
    pub(crate) id: ClientId,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) queues: LocalQueues,
    pub(crate) watchdog: Watchdog,
    pub(crate) detached: DetachedLeases,
    pub(crate) pending: Pending,
    /// The content of the client's record has changed.
    pub(crate) record_changed: Notify,
    /// Whether the final record was written. Locked while a record is written, so that no other
    /// follows the final one.
    pub(crate) record_ended: tokio::sync::Mutex<bool>,
    closed: AtomicBool,
}

impl ClientHandle {
    /// Starts all parts. Must be called on the engine.
    pub(crate) fn start(
        engine: Engine,
        settings: Settings,
        clock: Clock,
        store: Arc<dyn Store>,
        stats: Arc<Stats>,
    ) -> Arc<Self> {
        let core = Arc::new(Core {
            id: ClientId::fresh(),
            settings,
            clock,
            store,
            stats,
            queues: LocalQueues::default(),
            watchdog: Watchdog::default(),
            detached: DetachedLeases::default(),
            pending: Pending::default(),
            record_changed: Notify::new(),
            record_ended: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let (events, happened) = mpsc::unbounded_channel();
        let (pending, attention) = (core.pending.clone(), needs_messages(&core));
        core.store.start(core.id, events, pending, attention);
        tokio::spawn(dispatch_events(Arc::clone(&core), happened));
        tokio::spawn(watchdog::run(Arc::clone(&core)));
        tokio::spawn(client_record::run(Arc::clone(&core)));
        tokio::spawn(heartbeat::run(Arc::clone(&core)));
        let stopping = Arc::clone(&core);
        engine.on_stop(async move {
            let write_record = async {
                stopping.pending.wait().await;
                client_record::write_final(&stopping).await;
                stopping.pending.wait().await;
            };
            let _ = tokio::time::timeout(SHUTDOWN_WAIT_MAX, write_record).await;
        });
        Arc::new(Self { core, engine })
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.core.is_closed() {
            return Err(Error::closed());
        }
        Ok(())
    }

    /// Releases in the background. Never blocks, and needs no runtime.
    pub(crate) fn release_in_background(&self, belief: &Belief, dequeue: Option<LeaseId>) {
        let request = self.core.release_request(belief, dequeue);
        self.core.release_started(&request.lease.name);
        self.engine.spawn(self.core.release_task(request, None));
    }

    /// Releases and returns the result, or that it is not known in time.
    pub(crate) async fn release(
        &self,
        belief: &Belief,
        dequeue: Option<LeaseId>,
    ) -> Result<Released> {
        self.release_lease(self.core.release_request(belief, dequeue))
            .await
    }

    /// The same for a lease without a guard.
    pub(crate) async fn release_lease(&self, request: ReleaseRequest) -> Result<Released> {
        let answer_by = self.core.clock.now() + self.core.settings.unreachable_after;
        self.core.release_started(&request.lease.name);
        let mut unfinished = UnfinishedRelease {
            client: self,
            request: Some(request),
            _pending: self.core.pending.begin(),
        };
        if let Some(request) = unfinished
            .request
            .as_mut()
            .filter(|it| it.in_flight.is_none())
        {
            match fast_path::try_release(&self.core, request).await {
                Ok(released) => {
                    unfinished.request = None;
                    return released;
                }
                Err(unknown) => request.unknown = unknown,
            }
        }
        let Some(request) = unfinished.request.take() else {
            return Ok(Released::Unknown);
        };
        let (reply, answer) = oneshot::channel();
        let releasing = self.core.release_task(request, Some((reply, answer_by)));
        self.engine.spawn(releasing);
        answer.await.unwrap_or(Ok(Released::Unknown))
    }
}

/// A release that its caller began. If dropped before it is done, it continues in the background.
struct UnfinishedRelease<'a> {
    client: &'a ClientHandle,
    request: Option<ReleaseRequest>,
    _pending: PendingOne,
}

impl Drop for UnfinishedRelease<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            let releasing = self.client.core.release_task(request, None);
            self.client.engine.spawn(releasing);
        }
    }
}

impl Core {
    /// A random number for a lease: who knows a lease id can release that lease, so knowing one
    /// lease must not help to guess another. Drawing a number twice is as unlikely as guessing it.
    pub(crate) fn next_lease_number() -> u64 {
        rand::random()
    }

    /// How many fences a lease may use: only one that is renewed is handed off.
    pub(crate) fn fences_for(&self, renewed: bool) -> u32 {
        let fences = if renewed {
            self.settings.hand_off.fences()
        } else {
            1
        };
        fences.min(self.store.fences_max())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// From now on the lock may be idle. Only for the timings.
    pub(crate) fn release_started(&self, name: &LockName) {
        if self.stats.timings.is_wanted() {
            self.queues.release_started(name, self.clock.now());
        }
    }

    /// Starts to track a granted lease.
    pub(crate) fn track(&self, belief: &Arc<Belief>) {
        self.watchdog.track(belief);
        self.record_changed.notify_one();
    }

    /// Stops tracking a lease, so that renewals stop before its release is sent.
    pub(crate) fn untrack(&self, belief: &Belief) {
        self.watchdog.untrack(belief.number);
        self.record_changed.notify_one();
    }

    /// Releases a lease that has no guard, in the background; resolves when it is done.
    pub(crate) fn release_abandoned(
        self: &Arc<Self>,
        lease: LeaseSpec,
        in_flight: Option<InFlight>,
    ) -> impl Future<Output = ()> + use<> {
        let pending = self.pending.begin();
        let core = Arc::clone(self);
        // Whatever the store has for this lease is an offer or a grant of this moment.
        let ends_before = core.clock.now() + lease.ttl.max(OFFER);
        let (done, cleaned) = oneshot::channel::<()>();
        let request = ReleaseRequest {
            in_flight,
            ..ReleaseRequest::of(lease, ends_before)
        };
        tokio::spawn(async move {
            release::release_and_cancel(core, request, None, pending).await;
            drop(done);
        });
        async move {
            let _ = cleaned.await;
        }
    }

    /// Releases a grant that got no guard.
    pub(crate) fn release_unclaimed(self: &Arc<Self>, belief: &Belief) {
        if !bug(Bug::UnwantedGrantKept) {
            drop(self.release_abandoned(belief.held.clone(), belief.in_flight));
        }
    }

    /// Releases all leases, ends all waiting, and returns the leases that could not be released.
    pub(crate) async fn shut_down(self: &Arc<Self>, limit: Duration) -> Vec<Lease> {
        self.closed.store(true, Ordering::Release);
        if !bug(Bug::WaitersNotClosed) {
            self.queues.close_all();
        }
        let beliefs = self.watchdog.all();
        let mut left = Vec::new();
        let mut releases = tokio::task::JoinSet::new();
        let until = self.clock.now() + limit;
        for belief in beliefs {
            belief.mark_lost(LostReason::Shutdown);
            if !belief.end() {
                continue;
            }
            self.untrack(&belief);
            let core = Arc::clone(self);
            // Counted as pending, in case the caller does not wait for the end of this.
            let pending = self.pending.begin();
            releases.spawn(async move {
                let _pending = pending;
                let request = ReleaseRequest::of(belief.held.clone(), until);
                let parted = release::release_until_gone(&core, &request).await;
                if belief.in_flight.is_some() {
                    drop(core.release_abandoned(belief.held.clone(), belief.in_flight));
                }
                let gone = matches!(parted, Ok(ReleaseResult::Answered(_) | ReleaseResult::Gone));
                (!gone).then(|| belief.lease())
            });
        }
        while let Some(lease) = releases.join_next().await {
            left.extend(lease.ok().flatten());
        }
        let time_left = until.saturating_since(self.clock.now());
        let write_record = async {
            self.pending.wait().await;
            // So that a program that ends now is no longer listed. The engine would also do it when
            // it stops, but the caller cannot wait for that.
            client_record::write_final(self).await;
            self.pending.wait().await;
        };
        let _ = tokio::time::timeout(time_left, write_record).await;
        left
    }

    /// The request to release a lease that had a guard.
    pub(crate) fn release_request(
        &self,
        belief: &Belief,
        dequeue: Option<LeaseId>,
    ) -> ReleaseRequest {
        let ends_before = belief.ends_before(self.clock.now());
        ReleaseRequest {
            dequeue,
            in_flight: belief.in_flight,
            ..ReleaseRequest::of(belief.held.clone(), ends_before)
        }
    }

    fn release_task(
        self: &Arc<Self>,
        request: ReleaseRequest,
        answer: Option<(oneshot::Sender<Result<Released>>, Moment)>,
    ) -> impl Future<Output = ()> + Send + use<> {
        // Counted before the caller continues, so that a wait for pending work does not miss it.
        let pending = self.pending.begin();
        release::release_and_cancel(Arc::clone(self), request, answer, pending)
    }
}

/// Messages are needed while a lease is held and watched, and by waiters that may be next.
fn needs_messages(core: &Arc<Core>) -> NeedsMessages {
    let core = Arc::downgrade(core);
    Arc::new(move || {
        let attends = |core: Arc<Core>| !core.watchdog.is_idle() || core.queues.needs_messages();
        core.upgrade().is_some_and(attends)
    })
}

/// Dispatches events of the store.
async fn dispatch_events(core: Arc<Core>, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Offered { name, offered_to } => core.queues.offered(&name, offered_to),
            Event::ShortOffer { name, lasts } => core.queues.short_offer(&name, lasts),
            Event::Opened { name, next } => core.queues.opened(&name, next),
            Event::Freed { name, .. } => core.queues.opened(&name, None),
            Event::Changed { name } => core.watchdog.recheck(&name),
            Event::MessagesLostFor { name } => core.queues.retry(&name),
            Event::MessagesLost => {
                core.queues.retry_all();
                core.watchdog.recheck_all();
            }
        }
    }
}
