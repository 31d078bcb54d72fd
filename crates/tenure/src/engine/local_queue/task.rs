//! The task that serves the waiting callers of one lock name, first come, first served.
//!
//! Only this task talks to the store, on behalf of the first waiter. It joins the store's queue
//! together with the tasks of other processes, and wakes up when the lock is offered to it. A timer
//! covers what a message can miss: a holder that died, or a library that publishes nothing.
//! Meanwhile a holder in this process may hand the lock to the first waiter; the task then
//! continues with the next.
//!
//! ```text
//!   run ──first waiter──▶ serve ──▶ attempt ──granted──▶ deliver ──▶ run
//!    │                       ▲         │ busy
//!    │ none left             │         ▼
//!    ▼                 retry │   subscribe (once), join the store's queue
//!   linger, then end         │         │
//!                            └─────── sleep: message, end of the lease, limit
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::waiters::ATTEMPT_MIN;
use super::{LocalQueue, QueueMessage};
use crate::backoff::Backoff;
use crate::belief::Belief;
use crate::core::Core;
use crate::engine::attempt::{AcquireRequest, Acquisition, AttemptOutcome};
use crate::engine::current_holder::CurrentHolder;
use crate::error::Error;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{Busy, Failure, OfferedGrant};

/// How often to retry while the store may not grant yet: the reason may end early.
const NOT_YET_POLL: Duration = Duration::from_secs(1);
/// How long a subscribed task stays after its last waiter: on a contended lock the next one comes
/// soon and need not subscribe again.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct QueueTask {
    pub(super) core: Arc<Core>,
    pub(super) name: LockName,
    pub(super) queue: Arc<LocalQueue>,
    pub(super) inbox: mpsc::UnboundedReceiver<QueueMessage>,
    /// The number of the waiter being served, and whether an attempt was made for it.
    pub(super) served: Option<u64>,
    pub(super) attempted: bool,
    pub(super) subscription: Subscription,
    pub(super) wakeups: Wakeups,
    pub(super) holder: Option<CurrentHolder>,
    /// Why the store may not grant although the lock is free.
    pub(super) not_yet: Option<Error>,
    pub(super) unreachable: Option<Unreachable>,
    pub(super) closed: bool,
    /// For which waiter a keeper was asked to let the lock go, and how long it may take.
    pub(super) asked: Option<(Option<u64>, Moment)>,
    /// The number of the only caller of this queue, if it has a place of its own.
    alone: Option<u64>,
}

/// What the task needs to know about the first waiter.
pub(super) struct First {
    pub(super) number: u64,
    pub(super) request: AcquireRequest,
    pub(super) joined: Moment,
    pub(super) limit: Option<Moment>,
}

/// Since when the store has not replied, and the last error.
pub(super) struct Unreachable {
    pub(super) since: Moment,
    pub(super) error: Error,
}

/// Whether the store sends messages about this lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subscription {
    NotSubscribed,
    Subscribed,
    Refused,
}

/// Messages since the last attempt. Reply and message travel on two connections, and the message
/// may overtake.
#[derive(Default)]
pub(super) struct Wakeups {
    /// There is a reason to try again.
    pub(super) retry: bool,
    /// The lock was offered to this lease, with this grant.
    pub(super) granted: Option<(LeaseId, OfferedGrant)>,
    /// The lock belongs to another waiter for this long at most: offered or left to it.
    pub(super) offered_to_other: Option<Duration>,
}

impl QueueTask {
    pub(super) fn new(
        core: Arc<Core>,
        name: LockName,
        (queue, inbox): (Arc<LocalQueue>, mpsc::UnboundedReceiver<QueueMessage>),
        alone: Option<u64>,
    ) -> Self {
        Self {
            core,
            name,
            queue,
            inbox,
            served: None,
            attempted: false,
            subscription: Subscription::NotSubscribed,
            wakeups: Wakeups::default(),
            holder: None,
            not_yet: None,
            unreachable: None,
            closed: false,
            asked: None,
            alone,
        }
    }

    /// Serves one waiter after another until none is left.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                self.handle(message);
            }
            if let Some(first) = self.first() {
                self.serve(first).await;
            } else if !self.linger().await && self.core.queues.close(&self.name, self.alone) {
                break;
            }
        }
        if self.subscription == Subscription::Subscribed {
            let limit = self.now() + self.core.settings.unreachable_after;
            self.core.store.unsubscribe(&self.name, limit).await;
        }
    }

    /// Stays for a while if that saves the next waiter a subscription.
    async fn linger(&mut self) -> bool {
        if self.subscription != Subscription::Subscribed || self.closed || self.alone.is_some() {
            return false;
        }
        let until = self.now() + LINGER;
        while let Some(message) = self.next_message(until).await {
            self.handle(message);
            // Messages about the lock are no reason to stay.
            if self.closed || self.queue.waiters().first().is_some() {
                return true;
            }
        }
        false
    }

    /// The first waiter, which is served from now on.
    fn first(&mut self) -> Option<First> {
        let mut waiters = self.queue.waiters();
        if waiters.len() == 0 {
            // No waiter loses time from now on.
            waiters.idle_since = None;
            // The next caller must send a message, because no timer is set.
            waiters.wakes_at = None;
        }
        let first = waiters.first().map(|(number, waiter)| {
            let first = First {
                number,
                request: waiter.request.clone(),
                joined: waiter.joined,
                limit: waiter.limit,
            };
            (first, waiter.started.found_busy)
        });
        drop(waiters);
        let number = first.as_ref().map(|(first, _)| first.number);
        if number != self.served {
            self.served = number;
            self.attempted = first.as_ref().is_some_and(|(_, begun)| *begun);
        }
        let asked = self.asked.filter(|(served, _)| *served == number);
        first.map(|(first, _)| First {
            limit: first
                .limit
                .max(asked.and_then(|(_, until)| first.limit.map(|_| until))),
            ..first
        })
    }

    /// Acquires one lease for the first waiter that wants exactly that.
    async fn serve(&mut self, first: First) {
        // A shutdown waits for this: an attempt made now may be granted after everything was
        // released.
        let _pending = self.core.pending.begin();
        let begun = self.queue.waiters().take_started(first.number);
        let mut acquisition = begun.unwrap_or_else(|| Acquisition::new(&self.core, first.request));
        let granted = self.acquire_for_first(&mut acquisition).await;
        if granted.is_none() {
            acquisition.abandon(&self.core).await;
        }
        // Not earlier: a release in the meantime must know that we are still in the store's queue.
        self.left_queue();
        if let Some(belief) = granted {
            self.deliver(belief);
        }
    }

    /// Tries and sleeps in turn, until the lease is granted or no waiter wants it any more.
    async fn acquire_for_first(&mut self, acquisition: &mut Acquisition) -> Option<Arc<Belief>> {
        let mut backoff = Backoff::ACQUIRE;
        if self.attempted && self.subscription == Subscription::NotSubscribed {
            // Its caller has just tried.
            let first = self.first()?;
            self.subscribe(&first).await;
            if bug(Bug::NoLookAfterListening) {
                self.pause_until(self.now() + Duration::from_secs(10), &first)
                    .await;
            }
        }
        loop {
            let first = self.first()?;
            if first.request != acquisition.request {
                return None;
            }
            if let Some(error) = self.failure_without_store(&first) {
                self.fail(first.number, error);
                continue;
            }
            if let Some(belief) = self.take_offer(acquisition) {
                return Some(belief);
            }
            self.attempted = true;
            let asked_at = self.now();
            self.wakeups = Wakeups::default();
            let queue = self.subscription != Subscription::NotSubscribed;
            if queue {
                self.will_queue_as(acquisition.id());
            }
            let limit = self.attempt_deadline(&first);
            let core = Arc::clone(&self.core);
            let reply = self.while_handling_messages(acquisition.attempt(&core, queue, limit));
            match reply.await {
                Ok(AttemptOutcome::Granted(belief)) => {
                    self.note_granted();
                    return Some(belief);
                }
                Ok(AttemptOutcome::NotYet(not_yet)) => {
                    self.unreachable = None;
                    self.not_yet = Some(not_yet.error);
                    let wake_at = not_yet.until.min(self.now() + NOT_YET_POLL);
                    self.pause_until(wake_at, &first).await;
                }
                Ok(AttemptOutcome::Busy(busy)) => {
                    backoff.reset();
                    self.note_busy(busy);
                    if queue {
                        self.note_queued();
                    }
                    if self.subscription == Subscription::NotSubscribed {
                        // Then try again: only now can no message be missed.
                        self.subscribe(&first).await;
                        if bug(Bug::NoLookAfterListening) {
                            self.sleep(&first).await;
                        }
                    } else {
                        self.sleep(&first).await;
                    }
                }
                Err(failure) if failure.transient => {
                    self.note_unreachable(asked_at, failure);
                    self.pause_until(self.now() + backoff.next(), &first).await;
                }
                Err(failure) => {
                    self.fail(first.number, failure.error);
                    return None;
                }
            }
        }
    }

    /// Why the first waiter is not served any longer, if that is so.
    fn failure_without_store(&self, first: &First) -> Option<Error> {
        // Checked on the client itself: a task that starts after the shutdown gets no message.
        if self.closed || self.core.is_closed() {
            return Some(Error::closed());
        }
        let now = self.now();
        // A waiter behind a head that got no reply need not find that out itself.
        let asked_for = self.unreachable.is_some()
            && now >= first.joined + self.core.settings.unreachable_after;
        let timed_out = (self.attempted || asked_for) && now >= self.gives_up_at(first);
        timed_out.then(|| self.timed_out(first.joined, now))
    }

    /// When the first waiter gives up, as things are.
    pub(super) fn gives_up_at(&self, first: &First) -> Moment {
        let never = Moment::from_nanos(u64::MAX);
        let limit = first.limit.unwrap_or(never);
        let patience = self.core.settings.unreachable_after;
        self.unreachable.as_ref().map_or(limit, |unreachable| {
            limit.min(unreachable.since.max(first.joined) + patience)
        })
    }

    /// Does not blame a holder if the store could not be asked.
    pub(super) fn timed_out(&self, joined: Moment, now: Moment) -> Error {
        if let Some(unreachable) = &self.unreachable {
            return unreachable.error.share();
        }
        if let Some(not_yet) = &self.not_yet {
            return not_yet.share();
        }
        let waited = now.saturating_since(joined);
        let holder = self.holder.as_ref();
        let holder = holder.map(|holder| holder.holder(now));
        Error::busy(&self.name, waited, holder)
    }

    pub(super) fn attempt_deadline(&self, first: &First) -> Moment {
        let patience = self.now() + self.core.settings.unreachable_after;
        let limit = self.gives_up_at(first).min(patience);
        limit.max(self.now() + ATTEMPT_MIN)
    }

    fn note_busy(&mut self, busy: Busy) {
        self.ask_keeper(&busy.holder);

        self.unreachable = None;
        self.not_yet = None;
        // The lock was released, but another process got it.
        self.queue.waiters().idle_since = None;
        CurrentHolder::update(&mut self.holder, busy, self.core.clock.now());
    }

    /// Notes that an attempt made at this moment got no reply.
    fn note_unreachable(&mut self, asked_at: Moment, failure: Failure) {
        let known = self.unreachable.as_ref();
        self.unreachable = Some(Unreachable {
            since: known.map_or(asked_at, |unreachable| unreachable.since),
            error: failure.error,
        });
    }

    async fn subscribe(&mut self, first: &First) {
        let core = Arc::clone(&self.core);
        let (name, limit) = (self.name.clone(), self.attempt_deadline(first));
        let listening = async move { core.store.subscribe(&name, limit).await };
        match self.while_handling_messages(listening).await {
            Ok(()) => self.subscription = Subscription::Subscribed,
            // Not reachable: the next attempt reports it, and the one after that subscribes again.
            Err(failure) if failure.transient => {
                let pause = Backoff::ACQUIRE.min();
                self.pause_until(self.now() + pause, first).await;
            }
            Err(failure) => {
                self.subscription = Subscription::Refused;
                self.core.stats.messages_refused();
                tracing::warn!(
                    lock = %self.name, error = %failure.error,
                    "lock.waits_without_messages: polling instead"
                );
            }
        }
    }

    /// We are about to join the store's queue.
    fn will_queue_as(&self, id: &LeaseId) {
        let mut waiters = self.queue.waiters();
        if waiters.queued_as.as_ref() != Some(id) {
            waiters.queued_as = Some(id.clone());
            waiters.is_queued = false;
        }
    }

    /// The store confirmed that we are in its queue: heartbeats are needed from now on.
    fn note_queued(&self) {
        self.queue.waiters().is_queued = true;
        self.core.queues.notify_queued();
    }

    /// We are no longer in the store's queue.
    fn left_queue(&self) {
        let mut waiters = self.queue.waiters();
        waiters.queued_as = None;
        waiters.is_queued = false;
        waiters.set_ahead(None);
    }

    /// Takes what the last message offered, if that grants the lock as the first waiter wants it.
    fn take_offer(&mut self, acquisition: &mut Acquisition) -> Option<Arc<Belief>> {
        let (offered_to, grant) = self.wakeups.granted.take()?;
        if offered_to != *acquisition.id() {
            // An earlier acquisition heard it while its own request was granted.
            return None;
        }
        let is_followed = self.queue.waiters().len() > 1;
        let taken = acquisition.take_offer(&self.core, grant, is_followed)?;
        self.note_granted();
        Some(taken)
    }

    fn note_granted(&mut self) {
        self.unreachable = None;
        self.not_yet = None;
        self.note_handover();
    }

    /// Records how long the lock was idle.
    fn note_handover(&self) {
        let since = self.queue.waiters().idle_since.take();
        if let Some(since) = since {
            let idle = self.now().saturating_since(since);
            self.core.stats.timings.handed_over(idle);
        }
    }

    /// Whether this waiter is still first.
    pub(super) fn is_first(&self, first: &First) -> bool {
        let waiters = self.queue.waiters();
        waiters
            .first()
            .is_some_and(|(number, _)| number == first.number)
    }

    /// Gives a grant to the first waiter, if it wants exactly this.
    fn deliver(&mut self, belief: Arc<Belief>) {
        let closed = self.core.is_closed();
        let waiter = (!closed).then(|| self.queue.take_first_matching(&belief));
        let Some(waiter) = waiter.flatten() else {
            self.core.stats.cancelled();
            return self.core.release_unclaimed(&belief);
        };
        self.core.record_changed.notify_one();
        waiter.caller.grant(belief);
    }

    fn fail(&self, number: u64, error: Error) {
        let waiter = self.queue.waiters().leave(number);
        if let Some(waiter) = waiter {
            self.core.record_changed.notify_one();
            waiter.caller.fail(error);
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.core.clock.now()
    }
}
