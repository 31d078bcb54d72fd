//! The watchdog: renews what is held, and tells the holder when it is lost.
//!
//! One task for all leases of a client. It sleeps until the next lease needs something: a renewal
//! at a third of its ttl, a look whether it is still there, its deadline, its longest hold.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::belief::Belief;
use crate::core::Core;
use crate::guard::LostReason;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Failure, NotHeld, Renewed, Watched};

/// A lease of this age is watched: the store tells when its key changes. Most locks are held for
/// less, and cost nothing more.
const WATCH_AFTER: Duration = Duration::from_secs(1);
/// How long to wait after a failed renewal: a tenth of what is left, within these bounds.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// The way to reach the watchdog.
pub(crate) struct Watchdog {
    messages: mpsc::UnboundedSender<Message>,
}

pub(crate) enum Message {
    LookAfter(u64),
    /// Somebody needs it renewed now, and waits for that.
    RenewNow(u64, oneshot::Sender<()>),
    /// The key at this name changed.
    Changed(LockName),
    /// Changes may have been missed.
    Missed,
    /// A renewal or a look is done.
    Done(u64, Done),
}

pub(crate) enum Done {
    Renewed(Result<Renewed, Failure>),
    Watched(Result<Watched, Failure>),
}

impl Watchdog {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (messages, receiver) = mpsc::unbounded_channel();
        (Self { messages }, receiver)
    }

    pub(crate) fn look_after(&self, number: u64) {
        self.send(Message::LookAfter(number));
    }

    pub(crate) fn changed(&self, name: LockName) {
        self.send(Message::Changed(name));
    }

    pub(crate) fn missed(&self) {
        self.send(Message::Missed);
    }

    /// Renews a lease now; returns when that was tried.
    pub(crate) async fn renew_now(&self, number: u64) {
        let (reply, done) = oneshot::channel();
        self.send(Message::RenewNow(number, reply));
        let _ = done.await;
    }

    fn send(&self, message: Message) {
        // The watchdog ends with the engine, and then nobody holds anything.
        let _ = self.messages.send(message);
    }
}

pub(crate) async fn run(core: Arc<Core>, mut messages: mpsc::UnboundedReceiver<Message>) {
    let mut watch = Watch {
        core: Arc::clone(&core),
        leases: HashMap::new(),
        schedule: BTreeSet::new(),
    };
    loop {
        watch.act(core.clock.now());
        let next = watch.schedule.first().map(|(at, _)| *at);
        let sleep = async {
            match next {
                Some(at) => core.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            message = messages.recv() => match message {
                Some(message) => watch.take(message),
                None => return,
            },
            () = sleep => {}
        }
    }
}

struct Watch {
    core: Arc<Core>,
    leases: HashMap<u64, Care>,
    /// When each lease needs something next, the earliest first.
    schedule: BTreeSet<(Moment, u64)>,
}

/// What the watchdog knows of one lease.
struct Care {
    belief: Arc<Belief>,
    scheduled: Moment,
    renew_at: Option<Moment>,
    watch_at: Option<Moment>,
    /// Whether the store will tell when the key changes.
    watched: bool,
    renewing: bool,
    watching: bool,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Care {
    fn new(belief: Arc<Belief>) -> Self {
        let renew_at = belief.acquired_at + belief.held.ttl / 3;
        Self {
            scheduled: belief.acquired_at,
            renew_at: belief.renewed.then_some(renew_at),
            watch_at: Some(belief.acquired_at + WATCH_AFTER),
            watched: false,
            renewing: false,
            watching: false,
            waiting: Vec::new(),
            belief,
        }
    }

    /// When this lease needs something next.
    fn next(&self) -> Moment {
        let deadline = self.belief.deadline();
        let others = [
            self.renew_at.filter(|_| !self.renewing),
            self.watch_at.filter(|_| !self.watching),
            self.belief.max_hold_at(),
        ];
        others.into_iter().flatten().fold(deadline, Moment::min)
    }

    fn lost_by(&self, now: Moment) -> Option<LostReason> {
        if now >= self.belief.deadline() {
            return Some(LostReason::Expired);
        }
        let max_hold_at = self.belief.max_hold_at();
        max_hold_at
            .is_some_and(|at| now >= at)
            .then_some(LostReason::MaxHold)
    }
}

impl Watch {
    /// Does everything that is due, the earliest first.
    fn act(&mut self, now: Moment) {
        while let Some(&(at, number)) = self.schedule.first()
            && at <= now
        {
            self.act_on(number, now);
        }
    }

    fn act_on(&mut self, number: u64, now: Moment) {
        let Some(mut care) = self.take_out(number) else {
            return;
        };
        if self.core.belief(number).is_none() {
            return; // Released meanwhile.
        }
        if let Some(reason) = care.lost_by(now) {
            return self.lose(&care, reason);
        }
        if care.renew_at.is_some_and(|at| at <= now) && !care.renewing {
            care.renewing = true;
            self.renew(&care);
        }
        if care.watch_at.is_some_and(|at| at <= now) && !care.watching {
            care.watching = true;
            care.watch_at = None;
            self.look(&care);
        }
        self.put_back(care);
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::LookAfter(number) => {
                if let Some(belief) = self.core.belief(number) {
                    self.put_back(Care::new(belief));
                }
            }
            Message::RenewNow(number, waiting) => self.change(number, |care, now| {
                care.renew_at = Some(now);
                care.waiting.push(waiting);
            }),
            Message::Changed(name) => {
                for number in self.numbers(|care| care.belief.held.name == name) {
                    self.change(number, Care::look_now);
                }
            }
            Message::Missed => {
                for number in self.numbers(|care| care.watched) {
                    self.change(number, Care::look_now);
                }
            }
            Message::Done(number, Done::Renewed(result)) => self.renewed(number, result),
            Message::Done(number, Done::Watched(result)) => self.looked(number, result),
        }
    }

    fn renewed(&mut self, number: u64, result: Result<Renewed, Failure>) {
        let Some(mut care) = self.take_out(number) else {
            return;
        };
        care.renewing = false;
        // Dropped when the belief tells what came of it: that is what they wait for.
        let _waiting = std::mem::take(&mut care.waiting);
        let belief = &care.belief;
        match result {
            Ok(Renewed::Until { sent_at }) => {
                self.core.stats.renewed();
                belief.extend(sent_at, self.core.clock.now());
                care.renew_at = Some(sent_at + belief.held.ttl / 3);
            }
            Ok(Renewed::NotHeld(not_held)) => {
                return self.lose(&care, reason(&not_held));
            }
            Err(failure) => {
                self.core.stats.renewal_failed();
                belief.doubt();
                let now = self.core.clock.now();
                let left = belief.deadline().saturating_since(now);
                tracing::warn!(
                    lock = %belief.held.name, error = %failure.error, ?left,
                    "lock.suspect: renewal failed"
                );
                care.renew_at = Some(now + (left / 10).clamp(RETRY_MIN, RETRY_MAX));
            }
        }
        self.put_back(care);
    }

    fn looked(&mut self, number: u64, result: Result<Watched, Failure>) {
        let Some(mut care) = self.take_out(number) else {
            return;
        };
        care.watching = false;
        match result {
            Ok(Watched::Held) => care.watched = true,
            Ok(Watched::NotHeld(not_held)) => {
                return self.lose(&care, reason(&not_held));
            }
            // Renewals go on by themselves; whether the lease can be watched is tried again.
            Err(_) => care.watch_at = Some(self.core.clock.now() + WATCH_AFTER),
        }
        self.put_back(care);
    }

    fn lose(&self, care: &Care, reason: LostReason) {
        let belief = &care.belief;
        // A lease that was released meanwhile is not lost.
        if self.core.belief(belief.number).is_some() && belief.lose(reason) {
            self.core.stats.lost();
            tracing::error!(
                lock = %belief.held.name, lease = %belief.held.id, fence = %belief.fence, %reason,
                "lock.lost"
            );
        }
    }

    fn renew(&self, care: &Care) {
        let (core, belief, watched) = (
            Arc::clone(&self.core),
            Arc::clone(&care.belief),
            care.watched,
        );
        // A task each: an answer that does not come must not hold up the others. They share the
        // connection, and so the writes.
        tokio::spawn(async move {
            let limit = belief.deadline();
            let result = core.store.renew(&belief.held, watched, limit).await;
            let done = Message::Done(belief.number, Done::Renewed(result));
            core.watchdog.send(done);
        });
    }

    fn look(&self, care: &Care) {
        let (core, belief) = (Arc::clone(&self.core), Arc::clone(&care.belief));
        tokio::spawn(async move {
            let limit = belief.deadline();
            let result = core.store.watch(&belief.held, limit).await;
            let done = Message::Done(belief.number, Done::Watched(result));
            core.watchdog.send(done);
        });
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Care, Moment)) {
        let now = self.core.clock.now();
        if let Some(mut care) = self.take_out(number) {
            change(&mut care, now);
            self.put_back(care);
        }
    }

    fn numbers(&self, wanted: impl Fn(&Care) -> bool) -> Vec<u64> {
        let wanted = self.leases.iter().filter(|(_, care)| wanted(care));
        wanted.map(|(number, _)| *number).collect()
    }

    fn take_out(&mut self, number: u64) -> Option<Care> {
        let care = self.leases.remove(&number)?;
        self.schedule.remove(&(care.scheduled, number));
        Some(care)
    }

    fn put_back(&mut self, mut care: Care) {
        care.scheduled = care.next();
        let number = care.belief.number;
        self.schedule.insert((care.scheduled, number));
        self.leases.insert(number, care);
    }
}

impl Care {
    fn look_now(&mut self, now: Moment) {
        self.watched = false;
        self.watch_at = Some(now);
    }
}

fn reason(not_held: &NotHeld) -> LostReason {
    match not_held.taken_by {
        Some(_) => LostReason::Taken,
        None => LostReason::Gone,
    }
}
