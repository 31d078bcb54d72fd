//! Waiting: the line of callers in this process that want one name.
//!
//! First come, first served, and only the head of the line talks to the store. There it stands in
//! a queue with the heads of other processes, and is woken when the lock is offered to it. A timer
//! looks after whatever a message can miss: a holder that died, a library that sends none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use super::attempt::{Acquisition, Outcome};
use super::behind::Behind;
use super::lines::{Message, Waiter};
use super::obstacle::Obstacle;
use super::record;
use crate::belief::Belief;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::owner::Holds;
use crate::store::{Failure, offer_to};

/// The least time for a question, however little is left until the caller's limit: `within` nothing
/// means to ask once, and a server that gets no time to answer is not unavailable.
pub(super) const ASK_MIN: Duration = Duration::from_millis(100);
/// How often to look where the server refuses the channel that would wake us.
const LOOK_WITHOUT_MESSAGES: Duration = Duration::from_millis(100);
/// How long to wait before asking a server again that could not answer.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long the head of our queue leaves a free lock to waiters that do not stand in it. Enough for
/// them to hear of it and ask, little for a lock to lie idle if they do not.
const HEAD_START: Duration = Duration::from_millis(10);
/// How long a line that hears messages stays after its last waiter: on a contended lock the next
/// one comes soon, and need not subscribe again.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct Line {
    core: Arc<Core>,
    name: LockName,
    inbox: mpsc::UnboundedReceiver<Message>,
    length: Arc<AtomicUsize>,
    /// Who is being served.
    head: Option<Head>,
    behind: Behind,
    messages: Messages,
    news: News,
    obstacle: Option<Obstacle>,
    unreachable: Option<Unreachable>,
    closed: bool,
}

/// Since when the store has not answered, and what it or the connection said last.
struct Unreachable {
    since: Moment,
    error: Error,
}

struct Head {
    id: LeaseId,
    owner: Option<Arc<Holds>>,
}

/// Whether the store tells this line when the lock is offered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Messages {
    NotAsked,
    Arrive,
    Refused,
}

/// What was heard since the head last asked. An answer and a message travel on two connections,
/// and the message may overtake.
#[derive(Default)]
struct News {
    /// There is reason to ask again.
    ask: bool,
    /// The lock is someone else's for this long at most: offered, or left to.
    offered_to_other: Option<Duration>,
}

/// How the service of a waiter ends.
enum End {
    Granted(Arc<Belief>),
    /// Its owner holds the lock by now.
    Shared(Guard),
    Failed(Error),
    /// The caller went away.
    Gone,
}

impl Line {
    pub(super) fn new(
        core: Arc<Core>,
        name: LockName,
        inbox: mpsc::UnboundedReceiver<Message>,
        length: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            core,
            name,
            inbox,
            length,
            head: None,
            behind: Behind::default(),
            messages: Messages::NotAsked,
            news: News::default(),
            obstacle: None,
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
            if let Some(waiter) = self.behind.next() {
                self.serve(waiter).await;
                self.length.fetch_sub(1, Ordering::Relaxed);
                self.core.record_changed.notify_one();
            } else if !self.somebody_comes().await && self.core.lines.close(&self.name, &self.inbox)
            {
                break;
            }
        }
        if self.messages == Messages::Arrive {
            let limit = self.now() + self.core.settings.unreachable_after;
            self.core.store.unlisten(&self.name, limit).await;
        }
    }

    /// Lingers for a while, if that spares the next waiter a subscription.
    async fn somebody_comes(&mut self) -> bool {
        if self.messages != Messages::Arrive || self.closed {
            return false;
        }
        let until = self.now() + LINGER;
        while let Some(message) = self.next_message(until).await {
            // What others say of the lock is no reason to stay.
            let joins = matches!(message, Message::Join(..));
            self.take(message);
            if joins || self.closed {
                return joins;
            }
        }
        false
    }

    /// Brings a waiter its guard, or the reason why not.
    async fn serve(&mut self, mut waiter: Waiter) {
        // A shutdown waits for it: what is asked now may be granted after everything was released.
        let _pending = self.core.pending.begin();
        let mut acquisition = Acquisition::new(&self.core, waiter.wish.clone());
        self.head = Some(Head {
            id: acquisition.id().clone(),
            owner: waiter.owner.clone(),
        });
        let end = self.pursue(&mut waiter, &mut acquisition).await;
        self.head = None;
        if let End::Granted(belief) = end {
            return self.deliver(waiter, belief);
        }
        acquisition.give_up(&self.core).await;
        // A caller that went away does not mind.
        let _ = match end {
            End::Shared(guard) => waiter.reply.send(Ok(guard)),
            End::Failed(error) => waiter.reply.send(Err(error)),
            End::Granted(_) | End::Gone => Ok(()),
        };
    }

    /// Asks and sleeps in turn, until there is something to tell the waiter.
    async fn pursue(&mut self, waiter: &mut Waiter, acquisition: &mut Acquisition) -> End {
        let mut pause = PAUSE_MIN;
        let mut asked = false;
        loop {
            if let Some(end) = self.end_before_asking(waiter, asked) {
                return end;
            }
            asked = true;
            let asked_at = self.now();
            self.news = News::default();
            let queue = self.messages != Messages::NotAsked;
            let limit = self.attempt_limit(waiter);
            let core = Arc::clone(&self.core);
            let answer = self.while_minding(acquisition.attempt(&core, queue, limit));
            match answer.await {
                Ok(Outcome::Granted(belief)) => {
                    self.unreachable = None;
                    return End::Granted(belief);
                }
                Ok(Outcome::Busy(busy)) => {
                    self.unreachable = None;
                    pause = PAUSE_MIN;
                    Obstacle::update(&mut self.obstacle, busy, self.core.clock.now());
                    if self.messages == Messages::NotAsked {
                        // Then ask again: only now is it sure that no message can be missed.
                        self.listen(waiter).await;
                    } else {
                        self.sleep(waiter).await;
                    }
                }
                Err(failure) if failure.transient => {
                    self.note_unreachable(asked_at, failure);
                    self.rest(self.now() + pause, waiter).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(failure) => return End::Failed(failure.error),
            }
        }
    }

    /// Why there is no need to ask, if there is none.
    fn end_before_asking(&self, waiter: &Waiter, asked: bool) -> Option<End> {
        if waiter.reply.is_closed() {
            return Some(End::Gone);
        }
        // Asked of the client itself: a line that begins after the shutdown gets no message.
        if self.closed || self.core.is_closed() {
            return Some(End::Failed(Error::closed()));
        }
        match waiter
            .owner
            .as_ref()
            .map(|owner| owner.reenter(&waiter.wish))
        {
            Some(Ok(Some(guard))) => return Some(End::Shared(guard)),
            Some(Err(error)) => return Some(End::Failed(error)),
            None | Some(Ok(None)) => {}
        }
        let now = self.now();
        // One that has waited behind a head that got no answer need not find that out itself.
        let asked_for = self.unreachable.is_some()
            && now >= waiter.joined + self.core.settings.unreachable_after;
        let too_late = (asked || asked_for) && now >= self.end_of_patience(waiter);
        too_late.then(|| End::Failed(self.too_late(waiter, now)))
    }

    /// Until when a waiter wants to wait, as things are.
    fn end_of_patience(&self, waiter: &Waiter) -> Moment {
        let never = Moment::from_nanos(u64::MAX);
        let limit = waiter.limit.unwrap_or(never);
        let patience = self.core.settings.unreachable_after;
        self.unreachable.as_ref().map_or(limit, |unreachable| {
            limit.min(unreachable.since.max(waiter.joined) + patience)
        })
    }

    /// Nobody is blamed for holding a lock that could not be asked for.
    fn too_late(&self, waiter: &Waiter, now: Moment) -> Error {
        if let Some(unreachable) = &self.unreachable {
            return unreachable.error.share();
        }
        let waited = now.saturating_since(waiter.joined);
        let obstacle = self.obstacle.as_ref();
        let holder = obstacle.map(|obstacle| obstacle.holder(now));
        Error::busy(&self.name, waited, holder)
    }

    fn attempt_limit(&self, waiter: &Waiter) -> Moment {
        let patience = self.now() + self.core.settings.unreachable_after;
        let limit = self.end_of_patience(waiter).min(patience);
        limit.max(self.now() + ASK_MIN)
    }

    /// Takes note that a question asked at this moment got no answer.
    fn note_unreachable(&mut self, asked_at: Moment, failure: Failure) {
        let known = self.unreachable.as_ref();
        self.unreachable = Some(Unreachable {
            since: known.map_or(asked_at, |unreachable| unreachable.since),
            error: failure.error,
        });
    }

    async fn listen(&mut self, waiter: &Waiter) {
        let core = Arc::clone(&self.core);
        let (name, limit) = (self.name.clone(), self.attempt_limit(waiter));
        let listening = async move { core.store.listen(&name, limit).await };
        match self.while_minding(listening).await {
            Ok(()) => self.messages = Messages::Arrive,
            // Not reachable: the next attempt will say so, and the one after it listens again.
            Err(failure) if failure.transient => {
                self.rest(self.now() + PAUSE_MIN, waiter).await;
            }
            Err(failure) => {
                self.messages = Messages::Refused;
                self.core.stats.messages_refused();
                tracing::warn!(
                    lock = %self.name, error = %failure.error,
                    "lock.waits_without_messages: looking again and again instead"
                );
            }
        }
    }

    /// Sleeps until there is reason to ask the store again, or to end.
    async fn sleep(&mut self, waiter: &mut Waiter) {
        let mut look_at = self.next_look();
        loop {
            if let Some(offer) = self.news.offered_to_other.take() {
                // Should that one have died, nobody else will tell us.
                look_at = look_at.min(self.now() + offer + jitter(offer / 10));
            }
            let now = self.now();
            let too_late = waiter.limit.is_some_and(|limit| now >= limit);
            if self.news.ask || self.closed || too_late {
                return;
            }
            if now >= look_at {
                return self.core.stats.woken_by_timer();
            }
            let obstacle = self.obstacle.as_ref();
            let look_up_at = obstacle.and_then(|obstacle| obstacle.look_up_at(waiter.limit));
            if look_up_at.is_some_and(|at| now >= at) {
                self.look_up_holder(waiter).await;
                continue;
            }
            let mut until = look_up_at.map_or(look_at, |at| at.min(look_at));
            until = waiter.limit.map_or(until, |limit| limit.min(until));
            tokio::select! {
                () = self.mind(until) => {}
                () = waiter.reply.closed() => return,
            }
        }
    }

    /// When to look at the lock although no message came.
    fn next_look(&self) -> Moment {
        let patience = self.obstacle.as_ref().map(Obstacle::patience);
        let patience = patience.unwrap_or_default();
        self.now()
            + match self.messages {
                Messages::Refused => {
                    patience.min(LOOK_WITHOUT_MESSAGES + jitter(LOOK_WITHOUT_MESSAGES))
                }
                Messages::NotAsked | Messages::Arrive => patience,
            }
    }

    /// Learns who the holder is, so that an error can name it.
    async fn look_up_holder(&mut self, waiter: &Waiter) {
        let now = self.now();
        let obstacle = self.obstacle.as_mut();
        let client = obstacle.and_then(|obstacle| obstacle.begin_look_up(now));
        let Some(client) = client else { return };
        let (core, limit) = (Arc::clone(&self.core), self.attempt_limit(waiter));
        let looking = async move { record::read(&core, Some(client), limit).await };
        let records = self.while_minding(looking).await;
        if let (Some(obstacle), Ok(records)) = (&mut self.obstacle, records) {
            obstacle.name_holder(records.into_iter().next());
        }
    }

    async fn rest(&mut self, until: Moment, waiter: &Waiter) {
        let until = until.min(self.end_of_patience(waiter));
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
    async fn next_message(&mut self, until: Moment) -> Option<Message> {
        loop {
            let now = self.now();
            self.end_those_too_late(now);
            if now >= until {
                return None;
            }
            let next_limit = self.behind.next_limit().unwrap_or(until);
            let clock = self.core.clock.clone();
            tokio::select! {
                biased;
                message = self.inbox.recv() => return message,
                () = clock.sleep_until(next_limit.min(until)) => {}
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Join(number, waiter) => self.join(number, waiter),
            Message::Left(number) => {
                if self.behind.leave(number).is_some() {
                    self.length.fetch_sub(1, Ordering::Relaxed);
                    self.core.record_changed.notify_one();
                }
            }
            Message::Close => self.closed = true,
            Message::LookAgain => self.news.ask = true,
            Message::Offered(to) => {
                if self.head.as_ref().is_some_and(|head| head.id == to) {
                    self.core.stats.woken_by_message();
                    self.news.ask = true;
                } else {
                    self.news.offered_to_other = Some(offer_to(&to));
                }
            }
            Message::Opened(None) => {
                if self.head.is_some() {
                    self.core.stats.woken_by_message();
                }
                self.news.ask = true;
            }
            Message::Opened(Some(next)) => {
                let ours = self.head.as_ref().is_some_and(|head| head.id == next);
                let rest = if ours { HEAD_START } else { offer_to(&next) };
                self.news.offered_to_other = Some(rest);
            }
            Message::Share(owner) => {
                let head_owner = self.head.as_ref().and_then(|head| head.owner.as_ref());
                self.news.ask |= head_owner.is_some_and(|head| Arc::ptr_eq(head, &owner));
                self.serve_owner(&owner);
            }
        }
    }

    /// Takes a waiter into the line, unless its owner was granted the lock while it was coming: it
    /// must not stand behind somebody who waits for that owner.
    fn join(&mut self, number: u64, waiter: Waiter) {
        let owner = waiter.owner.as_ref();
        match owner.and_then(|owner| owner.reenter(&waiter.wish).transpose()) {
            Some(result) => self.answer(waiter, result),
            None => self.behind.join(number, waiter),
        }
    }

    /// Ends those behind the head whose limit has passed.
    fn end_those_too_late(&mut self, now: Moment) {
        while let Some(waiter) = self.behind.next_too_late(now) {
            let error = self.too_late(&waiter, now);
            self.answer(waiter, Err(error));
        }
    }

    /// Gives all waiters of an owner that holds the lock a guard of the same chain.
    fn serve_owner(&mut self, owner: &Arc<Holds>) {
        for number in self.behind.numbers_of(owner) {
            let wish = self.behind.get(number).map(|waiter| &waiter.wish);
            let shared = wish.map(|wish| owner.reenter(wish).transpose());
            // If it let go meanwhile, its waiters go on waiting.
            if let Some(Some(result)) = shared
                && let Some(waiter) = self.behind.leave(number)
            {
                self.answer(waiter, result);
            }
        }
    }

    fn deliver(&mut self, waiter: Waiter, belief: Arc<Belief>) {
        let closed = self.core.is_closed();
        if closed || waiter.reply.is_closed() {
            self.core.stats.cancelled();
            self.core.return_grant(&belief);
            // A caller that went away does not mind.
            let _ = waiter.reply.send(Err(Error::closed()));
            return;
        }
        let hold = Hold::take_up(waiter.client, waiter.owner.clone(), belief);
        // If the caller leaves at this moment, the guard is dropped here and releases.
        let _ = waiter.reply.send(Ok(Guard::new(hold)));
        if let Some(owner) = waiter.owner {
            self.serve_owner(&owner);
        }
    }

    fn answer(&self, waiter: Waiter, result: Result<Guard>) {
        self.length.fetch_sub(1, Ordering::Relaxed);
        self.core.record_changed.notify_one();
        let _ = waiter.reply.send(result);
    }

    fn now(&self) -> Moment {
        self.core.clock.now()
    }
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(rand::random::<f64>())
}
