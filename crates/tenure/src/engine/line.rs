//! Waiting: the line of callers in this process that want one name.
//!
//! First come, first served, and only the head of the line talks to the store. There it stands in
//! a queue with the heads of other processes, and is woken when the lock is offered to it. A timer
//! looks after whatever a message can miss: a holder that died, a library that sends none.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::attempt::{Acquisition, Granted, Outcome, Wish};
use super::record;
use crate::core::{Client, Core};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::holder::Holder;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::owner::Holds;
use crate::store::{Busy, Failure, offer_to};

/// How often to look at a lock whose holder is not Tenure's, and so may release it in silence.
const LOOK_AT_FOREIGN: Duration = Duration::from_secs(1);
/// How often to look where the server refuses the channel that would wake us.
const LOOK_WITHOUT_MESSAGES: Duration = Duration::from_millis(100);
/// How long to wait before asking a server again that could not answer.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// The least time for the first question, however short the caller's limit: `within` nothing means
/// to ask once.
const FIRST_ASK_MIN: Duration = Duration::from_millis(100);
/// How long a line that hears messages stays after its last waiter: on a contended lock the next
/// one comes soon, and need not subscribe again.
const LINGER: Duration = Duration::from_secs(1);
/// A holder is looked up in the clients' records once it has been in the way for this long. Before
/// that its record does not list it.
const LOOK_UP_HOLDER_AFTER: Duration = Duration::from_millis(700);

/// A caller that waits.
pub(crate) struct Waiter {
    pub(crate) client: Arc<Client>,
    pub(crate) wish: Wish,
    pub(crate) owner: Option<Arc<Holds>>,
    pub(crate) joined: Moment,
    /// Until when it wants to wait for a holder.
    pub(crate) limit: Option<Moment>,
    pub(crate) reply: oneshot::Sender<Result<Guard>>,
}

/// All lines of a client, by name.
#[derive(Default)]
pub(crate) struct Lines {
    by_name: Mutex<HashMap<LockName, Entrance>>,
}

struct Entrance {
    inbox: mpsc::UnboundedSender<Message>,
    length: Arc<AtomicUsize>,
}

enum Message {
    Join(Waiter),
    /// The lock was offered to this lease.
    Offered(LeaseId),
    /// Look again: messages may have been missed.
    LookAgain,
    /// An owner got the lock by another way; its waiters share it.
    Share(Arc<Holds>),
    Close,
}

impl Lines {
    /// Puts a waiter at the end of the line for its name.
    pub(crate) fn join(&self, core: &Arc<Core>, waiter: Waiter) {
        let mut by_name = self.by_name();
        let name = waiter.wish.name.clone();
        let entrance = by_name.entry(name.clone()).or_insert_with(|| {
            let (inbox, messages) = mpsc::unbounded_channel();
            let length = Arc::new(AtomicUsize::new(0));
            let line = Line::new(Arc::clone(core), name, messages, Arc::clone(&length));
            waiter.client.engine.spawn(line.run());
            Entrance { inbox, length }
        });
        entrance.length.fetch_add(1, Ordering::Relaxed);
        // The line leaves the map before it stops reading, under the same mutex.
        let _ = entrance.inbox.send(Message::Join(waiter));
        core.record_changed.notify_one();
    }

    pub(crate) fn wake(&self, name: &LockName, offered_to: LeaseId) {
        self.send(name, Message::Offered(offered_to));
    }

    /// The waiters of an owner who just got the lock have it too.
    pub(crate) fn share(&self, name: &LockName, owner: &Arc<Holds>) {
        self.send(name, Message::Share(Arc::clone(owner)));
    }

    pub(crate) fn wake_all(&self) {
        for entrance in self.by_name().values() {
            let _ = entrance.inbox.send(Message::LookAgain);
        }
    }

    pub(crate) fn close_all(&self) {
        for entrance in self.by_name().values() {
            let _ = entrance.inbox.send(Message::Close);
        }
    }

    /// How many callers wait, by name.
    pub(crate) fn lengths(&self) -> Vec<(LockName, usize)> {
        let lengths = |(name, entrance): (&LockName, &Entrance)| {
            (name.clone(), entrance.length.load(Ordering::Relaxed))
        };
        self.by_name().iter().map(lengths).collect()
    }

    fn send(&self, name: &LockName, message: Message) {
        if let Some(entrance) = self.by_name().get(name) {
            let _ = entrance.inbox.send(message);
        }
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<LockName, Entrance>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Line {
    core: Arc<Core>,
    name: LockName,
    inbox: mpsc::UnboundedReceiver<Message>,
    length: Arc<AtomicUsize>,
    /// Who is being served.
    head: Option<Head>,
    /// Behind the head. Waiters that gave up leave a hole.
    queue: VecDeque<(u64, Option<Waiter>)>,
    limits: BTreeSet<(Moment, u64)>,
    joined_count: u64,
    messages: Messages,
    news: News,
    in_the_way: Option<InTheWay>,
    unreachable_since: Option<Moment>,
    closed: bool,
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
    /// The lock was offered to someone else, for this long.
    offered_to_other: Option<Duration>,
}

/// The holder whom the line waits for.
struct InTheWay {
    busy: Busy,
    since: Moment,
    looked_up: bool,
    holder: Holder,
}

/// How the service of a waiter ends.
enum End {
    Granted(Granted),
    /// Its owner holds the lock by now.
    Shared(Guard),
    Failed(Error),
    /// The caller went away.
    Gone,
}

impl Line {
    fn new(
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
            queue: VecDeque::new(),
            limits: BTreeSet::new(),
            joined_count: 0,
            messages: Messages::NotAsked,
            news: News::default(),
            in_the_way: None,
            unreachable_since: None,
            closed: false,
        }
    }

    /// Serves one waiter after the other, until nobody is left.
    async fn run(mut self) {
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
            if let Some(waiter) = self.next_waiter() {
                self.serve(waiter).await;
                self.length.fetch_sub(1, Ordering::Relaxed);
                self.core.record_changed.notify_one();
            } else if !self.somebody_comes().await && self.leave_if_empty() {
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
        match self.next_message(self.now() + LINGER).await {
            Some(message) => {
                self.take(message);
                true
            }
            None => false,
        }
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
        if let End::Granted(granted) = end {
            return self.deliver(waiter, granted);
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
            self.news = News::default();
            let queue = self.messages != Messages::NotAsked;
            let limit = self.attempt_limit(waiter);
            let core = Arc::clone(&self.core);
            let answer = self.while_minding(acquisition.attempt(&core, queue, limit));
            match answer.await {
                Ok(Outcome::Granted(granted)) => {
                    self.unreachable_since = None;
                    return End::Granted(granted);
                }
                Ok(Outcome::Busy(busy)) => {
                    self.unreachable_since = None;
                    pause = PAUSE_MIN;
                    self.note_busy(busy);
                    if self.messages == Messages::NotAsked {
                        // Then ask again: only now is it sure that no message can be missed.
                        self.listen(waiter).await;
                    } else {
                        self.sleep(waiter).await;
                    }
                }
                Err(failure) if failure.transient => {
                    if let Some(error) = self.note_unreachable(waiter, failure) {
                        return End::Failed(error);
                    }
                    self.rest(pause).await;
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
        let too_late = asked && waiter.limit.is_some_and(|limit| now >= limit);
        too_late.then(|| End::Failed(self.too_late(waiter, now)))
    }

    fn too_late(&self, waiter: &Waiter, now: Moment) -> Error {
        let waited = now.saturating_since(waiter.joined);
        let holder = self.in_the_way.as_ref().map(|it| it.holder.clone());
        Error::busy(&self.name, waited, holder)
    }

    fn attempt_limit(&self, waiter: &Waiter) -> Moment {
        let patience = self.now() + self.core.settings.unreachable_after;
        let limit = waiter.limit.map_or(patience, |limit| limit.min(patience));
        limit.max(waiter.joined + FIRST_ASK_MIN)
    }

    /// Takes note that the server did not answer; the error, if the waiter has waited long enough
    /// for that.
    fn note_unreachable(&mut self, waiter: &Waiter, failure: Failure) -> Option<Error> {
        let now = self.now();
        let since = *self.unreachable_since.get_or_insert(now);
        let patience = self.core.settings.unreachable_after;
        let out_of_patience = now >= since.max(waiter.joined) + patience;
        let out_of_time = waiter.limit.is_some_and(|limit| now >= limit);
        (out_of_patience || out_of_time).then_some(failure.error)
    }

    fn note_busy(&mut self, busy: Busy) {
        match &mut self.in_the_way {
            Some(known) if known.busy.holder == busy.holder => {
                known.holder.remaining = busy.remaining;
                known.busy = busy;
            }
            in_the_way => {
                let holder = Holder::seen_in_the_way(&busy);
                *in_the_way = Some(InTheWay {
                    busy,
                    since: self.core.clock.now(),
                    looked_up: false,
                    holder,
                });
            }
        }
    }

    async fn listen(&mut self, waiter: &Waiter) {
        let core = Arc::clone(&self.core);
        let (name, limit) = (self.name.clone(), self.attempt_limit(waiter));
        let listening = async move { core.store.listen(&name, limit).await };
        match self.while_minding(listening).await {
            Ok(()) => self.messages = Messages::Arrive,
            // Not reachable: the next attempt will say so, and the one after it listens again.
            Err(failure) if failure.transient => self.rest(PAUSE_MIN).await,
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
            let look_up_at = self.look_up_holder_at();
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
        let now = self.now();
        let Some(InTheWay { busy, .. }) = &self.in_the_way else {
            return now;
        };
        let fallback = match busy.holder.ttl() {
            _ if self.messages == Messages::Refused => {
                LOOK_WITHOUT_MESSAGES + jitter(LOOK_WITHOUT_MESSAGES)
            }
            Some(ttl) => ttl / 3,
            None => LOOK_AT_FOREIGN,
        };
        // One millisecond more: a key ends after its last millisecond.
        let end = busy
            .remaining
            .map(|remaining| remaining + Duration::from_millis(1));
        now + end.map_or(fallback, |end| end.min(fallback))
    }

    fn look_up_holder_at(&self) -> Option<Moment> {
        let in_the_way = self.in_the_way.as_ref()?;
        let of_tenure = in_the_way.busy.holder.is_tenure();
        (of_tenure && !in_the_way.looked_up).then(|| in_the_way.since + LOOK_UP_HOLDER_AFTER)
    }

    /// Learns who the holder is, so that an error can name it.
    async fn look_up_holder(&mut self, waiter: &Waiter) {
        let Some(in_the_way) = &mut self.in_the_way else {
            return;
        };
        in_the_way.looked_up = true;
        let Some(client) = in_the_way.busy.holder.client() else {
            return;
        };
        let (core, limit) = (Arc::clone(&self.core), self.attempt_limit(waiter));
        let looking = async move { record::read(&core, Some(client), limit).await };
        let records = self.while_minding(looking).await;
        if let (Some(in_the_way), Ok(records)) = (&mut self.in_the_way, records) {
            in_the_way.holder.client = records.into_iter().next();
        }
    }

    async fn rest(&mut self, pause: Duration) {
        let clock = self.core.clock.clone();
        let rested = async move { clock.sleep_until(clock.now() + pause).await };
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
            self.end_waiters(now);
            if now >= until {
                return None;
            }
            let next_limit = self.limits.first().map_or(until, |(limit, _)| *limit);
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
            Message::Join(waiter) => self.add(waiter),
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
            Message::Share(owner) => {
                let head_owner = self.head.as_ref().and_then(|head| head.owner.as_ref());
                self.news.ask |= head_owner.is_some_and(|head| Arc::ptr_eq(head, &owner));
                self.serve_owner(&owner);
            }
        }
    }

    fn add(&mut self, waiter: Waiter) {
        self.joined_count += 1;
        let number = self.joined_count;
        if let Some(limit) = waiter.limit {
            // One whose limit has passed already is still asked for once, when it is its turn.
            self.limits
                .insert((limit.max(waiter.joined + FIRST_ASK_MIN), number));
        }
        self.queue.push_back((number, Some(waiter)));
    }

    /// The next one who still waits.
    fn next_waiter(&mut self) -> Option<Waiter> {
        while let Some((number, waiter)) = self.queue.pop_front() {
            let Some(waiter) = waiter else { continue };
            if let Some(limit) = waiter.limit {
                self.limits
                    .remove(&(limit.max(waiter.joined + FIRST_ASK_MIN), number));
            }
            if !waiter.reply.is_closed() {
                return Some(waiter);
            }
            self.length.fetch_sub(1, Ordering::Relaxed);
        }
        None
    }

    /// Ends those behind the head whose limit has passed.
    fn end_waiters(&mut self, now: Moment) {
        while let Some(&(limit, number)) = self.limits.first()
            && now >= limit
        {
            self.limits.pop_first();
            if let Ok(at) = self
                .queue
                .binary_search_by_key(&number, |(number, _)| *number)
                && let Some(waiter) = self.queue[at].1.take()
            {
                let error = self.too_late(&waiter, now);
                self.answer(waiter, Err(error));
            }
        }
    }

    /// Gives all waiters of an owner that holds the lock a guard of the same chain.
    fn serve_owner(&mut self, owner: &Arc<Holds>) {
        for at in 0..self.queue.len() {
            let waiter = self.queue[at].1.take_if(|waiter| {
                let theirs = waiter.owner.as_ref();
                theirs.is_some_and(|theirs| Arc::ptr_eq(theirs, owner))
            });
            let Some(waiter) = waiter else { continue };
            match owner.reenter(&waiter.wish) {
                Ok(None) => self.queue[at].1 = Some(waiter),
                Ok(Some(guard)) => self.answer(waiter, Ok(guard)),
                Err(error) => self.answer(waiter, Err(error)),
            }
        }
    }

    fn deliver(&mut self, waiter: Waiter, granted: Granted) {
        let closed = self.core.is_closed();
        if closed || waiter.reply.is_closed() {
            self.core.stats.cancelled();
            self.core.return_grant(&granted);
            // A caller that went away does not mind.
            let _ = waiter.reply.send(Err(Error::closed()));
            return;
        }
        let guard = take_up(waiter.client, waiter.owner.as_ref(), granted);
        // If the caller leaves at this moment, the guard is dropped here and releases.
        let _ = waiter.reply.send(Ok(guard));
        if let Some(owner) = waiter.owner {
            self.serve_owner(&owner);
        }
    }

    fn answer(&self, waiter: Waiter, result: Result<Guard>) {
        self.length.fetch_sub(1, Ordering::Relaxed);
        self.core.record_changed.notify_one();
        let _ = waiter.reply.send(result);
    }

    /// Takes the line away if nobody has joined meanwhile.
    fn leave_if_empty(&mut self) -> bool {
        let mut by_name = self.core.lines.by_name();
        let empty = self.inbox.is_empty();
        if empty {
            by_name.remove(&self.name);
        }
        empty
    }

    fn now(&self) -> Moment {
        self.core.clock.now()
    }
}

/// Makes a grant a guard that its owner knows of.
pub(crate) fn take_up(client: Arc<Client>, owner: Option<&Arc<Holds>>, granted: Granted) -> Guard {
    let hold = Arc::new(Hold::new(client, granted));
    if let Some(owner) = owner {
        owner.remember(&hold);
    }
    Guard::new(hold)
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(rand::random::<f64>())
}
