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
use crate::store::{Busy, Failure, offer_to};

/// The least time for a question, however little is left until the caller's limit: `within` nothing
/// means to ask once, and a server that gets no time to answer is not unavailable.
pub(super) const ASK_MIN: Duration = Duration::from_millis(100);
/// How often to look where the server refuses the channel that would wake us.
const LOOK_WITHOUT_MESSAGES: Duration = Duration::from_millis(100);
/// How long after the end of a lease those look who have others before them: let them ask first, and
/// let not all come at once.
const BEHIND_MIN: Duration = Duration::from_millis(20);
const BEHIND_SPREAD: Duration = Duration::from_millis(200);
/// How often to ask a store that may not grant yet: what it waits for may end sooner.
const LOOK_WHETHER_YET: Duration = Duration::from_secs(1);
/// How long to wait before asking a server again that could not answer.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long the head of our queue leaves a free lock to waiters that do not stand in it. Enough for
/// them to hear of it and ask, little for a lock to lie idle if they do not.
const HEAD_START: Duration = Duration::from_millis(10);
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
    asked: bool,
    messages: Subscription,
    news: Wakeups,
    obstacle: Option<CurrentHolder>,
    /// Why the store may not grant, though nobody holds the lock.
    not_yet: Option<Error>,
    unreachable: Option<Unreachable>,
    closed: bool,
}

/// What the line must know of the one that is first.
struct First {
    number: u64,
    wish: AcquireRequest,
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
    NotAsked,
    Arrive,
    Refused,
}

/// What was heard since the store was last asked. An answer and a message travel on two
/// connections, and the message may overtake.
#[derive(Default)]
struct Wakeups {
    /// There is reason to ask again.
    ask: bool,
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
            asked: false,
            messages: Subscription::NotAsked,
            news: Wakeups::default(),
            obstacle: None,
            not_yet: None,
            unreachable: None,
            closed: false,
        }
    }

    /// Serves one waiter after the other, until nobody is left.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
            if let Some(first) = self.first() {
                self.serve(first).await;
            } else if !self.somebody_comes().await && self.core.lines.close(&self.name) {
                break;
            }
        }
        if self.messages == Subscription::Arrive {
            let limit = self.now() + self.core.settings.unreachable_after;
            self.core.store.unlisten(&self.name, limit).await;
        }
    }

    /// Lingers for a while, if that spares the next waiter a subscription.
    async fn somebody_comes(&mut self) -> bool {
        if self.messages != Subscription::Arrive || self.closed {
            return false;
        }
        let until = self.now() + LINGER;
        while let Some(message) = self.next_message(until).await {
            self.take(message);
            // What others say of the lock is no reason to stay.
            if self.closed || self.queue.waiting().first().is_some() {
                return true;
            }
        }
        false
    }

    /// Who is first, and from now on served.
    fn first(&mut self) -> Option<First> {
        let mut waiting = self.queue.waiting();
        if waiting.len() == 0 {
            // Nobody's time is lost from now on.
            waiting.idle_since = None;
            // And whoever comes must say so: nobody will look.
            waiting.looks_at = None;
        }
        let first = waiting.first().map(|(number, waiter)| {
            let first = First {
                number,
                wish: waiter.wish.clone(),
                owner: waiter.owner.clone(),
                joined: waiter.joined,
                limit: waiter.limit,
            };
            (first, waiter.begun.found_busy)
        });
        drop(waiting);
        let number = first.as_ref().map(|(first, _)| first.number);
        if number != self.served {
            self.served = number;
            self.asked = first.as_ref().is_some_and(|(_, begun)| *begun);
        }
        first.map(|(first, _)| first)
    }

    /// Pursues one lease for whoever is first and wants just that.
    async fn serve(&mut self, first: First) {
        // A shutdown waits for it: what is asked now may be granted after everything was released.
        let _pending = self.core.pending.begin();
        let begun = self.queue.waiting().take_begun(first.number);
        let mut acquisition = begun.unwrap_or_else(|| Acquisition::new(&self.core, first.wish));
        let granted = self.pursue(&mut acquisition).await;
        if granted.is_none() {
            acquisition.give_up(&self.core).await;
        }
        // Not sooner: whoever releases meanwhile must know that the line still stands in the queue.
        self.leave_place();
        if let Some(belief) = granted {
            self.deliver(belief);
        }
    }

    /// Asks and sleeps in turn, until the lease is granted or nobody wants it any more.
    async fn pursue(&mut self, acquisition: &mut Acquisition) -> Option<Arc<Belief>> {
        let mut pause = PAUSE_MIN;
        if self.asked && self.messages == Subscription::NotAsked {
            // Its caller has just asked.
            let first = self.first()?;
            self.listen(&first).await;
            if bug(Bug::NoLookAfterListening) {
                self.rest(self.now() + Duration::from_secs(10), &first)
                    .await;
            }
        }
        loop {
            let first = self.first()?;
            if first.wish != acquisition.wish {
                return None;
            }
            if let Some(end) = self.end_before_asking(&first) {
                self.answer(first.number, end);
                continue;
            }
            self.asked = true;
            let asked_at = self.now();
            self.news = Wakeups::default();
            let queue = self.messages != Subscription::NotAsked;
            if queue {
                self.begin_to_stand(acquisition.id());
            }
            let limit = self.attempt_limit(&first);
            let core = Arc::clone(&self.core);
            let answer = self.while_minding(acquisition.attempt(&core, queue, limit));
            match answer.await {
                Ok(AttemptOutcome::Granted(belief)) => {
                    self.unreachable = None;
                    self.not_yet = None;
                    self.note_handover();
                    return Some(belief);
                }
                Ok(AttemptOutcome::NotYet(not_yet)) => {
                    self.unreachable = None;
                    self.not_yet = Some(not_yet.error);
                    let look_at = not_yet.until.min(self.now() + LOOK_WHETHER_YET);
                    self.rest(look_at, &first).await;
                }
                Ok(AttemptOutcome::Busy(busy)) => {
                    pause = PAUSE_MIN;
                    self.note_busy(busy);
                    if queue {
                        self.stand();
                    }
                    if self.messages == Subscription::NotAsked {
                        // Then ask again: only now is it sure that no message can be missed.
                        self.listen(&first).await;
                        if bug(Bug::NoLookAfterListening) {
                            self.sleep(&first).await;
                        }
                    } else {
                        self.sleep(&first).await;
                    }
                }
                Err(failure) if failure.transient => {
                    self.note_unreachable(asked_at, failure);
                    self.rest(self.now() + pause, &first).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(failure) => {
                    self.answer(first.number, Err(failure.error));
                    return None;
                }
            }
        }
    }

    /// What to tell the first without asking the store, if there is something.
    fn end_before_asking(&self, first: &First) -> Option<Result<Guard>> {
        // Asked of the client itself: a line that begins after the shutdown gets no message.
        if self.closed || self.core.is_closed() {
            return Some(Err(Error::closed()));
        }
        let owner = first.owner.as_ref();
        if let Some(shared) = owner.and_then(|owner| owner.reenter(&first.wish).transpose()) {
            return Some(shared);
        }
        let now = self.now();
        // One that has waited behind a head that got no answer need not find that out itself.
        let asked_for = self.unreachable.is_some()
            && now >= first.joined + self.core.settings.unreachable_after;
        let too_late = (self.asked || asked_for) && now >= self.end_of_patience(first);
        too_late.then(|| Err(self.too_late(first.joined, now)))
    }

    /// Until when the first wants to wait, as things are.
    fn end_of_patience(&self, first: &First) -> Moment {
        let never = Moment::from_nanos(u64::MAX);
        let limit = first.limit.unwrap_or(never);
        let patience = self.core.settings.unreachable_after;
        self.unreachable.as_ref().map_or(limit, |unreachable| {
            limit.min(unreachable.since.max(first.joined) + patience)
        })
    }

    /// Nobody is blamed for holding a lock that could not be asked for.
    fn too_late(&self, joined: Moment, now: Moment) -> Error {
        if let Some(unreachable) = &self.unreachable {
            return unreachable.error.share();
        }
        if let Some(not_yet) = &self.not_yet {
            return not_yet.share();
        }
        let waited = now.saturating_since(joined);
        let obstacle = self.obstacle.as_ref();
        let holder = obstacle.map(|obstacle| obstacle.holder(now));
        Error::busy(&self.name, waited, holder)
    }

    fn attempt_limit(&self, first: &First) -> Moment {
        let patience = self.now() + self.core.settings.unreachable_after;
        let limit = self.end_of_patience(first).min(patience);
        limit.max(self.now() + ASK_MIN)
    }

    fn note_busy(&mut self, busy: Busy) {
        self.unreachable = None;
        self.not_yet = None;
        // Whoever has let go of it, somebody else got it.
        self.queue.waiting().idle_since = None;
        CurrentHolder::update(&mut self.obstacle, busy, self.core.clock.now());
    }

    /// Takes note that a question asked at this moment got no answer.
    fn note_unreachable(&mut self, asked_at: Moment, failure: Failure) {
        let known = self.unreachable.as_ref();
        self.unreachable = Some(Unreachable {
            since: known.map_or(asked_at, |unreachable| unreachable.since),
            error: failure.error,
        });
    }

    async fn listen(&mut self, first: &First) {
        let core = Arc::clone(&self.core);
        let (name, limit) = (self.name.clone(), self.attempt_limit(first));
        let listening = async move { core.store.listen(&name, limit).await };
        match self.while_minding(listening).await {
            Ok(()) => self.messages = Subscription::Arrive,
            // Not reachable: the next attempt will say so, and the one after it listens again.
            Err(failure) if failure.transient => {
                self.rest(self.now() + PAUSE_MIN, first).await;
            }
            Err(failure) => {
                self.messages = Subscription::Refused;
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
        let mut look_at = self.next_look();
        loop {
            if let Some(offer) = self.news.offered_to_other.take() {
                // Should that one have died, nobody else will tell us.
                let mut ends = offer + jitter(offer / 10);
                if self.queue.waiting().is_far() {
                    ends += BEHIND_MIN + jitter(BEHIND_SPREAD);
                }
                look_at = look_at.min(self.now() + ends);
            }
            let now = self.now();
            let too_late = first.limit.is_some_and(|limit| now >= limit);
            if self.news.ask || self.closed || too_late || !self.is_first(first) {
                return;
            }
            if now >= look_at {
                match self.messages {
                    Subscription::Refused => self.core.stats.woken_by_poll(),
                    Subscription::NotAsked | Subscription::Arrive => {
                        self.core.stats.woken_by_timer()
                    }
                }
                if !self.is_behind(first).await {
                    return;
                }
                look_at = self.next_look();
                continue;
            }
            let obstacle = self.obstacle.as_ref();
            let look_up_at = obstacle.and_then(|obstacle| obstacle.look_up_at(first.limit));
            if look_up_at.is_some_and(|at| now >= at) {
                self.look_up_holder(first).await;
                continue;
            }
            let mut until = look_up_at.map_or(look_at, |at| at.min(look_at));
            until = first.limit.map_or(until, |limit| limit.min(until));
            self.mind(until).await;
        }
    }

    /// When to look at the lock although no message came.
    fn next_look(&self) -> Moment {
        let is_far = self.queue.waiting().is_far();
        let patience = self.obstacle.as_ref().map(|obstacle| {
            if is_far {
                obstacle.patience_behind() + BEHIND_MIN + jitter(BEHIND_SPREAD)
            } else {
                obstacle.patience()
            }
        });
        let patience = patience.unwrap_or_default();
        self.now()
            + match self.messages {
                Subscription::Refused => {
                    patience.min(LOOK_WITHOUT_MESSAGES + jitter(LOOK_WITHOUT_MESSAGES))
                }
                Subscription::NotAsked | Subscription::Arrive => patience,
            }
    }

    /// Whether the lock is still held, and so many stand before us that asking for it is theirs to do.
    /// Whoever is known to be among those, or sees that the lease has ended, asks instead of looking.
    async fn is_behind(&mut self, first: &First) -> bool {
        let place = {
            let waiting = self.queue.waiting();
            let place = waiting.place.clone().filter(|_| !waiting.is_near());
            let over = |obstacle: &CurrentHolder| obstacle.is_over(self.now());
            let asks = !waiting.is_far() && self.obstacle.as_ref().is_none_or(over);
            place.filter(|_| self.messages == Subscription::Arrive && !asks)
        };
        let Some(place) = place else { return false };
        let (core, name) = (Arc::clone(&self.core), self.name.clone());
        let limit = self.attempt_limit(first);
        let looking = async move { core.store.outlook(&name, &place, limit).await };
        let outlook = self.while_minding(looking).await.ok().flatten();
        if self.news.ask {
            // There is news that is newer than the answer.
            return false;
        }
        let now = self.now();
        if let (Some(obstacle), Some(outlook)) = (&mut self.obstacle, &outlook) {
            obstacle.lasts(outlook.remaining, now);
        }
        let mut waiting = self.queue.waiting();
        waiting.stands_behind(outlook.map(|outlook| outlook.ahead));
        waiting.is_far()
    }

    /// The line is about to stand in the store's queue.
    fn begin_to_stand(&self, id: &LeaseId) {
        let mut waiting = self.queue.waiting();
        if waiting.place.as_ref() != Some(id) {
            waiting.place = Some(id.clone());
            waiting.stands = false;
        }
    }

    /// The store has said that the line stands in its queue: from now on it must say that it lives.
    fn stand(&self) {
        self.queue.waiting().stands = true;
        self.core.lines.stands();
    }

    /// The line no longer stands in the store's queue.
    fn leave_place(&self) {
        let mut waiting = self.queue.waiting();
        waiting.place = None;
        waiting.stands = false;
        waiting.stands_behind(None);
    }

    /// Learns who the holder is, so that an error can name it.
    async fn look_up_holder(&mut self, first: &First) {
        let now = self.now();
        let obstacle = self.obstacle.as_mut();
        let client = obstacle.and_then(|obstacle| obstacle.begin_look_up(now));
        let Some(client) = client else { return };
        let (core, limit) = (Arc::clone(&self.core), self.attempt_limit(first));
        let looking = async move { client_record::read(&core, Some(client), limit).await };
        let records = self.while_minding(looking).await;
        if let (Some(obstacle), Ok(records)) = (&mut self.obstacle, records) {
            obstacle.name_holder(records.into_iter().next());
        }
    }

    async fn rest(&mut self, until: Moment, first: &First) {
        let until = until.min(self.end_of_patience(first));
        let clock = self.core.clock.clone();
        let rested = async move { clock.sleep_until(until).await };
        self.while_minding(rested).await;
    }

    /// Does `work` and minds the line meanwhile: nobody's time limit waits for it.
    async fn while_minding<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let never = self.now() + Duration::from_secs(24 * 60 * 60);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.mind(never) => {}
            }
        }
    }

    /// Takes the next message, if one comes until then.
    async fn mind(&mut self, until: Moment) {
        if let Some(message) = self.next_message(until).await {
            self.take(message);
        }
    }

    /// The next message, if one comes until then. Ends the waiters whose limit passes.
    async fn next_message(&mut self, until: Moment) -> Option<QueueMessage> {
        loop {
            let now = self.now();
            self.end_those_too_late(now);
            if now >= until {
                return None;
            }
            let look_at = self.look_at(until);
            let clock = self.core.clock.clone();
            tokio::select! {
                biased;
                message = self.inbox.recv() => return message,
                () = clock.sleep_until(look_at) => {}
            }
        }
    }

    fn take(&mut self, message: QueueMessage) {
        match message {
            QueueMessage::Joined | QueueMessage::Left => {}
            QueueMessage::Close => self.closed = true,
            QueueMessage::LookAgain | QueueMessage::PlaceLeft => {
                // Who knows how often the lock went to another one meanwhile.
                self.queue.waiting().stands_behind(None);
                self.news.ask = true;
            }
            QueueMessage::PlaceLost(place) => {
                let mut waiting = self.queue.waiting();
                if waiting.standing() == Some(&place) && !bug(Bug::LostPlaceIgnored) {
                    waiting.stands = false;
                    waiting.stands_behind(None);
                    drop(waiting);
                    self.news.ask = true;
                }
            }
            QueueMessage::Brief(lasts) => {
                self.news.offered_to_other = Some(lasts);
                let now = self.now();
                if let Some(obstacle) = &mut self.obstacle {
                    obstacle.lasts(lasts, now);
                }
            }
            QueueMessage::Offered(to) => {
                let ours = self.queue.waiting().place.as_ref() == Some(&to);
                self.note_idle(ours);
                if ours {
                    self.core.stats.woken_by_message();
                    self.news.ask = true;
                } else {
                    self.queue.waiting().moves_up();
                    let offer = offer_to(&to);
                    self.news.offered_to_other = Some(offer);
                    self.stand_behind(to, offer);
                }
            }
            QueueMessage::Opened(None) => {
                self.note_idle(true);
                if self.served.is_some() {
                    self.core.stats.woken_by_message();
                }
                self.news.ask = true;
            }
            QueueMessage::Opened(Some(next)) => {
                let ours = self.queue.waiting().place.as_ref() == Some(&next);
                self.note_idle(ours);
                let rest = if ours { HEAD_START } else { offer_to(&next) };
                self.news.offered_to_other = Some(rest);
            }
            QueueMessage::Share(owner) => {
                // The one that is served may be among them.
                self.news.ask = true;
                self.serve_owner(&owner);
            }
        }
    }

    /// Takes note whose the lock is about to be. Whoever stands far behind is told by nobody else.
    fn stand_behind(&mut self, holder: LeaseId, offer: Duration) {
        let now = self.now();
        let busy = Busy {
            holder,
            remaining: Some(offer),
        };
        CurrentHolder::update(&mut self.obstacle, busy, now);
    }

    /// Takes note that the lock was released: to be ours next, or somebody else's. Only measured.
    fn note_idle(&self, ours: bool) {
        if !self.core.stats.timings.is_wanted() {
            return;
        }
        let mut waiting = self.queue.waiting();
        let ours = ours && waiting.len() > 0;
        // A release of our own began before word of it came back.
        let since = waiting.idle_since.unwrap_or_else(|| self.now());
        waiting.idle_since = ours.then_some(since);
    }

    /// Measures how long the lock was nobody's.
    fn note_handover(&self) {
        let since = self.queue.waiting().idle_since.take();
        if let Some(since) = since {
            let idle = self.now().saturating_since(since);
            self.core.stats.timings.handed_over(idle);
        }
    }

    /// Whether nobody has taken this one's turn yet.
    fn is_first(&self, first: &First) -> bool {
        let waiting = self.queue.waiting();
        waiting
            .first()
            .is_some_and(|(number, _)| number == first.number)
    }

    /// When to look next, if no message comes until then: for the next limit at the latest. Whoever
    /// joins with an earlier one says so.
    fn look_at(&self, until: Moment) -> Moment {
        let mut waiting = self.queue.waiting();
        let next_limit = waiting.next_limit(self.served).unwrap_or(until);
        let look_at = next_limit.min(until);
        let somebody = self.served.is_some();
        waiting.looks_at = somebody.then_some(look_at);
        look_at
    }

    /// Ends those whose limit has passed, but for the one that is served.
    fn end_those_too_late(&mut self, now: Moment) {
        loop {
            let waiter = self.queue.waiting().next_too_late(now, self.served);
            let Some(waiter) = waiter else { return };
            let error = self.too_late(waiter.joined, now);
            self.core.record_changed.notify_one();
            let _ = waiter.reply.send(Err(error));
        }
    }

    /// Gives all waiters of an owner that holds the lock a guard of the same chain.
    fn serve_owner(&mut self, owner: &Arc<Holds>) {
        let numbers = self.queue.waiting().numbers_of(owner);
        for number in numbers {
            let wish = self.queue.waiting().get(number).map(|it| it.wish.clone());
            // If it let go meanwhile, its waiters go on waiting.
            if let Some(wish) = wish
                && let Some(result) = owner.reenter(&wish).transpose()
            {
                self.answer(number, result);
            }
        }
    }

    /// Gives a grant to whoever is first now, if that one wants just this.
    fn deliver(&mut self, belief: Arc<Belief>) {
        let closed = self.core.is_closed();
        let waiter = (!closed).then(|| take_first_for(&self.queue, &belief));
        let Some(waiter) = waiter.flatten() else {
            self.core.stats.cancelled();
            return self.core.return_grant(&belief);
        };
        self.core.record_changed.notify_one();
        let hold = Hold::take_up(waiter.client, waiter.owner.clone(), belief);
        // If the caller leaves at this moment, the guard is dropped here and releases.
        let _ = waiter.reply.send(Ok(Guard::new(hold)));
        if let Some(owner) = waiter.owner {
            self.serve_owner(&owner);
        }
    }

    fn answer(&self, number: u64, result: Result<Guard>) {
        let waiter = self.queue.waiting().leave(number);
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
pub(in crate::engine) fn take_first_for(queue: &LocalQueue, belief: &Belief) -> Option<Waiter> {
    let mut waiting = queue.waiting();
    let (number, first) = waiting.first()?;
    let fits = first.wish.is_met_by(belief);
    fits.then(|| waiting.leave(number)).flatten()
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(rand::random::<f64>())
}
