//! The waiting callers of one lock name in this process, in order of arrival.
//!
//! Shared between threads: callers join and leave on their own, a holder hands off to the first,
//! and the queue's task on the engine acquires the lock for the first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::queue_message::QueueMessage;
use crate::belief::Belief;
use crate::engine::attempt::{AcquireRequest, Acquisition, StartedAcquisition};
use crate::error::Error;
use crate::lease::LeaseId;
use crate::mode::Mode;
use crate::moment::Moment;

/// The minimum time for an attempt, however soon the caller's limit is: a limit of zero means
/// to try once, and a server without time to reply is not unavailable.
pub(super) const ATTEMPT_MIN: Duration = Duration::from_millis(100);
/// How many waiters at the head of the store's queue poll without a message. Several, because some
/// may be dead.
const NEAR_HEAD: u64 = 4;

/// A waiting caller.
pub(crate) struct Waiter {
    pub(crate) request: AcquireRequest,
    pub(crate) joined: Moment,
    /// How long it waits for a holder.
    pub(crate) limit: Option<Moment>,
    /// The acquisition that the caller has started already.
    pub(crate) started: StartedAcquisition,
    pub(crate) caller: Box<dyn Caller>,
}

/// Who waits, and gets the reply.
pub(crate) trait Caller: Send {
    /// Whether it went away.
    fn is_gone(&self) -> bool;

    /// Gives it a lease that the watchdog does not track yet. If the caller goes away at this
    /// moment, the lease is released or handed off.
    fn grant(self: Box<Self>, belief: Arc<Belief>);

    /// As [`grant`](Self::grant), with a lease that the watchdog tracks already.
    fn grant_tracked(self: Box<Self>, belief: Arc<Belief>);

    fn fail(self: Box<Self>, error: Error);
}

/// The waiters of one name, and the channel to the task that serves them.
pub(crate) struct LocalQueue {
    waiters: Mutex<Waiters>,
    inbox: mpsc::UnboundedSender<QueueMessage>,
}

/// A queue whose members may also leave from the middle, or by their limits.
#[derive(Default)]
pub(in crate::engine) struct Waiters {
    /// By number, which only grows, so this is the order of arrival. Boxed: a tree that grows at its end
    /// has half-empty nodes.
    by_number: BTreeMap<u64, Box<Waiter>>,
    limits: BTreeSet<(Moment, u64)>,
    /// The lease id under which this process is, or asks to be, in the store's queue.
    pub(in crate::engine) queued_as: Option<LeaseId>,
    /// Whether the store has confirmed that.
    pub(in crate::engine) is_queued: bool,
    /// How many are ahead of us there, if known.
    ahead: Option<u64>,
    /// Since when the lock may be idle, if a release started here or was published. Only for the
    /// timings.
    pub(in crate::engine) idle_since: Option<Moment>,
    /// When the task wakes up by itself; `None` while it has no waiter.
    pub(in crate::engine) wakes_at: Option<Moment>,
}

impl LocalQueue {
    pub(in crate::engine) fn new(inbox: mpsc::UnboundedSender<QueueMessage>) -> Arc<Self> {
        Arc::new(Self {
            waiters: Mutex::default(),
            inbox,
        })
    }

    /// A std mutex: never held across an await, and no guard is dropped while it is held, because
    /// that may hand off and lock it again.
    pub(in crate::engine) fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::engine) fn send(&self, message: QueueMessage) {
        // If its task panicked, the next caller to join starts another.
        let _ = self.inbox.send(message);
    }

    /// Removes the first waiter and returns it, if this lease is what it asked for.
    pub(in crate::engine) fn take_first_matching(&self, belief: &Belief) -> Option<Waiter> {
        let mut waiters = self.waiters();
        let (number, first) = waiters.first()?;
        let fits = first.request.is_met_by(belief);
        fits.then(|| waiters.leave(number)).flatten()
    }

    pub(in crate::engine) fn is_dead(&self) -> bool {
        self.inbox.is_closed()
    }
}

impl Waiters {
    /// Adds a waiter. True if the task needs a message, because it would wake up too late by
    /// itself.
    pub(in crate::engine) fn join(&mut self, number: u64, waiter: Waiter) -> bool {
        let limit = limit(&waiter);
        self.limits.extend(limit.map(|limit| (limit, number)));
        self.by_number.insert(number, Box::new(waiter));
        match self.wakes_at {
            None => true,
            Some(wakes_at) => limit.is_some_and(|limit| limit < wakes_at),
        }
    }

    /// Our place in the store's queue, if the store has confirmed it.
    pub(in crate::engine) fn queued(&self) -> Option<&LeaseId> {
        self.queued_as.as_ref().filter(|_| self.is_queued)
    }

    /// Notes how many are ahead of us in the store's queue, or that this is unknown.
    pub(in crate::engine) fn set_ahead(&mut self, ahead: Option<u64>) {
        self.ahead = ahead;
    }

    /// Notes that the lock went to a waiter ahead of us.
    pub(in crate::engine) fn advance(&mut self) {
        self.ahead = self.ahead.map(|ahead| ahead.saturating_sub(1));
    }

    /// Whether so many are ahead of us that polling the lock is their job.
    pub(in crate::engine) fn is_far_behind(&self) -> bool {
        self.ahead.is_some_and(|ahead| ahead >= NEAR_HEAD)
    }

    /// Whether we are known to be one of those who poll.
    pub(in crate::engine) fn is_near_head(&self) -> bool {
        self.ahead.is_some_and(|ahead| ahead < NEAR_HEAD)
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The first waiter and its number. A caller that went away counts as gone even before its
    /// message arrives.
    pub(in crate::engine) fn first(&self) -> Option<(u64, &Waiter)> {
        let mut waiters = self.by_number.iter();
        let first = waiters.find(|(_, waiter)| !waiter.caller.is_gone());
        first.map(|(number, waiter)| (*number, &**waiter))
    }

    /// Whether a waiter that came before this number wants the lock alone.
    pub(in crate::engine) fn has_writer_before(&self, number: Option<u64>) -> bool {
        let before = self.by_number.range(..number.unwrap_or(u64::MAX));
        let mut modes = before.map(|(_, waiter)| waiter.request.mode);
        modes.any(|mode| mode == Mode::Exclusive)
    }

    /// Removes the waiter with this number, if it is here.
    pub(in crate::engine) fn leave(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.by_number.remove(&number)?;
        if let Some(limit) = limit(&waiter) {
            self.limits.remove(&(limit, number));
        }
        Some(*waiter)
    }

    /// Removes a waiter whose limit has passed, other than the one being served.
    pub(in crate::engine) fn take_expired(
        &mut self,
        now: Moment,
        served: Option<u64>,
    ) -> Option<Waiter> {
        let mut limits = self.limits.iter();
        let &(limit, number) = limits.find(|(_, number)| Some(*number) != served)?;
        (now >= limit).then(|| self.leave(number)).flatten()
    }

    /// The acquisition that a waiter has started: the task continues it.
    pub(in crate::engine) fn take_started(&mut self, number: u64) -> Option<Acquisition> {
        self.by_number.get_mut(&number)?.started.take()
    }

    /// When the next limit passes, except that of the waiter being served.
    pub(in crate::engine) fn next_deadline(&self, served: Option<u64>) -> Option<Moment> {
        let mut limits = self.limits.iter();
        let next = limits.find(|(_, number)| Some(*number) != served);
        next.map(|(limit, _)| *limit)
    }
}

/// A waiter whose limit has passed already still gets one attempt, if its turn comes soon.
fn limit(waiter: &Waiter) -> Option<Moment> {
    waiter
        .limit
        .map(|limit| limit.max(waiter.joined + ATTEMPT_MIN))
}
