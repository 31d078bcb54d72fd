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

use super::{LocalQueue, QueueMessage, Waiter};
use crate::belief::Belief;
use crate::core::Core;
use crate::engine::attempt::{AcquireRequest, Acquisition, AttemptOutcome};
use crate::engine::client_record;
use crate::engine::current_holder::CurrentHolder;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::owner::Holds;
use crate::seeded::{Bug, bug};
use crate::store::{Busy, Failure, offer_duration};

/// The least time for a question, however little is left until the caller's limit: `within` nothing
/// means to ask once, and a server that gets no time to answer is not unavailable.
pub(super) const ATTEMPT_MIN: Duration = Duration::from_millis(100);
/// How often to look where the server refuses the channel that would wake us.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long after the end of a lease those look who have others before them: let them ask first, and
/// let not all come at once.
const FAR_BEHIND_DELAY_MIN: Duration = Duration::from_millis(20);
const FAR_BEHIND_DELAY_SPREAD: Duration = Duration::from_millis(200);
/// How often to ask a store that may not grant yet: what it waits for may end sooner.
const NOT_YET_POLL: Duration = Duration::from_secs(1);
/// How long to wait before asking a server again that could not answer.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long the head of our queue leaves a free lock to waiters that do not stand in it. Enough for
/// them to hear of it and ask, little for a lock to lie idle if they do not.
const OTHERS_HEAD_START: Duration = Duration::from_millis(10);
/// How long a line that hears messages stays after its last waiter: on a contended lock the next
/// one comes soon, and need not subscribe again.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct QueueTask {
    core: Arc<Core>,
    name: LockName,
    queue: Arc<LocalQueue>,
    inbox: mpsc::UnboundedReceiver<QueueMessage>,
    /// The number of the waiter that is being served, and whether the store was asked for it.
    served: Option<u64>,
    attempted: bool,
    subscription: Subscription,
    wakeups: Wakeups,
    holder: Option<CurrentHolder>,
    /// Why the store may not grant, though nobody holds the lock.
    not_yet: Option<Error>,
    unreachable: Option<Unreachable>,
    closed: bool,
}

/// What the line must know of the one that is first.
struct First {
    number: u64,
    request: AcquireRequest,
    owner: Option<Arc<Holds>>,
    joined: Moment,
    limit: Option<Moment>,
}

/// Since when the store has not answered, and what it or the connection said last.
struct Unreachable {
    since: Moment,
    error: Error,
}

/// Whether the store tells this line when the lock is offered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subscription {
    NotSubscribed,
    Subscribed,
    Refused,
}

/// What was heard since the store was last asked. An answer and a message travel on two
/// connections, and the message may overtake.
#[derive(Default)]
struct Wakeups {
    /// There is reason to ask again.
    retry: bool,
    /// The lock is someone else's for this long at most: offered, or left to.
    offered_to_other: Option<Duration>,
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
    fn gives_up_at(&self, first: &First) -> Moment {
        let never = Moment::from_nanos(u64::MAX);
        let limit = first.limit.unwrap_or(never);
        let patience = self.core.settings.unreachable_after;
        self.unreachable.as_ref().map_or(limit, |unreachable| {
            limit.min(unreachable.since.max(first.joined) + patience)
        })
    }

    /// Nobody is blamed for holding a lock that could not be asked for.
    fn timed_out(&self, joined: Moment, now: Moment) -> Error {
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

    fn attempt_deadline(&self, first: &First) -> Moment {
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

    /// Sleeps until there is reason to ask the store again, or to end.
    async fn sleep(&mut self, first: &First) {
        let mut wake_at = self.next_poll_at();
        loop {
            if let Some(offer) = self.wakeups.offered_to_other.take() {
                // Should that one have died, nobody else will tell us.
                let mut ends = offer + jitter(offer / 10);
                if self.queue.waiters().is_far_behind() {
                    ends += FAR_BEHIND_DELAY_MIN + jitter(FAR_BEHIND_DELAY_SPREAD);
                }
                wake_at = wake_at.min(self.now() + ends);
            }
            let now = self.now();
            let timed_out = first.limit.is_some_and(|limit| now >= limit);
            if self.wakeups.retry || self.closed || timed_out || !self.is_first(first) {
                return;
            }
            if now >= wake_at {
                match self.subscription {
                    Subscription::Refused => self.core.stats.woken_by_poll(),
                    Subscription::NotSubscribed | Subscription::Subscribed => {
                        self.core.stats.woken_by_timer()
                    }
                }
                if !self.is_still_far_behind(first).await {
                    return;
                }
                wake_at = self.next_poll_at();
                continue;
            }
            let holder = self.holder.as_ref();
            let look_up_at = holder.and_then(|holder| holder.look_up_at(first.limit));
            if look_up_at.is_some_and(|at| now >= at) {
                self.look_up_holder(first).await;
                continue;
            }
            let mut until = look_up_at.map_or(wake_at, |at| at.min(wake_at));
            until = first.limit.map_or(until, |limit| limit.min(until));
            self.handle_next_message(until).await;
        }
    }

    /// When to look at the lock although no message came.
    fn next_poll_at(&self) -> Moment {
        let is_far_behind = self.queue.waiters().is_far_behind();
        let patience = self.holder.as_ref().map(|holder| {
            if is_far_behind {
                holder.poll_after_far_behind()
                    + FAR_BEHIND_DELAY_MIN
                    + jitter(FAR_BEHIND_DELAY_SPREAD)
            } else {
                holder.poll_after()
            }
        });
        let patience = patience.unwrap_or_default();
        self.now()
            + match self.subscription {
                Subscription::Refused => patience.min(POLL_INTERVAL + jitter(POLL_INTERVAL)),
                Subscription::NotSubscribed | Subscription::Subscribed => patience,
            }
    }

    /// Whether the lock is still held, and so many stand before us that asking for it is theirs to do.
    /// Whoever is known to be among those, or sees that the lease has ended, asks instead of looking.
    async fn is_still_far_behind(&mut self, first: &First) -> bool {
        let place = {
            let waiters = self.queue.waiters();
            let place = waiters
                .queued_as
                .clone()
                .filter(|_| !waiters.is_near_head());
            let over = |holder: &CurrentHolder| holder.has_expired(self.now());
            let asks = !waiters.is_far_behind() && self.holder.as_ref().is_none_or(over);
            place.filter(|_| self.subscription == Subscription::Subscribed && !asks)
        };
        let Some(place) = place else { return false };
        let (core, name) = (Arc::clone(&self.core), self.name.clone());
        let limit = self.attempt_deadline(first);
        let looking = async move { core.store.queue_position(&name, &place, limit).await };
        let queue_position = self.while_handling_messages(looking).await.ok().flatten();
        if self.wakeups.retry {
            // There is news that is newer than the answer.
            return false;
        }
        let now = self.now();
        if let (Some(holder), Some(queue_position)) = (&mut self.holder, &queue_position) {
            holder.set_remaining(queue_position.remaining, now);
        }
        let mut waiters = self.queue.waiters();
        waiters.set_ahead(queue_position.map(|queue_position| queue_position.ahead));
        waiters.is_far_behind()
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

    /// Learns who the holder is, so that an error can name it.
    async fn look_up_holder(&mut self, first: &First) {
        let now = self.now();
        let holder = self.holder.as_mut();
        let client = holder.and_then(|holder| holder.begin_look_up(now));
        let Some(client) = client else { return };
        let (core, limit) = (Arc::clone(&self.core), self.attempt_deadline(first));
        let looking = async move { client_record::read(&core, Some(client), limit).await };
        let records = self.while_handling_messages(looking).await;
        if let (Some(holder), Ok(records)) = (&mut self.holder, records) {
            holder.set_client(records.into_iter().next());
        }
    }

    async fn pause_until(&mut self, until: Moment, first: &First) {
        let until = until.min(self.gives_up_at(first));
        let clock = self.core.clock.clone();
        let rested = async move { clock.sleep_until(until).await };
        self.while_handling_messages(rested).await;
    }

    /// Does `work` and minds the line meanwhile: nobody's time limit waits for it.
    async fn while_handling_messages<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let never = self.now() + Duration::from_secs(24 * 60 * 60);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.handle_next_message(never) => {}
            }
        }
    }

    /// Takes the next message, if one comes until then.
    async fn handle_next_message(&mut self, until: Moment) {
        if let Some(message) = self.next_message(until).await {
            self.handle(message);
        }
    }

    /// The next message, if one comes until then. Ends the waiters whose limit passes.
    async fn next_message(&mut self, until: Moment) -> Option<QueueMessage> {
        loop {
            let now = self.now();
            self.expire_waiters(now);
            if now >= until {
                return None;
            }
            let wake_at = self.wake_at(until);
            let clock = self.core.clock.clone();
            tokio::select! {
                biased;
                message = self.inbox.recv() => return message,
                () = clock.sleep_until(wake_at) => {}
            }
        }
    }

    fn handle(&mut self, message: QueueMessage) {
        match message {
            QueueMessage::Joined | QueueMessage::Left => {}
            QueueMessage::Close => self.closed = true,
            QueueMessage::Retry | QueueMessage::LeftStoreQueue => {
                // Who knows how often the lock went to another one meanwhile.
                self.queue.waiters().set_ahead(None);
                self.wakeups.retry = true;
            }
            QueueMessage::LostStorePlace(place) => {
                let mut waiters = self.queue.waiters();
                if waiters.queued() == Some(&place) && !bug(Bug::LostPlaceIgnored) {
                    waiters.is_queued = false;
                    waiters.set_ahead(None);
                    drop(waiters);
                    self.wakeups.retry = true;
                }
            }
            QueueMessage::ShortOffer(lasts) => {
                self.wakeups.offered_to_other = Some(lasts);
                let now = self.now();
                if let Some(holder) = &mut self.holder {
                    holder.set_remaining(lasts, now);
                }
            }
            QueueMessage::Offered(to) => {
                let ours = self.queue.waiters().queued_as.as_ref() == Some(&to);
                self.note_idle(ours);
                if ours {
                    self.core.stats.woken_by_message();
                    self.wakeups.retry = true;
                } else {
                    self.queue.waiters().advance();
                    let offer = offer_duration(&to);
                    self.wakeups.offered_to_other = Some(offer);
                    self.note_next_holder(to, offer);
                }
            }
            QueueMessage::Opened(None) => {
                self.note_idle(true);
                if self.served.is_some() {
                    self.core.stats.woken_by_message();
                }
                self.wakeups.retry = true;
            }
            QueueMessage::Opened(Some(next)) => {
                let ours = self.queue.waiters().queued_as.as_ref() == Some(&next);
                self.note_idle(ours);
                let pause_until = if ours {
                    OTHERS_HEAD_START
                } else {
                    offer_duration(&next)
                };
                self.wakeups.offered_to_other = Some(pause_until);
            }
            QueueMessage::ShareWithOwner(owner) => {
                // The one that is served may be among them.
                self.wakeups.retry = true;
                self.share_with_owner(&owner);
            }
        }
    }

    /// Takes note whose the lock is about to be. Whoever stands far behind is told by nobody else.
    fn note_next_holder(&mut self, holder: LeaseId, offer: Duration) {
        let now = self.now();
        let busy = Busy {
            holder,
            remaining: Some(offer),
        };
        CurrentHolder::update(&mut self.holder, busy, now);
    }

    /// Takes note that the lock was released: to be ours next, or somebody else's. Only measured.
    fn note_idle(&self, ours: bool) {
        if !self.core.stats.timings.is_wanted() {
            return;
        }
        let mut waiters = self.queue.waiters();
        let ours = ours && waiters.len() > 0;
        // A release of our own began before word of it came back.
        let since = waiters.idle_since.unwrap_or_else(|| self.now());
        waiters.idle_since = ours.then_some(since);
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
    fn is_first(&self, first: &First) -> bool {
        let waiters = self.queue.waiters();
        waiters
            .first()
            .is_some_and(|(number, _)| number == first.number)
    }

    /// When to look next, if no message comes until then: for the next limit at the latest. Whoever
    /// joins with an earlier one says so.
    fn wake_at(&self, until: Moment) -> Moment {
        let mut waiters = self.queue.waiters();
        let next_deadline = waiters.next_deadline(self.served).unwrap_or(until);
        let wake_at = next_deadline.min(until);
        let somebody = self.served.is_some();
        waiters.wakes_at = somebody.then_some(wake_at);
        wake_at
    }

    /// Ends those whose limit has passed, but for the one that is served.
    fn expire_waiters(&mut self, now: Moment) {
        loop {
            let waiter = self.queue.waiters().take_expired(now, self.served);
            let Some(waiter) = waiter else { return };
            let error = self.timed_out(waiter.joined, now);
            self.core.record_changed.notify_one();
            let _ = waiter.reply.send(Err(error));
        }
    }

    /// Gives all waiters of an owner that holds the lock a guard of the same chain.
    fn share_with_owner(&mut self, owner: &Arc<Holds>) {
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
        let waiter = (!closed).then(|| take_first_matching(&self.queue, &belief));
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

    fn now(&self) -> Moment {
        self.core.clock.now()
    }
}

/// Takes the first out of its queue, if it wants what this lease is.
pub(in crate::engine) fn take_first_matching(
    queue: &LocalQueue,
    belief: &Belief,
) -> Option<Waiter> {
    let mut waiters = queue.waiters();
    let (number, first) = waiters.first()?;
    let fits = first.request.is_met_by(belief);
    fits.then(|| waiters.leave(number)).flatten()
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(rand::random::<f64>())
}
