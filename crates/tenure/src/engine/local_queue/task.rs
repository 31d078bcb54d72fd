//! Waiting: the line of callers in this process that want one name.
//!
//! First come, first served, and only the line itself talks to the store, for whoever is first.
//! There it stands in a queue with the lines of other processes, and is woken when the lock is
//! offered to it. A timer looks after whatever a message can miss: a holder that died, a library
//! that sends none. Meanwhile the first may be handed the lock by a holder in this process; the line
//! then goes on for the next.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{LocalQueue, QueueMessage};
use crate::belief::Belief;
use crate::core::Core;
use crate::engine::attempt::{AcquireRequest, Acquisition, AttemptOutcome};
use crate::engine::current_holder::CurrentHolder;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::owner::Holds;
use crate::seeded::{Bug, bug};
use crate::store::{Busy, Failure};

/// The least time for a question, however little is left until the caller's limit: `within` nothing
/// means to ask once, and a server that gets no time to answer is not unavailable.
pub(super) const ATTEMPT_MIN: Duration = Duration::from_millis(100);
/// How often to ask a store that may not grant yet: what it waits for may end sooner.
const NOT_YET_POLL: Duration = Duration::from_secs(1);
/// How long to wait before asking a server again that could not answer.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long a line that hears messages stays after its last waiter: on a contended lock the next
/// one comes soon, and need not subscribe again.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct QueueTask {
    pub(super) core: Arc<Core>,
    pub(super) name: LockName,
    pub(super) queue: Arc<LocalQueue>,
    pub(super) inbox: mpsc::UnboundedReceiver<QueueMessage>,
    /// The number of the waiter that is being served, and whether the store was asked for it.
    pub(super) served: Option<u64>,
    pub(super) attempted: bool,
    pub(super) subscription: Subscription,
    pub(super) wakeups: Wakeups,
    pub(super) holder: Option<CurrentHolder>,
    /// Why the store may not grant, though nobody holds the lock.
    pub(super) not_yet: Option<Error>,
    pub(super) unreachable: Option<Unreachable>,
    pub(super) closed: bool,
}

/// What the line must know of the one that is first.
pub(super) struct First {
    pub(super) number: u64,
    pub(super) request: AcquireRequest,
    pub(super) owner: Option<Arc<Holds>>,
    pub(super) joined: Moment,
    pub(super) limit: Option<Moment>,
}

/// Since when the store has not answered, and what it or the connection said last.
pub(super) struct Unreachable {
    pub(super) since: Moment,
    pub(super) error: Error,
}

/// Whether the store tells this line when the lock is offered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subscription {
    NotSubscribed,
    Subscribed,
    Refused,
}

/// What was heard since the store was last asked. An answer and a message travel on two
/// connections, and the message may overtake.
#[derive(Default)]
pub(super) struct Wakeups {
    /// There is reason to ask again.
    pub(super) retry: bool,
    /// The lock is someone else's for this long at most: offered, or left to.
    pub(super) offered_to_other: Option<Duration>,
}

impl QueueTask {
    pub(super) fn new(
        core: Arc<Core>,
        name: LockName,
        queue: Arc<LocalQueue>,
        inbox: mpsc::UnboundedReceiver<QueueMessage>,
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
        }
    }

    /// Serves one waiter after the other, until nobody is left.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                self.handle(message);
            }
            if let Some(first) = self.first() {
                self.serve(first).await;
            } else if !self.linger().await && self.core.queues.close(&self.name) {
                break;
            }
        }
        if self.subscription == Subscription::Subscribed {
            let limit = self.now() + self.core.settings.unreachable_after;
            self.core.store.unsubscribe(&self.name, limit).await;
        }
    }

    /// Lingers for a while, if that spares the next waiter a subscription.
    async fn linger(&mut self) -> bool {
        if self.subscription != Subscription::Subscribed || self.closed {
            return false;
        }
        let until = self.now() + LINGER;
        while let Some(message) = self.next_message(until).await {
            self.handle(message);
            // What others say of the lock is no reason to stay.
            if self.closed || self.queue.waiters().first().is_some() {
                return true;
            }
        }
        false
    }

    /// Who is first, and from now on served.
    fn first(&mut self) -> Option<First> {
        let mut waiters = self.queue.waiters();
        if waiters.len() == 0 {
            // Nobody's time is lost from now on.
            waiters.idle_since = None;
            // And whoever comes must say so: nobody will look.
            waiters.wakes_at = None;
        }
        let first = waiters.first().map(|(number, waiter)| {
            let first = First {
                number,
                request: waiter.request.clone(),
                owner: waiter.owner.clone(),
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
        first.map(|(first, _)| first)
    }

    /// Pursues one lease for whoever is first and wants just that.
    async fn serve(&mut self, first: First) {
        // A shutdown waits for it: what is asked now may be granted after everything was released.
        let _pending = self.core.pending.begin();
        let begun = self.queue.waiters().take_started(first.number);
        let mut acquisition = begun.unwrap_or_else(|| Acquisition::new(&self.core, first.request));
        let granted = self.acquire_for_first(&mut acquisition).await;
        if granted.is_none() {
            acquisition.abandon(&self.core).await;
        }
        // Not sooner: whoever releases meanwhile must know that the line still stands in the queue.
        self.left_queue();
        if let Some(belief) = granted {
            self.deliver(belief);
        }
    }

    /// Asks and sleeps in turn, until the lease is granted or nobody wants it any more.
    async fn acquire_for_first(&mut self, acquisition: &mut Acquisition) -> Option<Arc<Belief>> {
        let mut pause = PAUSE_MIN;
        if self.attempted && self.subscription == Subscription::NotSubscribed {
            // Its caller has just asked.
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
            if let Some(end) = self.answer_without_store(&first) {
                self.reply(first.number, end);
                continue;
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
                    self.unreachable = None;
                    self.not_yet = None;
                    self.note_handover();
                    return Some(belief);
                }
                Ok(AttemptOutcome::NotYet(not_yet)) => {
                    self.unreachable = None;
                    self.not_yet = Some(not_yet.error);
                    let wake_at = not_yet.until.min(self.now() + NOT_YET_POLL);
                    self.pause_until(wake_at, &first).await;
                }
                Ok(AttemptOutcome::Busy(busy)) => {
                    pause = PAUSE_MIN;
                    self.note_busy(busy);
                    if queue {
                        self.note_queued();
                    }
                    if self.subscription == Subscription::NotSubscribed {
                        // Then ask again: only now is it sure that no message can be missed.
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
                    self.pause_until(self.now() + pause, &first).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(failure) => {
                    self.reply(first.number, Err(failure.error));
                    return None;
                }
            }
        }
    }

    /// What to tell the first without asking the store, if there is something.
    fn answer_without_store(&self, first: &First) -> Option<Result<Guard>> {
        // Asked of the client itself: a line that begins after the shutdown gets no message.
        if self.closed || self.core.is_closed() {
            return Some(Err(Error::closed()));
        }
        let owner = first.owner.as_ref();
        if let Some(shared) = owner.and_then(|owner| owner.reenter(&first.request).transpose()) {
            return Some(shared);
        }
        let now = self.now();
        // One that has waited behind a head that got no answer need not find that out itself.
        let asked_for = self.unreachable.is_some()
            && now >= first.joined + self.core.settings.unreachable_after;
        let timed_out = (self.attempted || asked_for) && now >= self.gives_up_at(first);
        timed_out.then(|| Err(self.timed_out(first.joined, now)))
    }

    /// Until when the first wants to wait, as things are.
    pub(super) fn gives_up_at(&self, first: &First) -> Moment {
        let never = Moment::from_nanos(u64::MAX);
        let limit = first.limit.unwrap_or(never);
        let patience = self.core.settings.unreachable_after;
        self.unreachable.as_ref().map_or(limit, |unreachable| {
            limit.min(unreachable.since.max(first.joined) + patience)
        })
    }

    /// Nobody is blamed for holding a lock that could not be asked for.
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
        self.unreachable = None;
        self.not_yet = None;
        // Whoever has let go of it, somebody else got it.
        self.queue.waiters().idle_since = None;
        CurrentHolder::update(&mut self.holder, busy, self.core.clock.now());
    }

    /// Takes note that a question asked at this moment got no answer.
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
            // Not reachable: the next attempt will say so, and the one after it listens again.
            Err(failure) if failure.transient => {
                self.pause_until(self.now() + PAUSE_MIN, first).await;
            }
            Err(failure) => {
                self.subscription = Subscription::Refused;
                self.core.stats.messages_refused();
                tracing::warn!(
                    lock = %self.name, error = %failure.error,
                    "lock.waits_without_messages: looking again and again instead"
                );
            }
        }
    }

    /// The line is about to stand in the store's queue.
    fn will_queue_as(&self, id: &LeaseId) {
        let mut waiters = self.queue.waiters();
        if waiters.queued_as.as_ref() != Some(id) {
            waiters.queued_as = Some(id.clone());
            waiters.is_queued = false;
        }
    }

    /// The store has said that the line stands in its queue: from now on it must say that it lives.
    fn note_queued(&self) {
        self.queue.waiters().is_queued = true;
        self.core.queues.notify_queued();
    }

    /// The line no longer stands in the store's queue.
    fn left_queue(&self) {
        let mut waiters = self.queue.waiters();
        waiters.queued_as = None;
        waiters.is_queued = false;
        waiters.set_ahead(None);
    }

    /// Measures how long the lock was nobody's.
    fn note_handover(&self) {
        let since = self.queue.waiters().idle_since.take();
        if let Some(since) = since {
            let idle = self.now().saturating_since(since);
            self.core.stats.timings.handed_over(idle);
        }
    }

    /// Whether nobody has taken this one's turn yet.
    pub(super) fn is_first(&self, first: &First) -> bool {
        let waiters = self.queue.waiters();
        waiters
            .first()
            .is_some_and(|(number, _)| number == first.number)
    }

    /// Gives all waiters of an owner that holds the lock a guard of the same chain.
    pub(super) fn share_with_owner(&mut self, owner: &Arc<Holds>) {
        let numbers = self.queue.waiters().numbers_of(owner);
        for number in numbers {
            let request = self
                .queue
                .waiters()
                .get(number)
                .map(|it| it.request.clone());
            // If it let go meanwhile, its waiters go on waiting.
            if let Some(request) = request
                && let Some(result) = owner.reenter(&request).transpose()
            {
                self.reply(number, result);
            }
        }
    }

    /// Gives a grant to whoever is first now, if that one wants just this.
    fn deliver(&mut self, belief: Arc<Belief>) {
        let closed = self.core.is_closed();
        let waiter = (!closed).then(|| self.queue.take_first_matching(&belief));
        let Some(waiter) = waiter.flatten() else {
            self.core.stats.cancelled();
            return self.core.release_unclaimed(&belief);
        };
        self.core.record_changed.notify_one();
        let hold = Hold::new(waiter.client, waiter.owner.clone(), belief);
        // If the caller leaves at this moment, the guard is dropped here and releases.
        let _ = waiter.reply.send(Ok(Guard::new(hold)));
        if let Some(owner) = waiter.owner {
            self.share_with_owner(&owner);
        }
    }

    fn reply(&self, number: u64, result: Result<Guard>) {
        let waiter = self.queue.waiters().leave(number);
        if let Some(waiter) = waiter {
            self.core.record_changed.notify_one();
            // A caller that went away does not mind.
            let _ = waiter.reply.send(result);
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.core.clock.now()
    }
}
