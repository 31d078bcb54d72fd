//! Those who wait for one name in this process, in the order of arrival.
//!
//! Shared between threads: callers join and leave by themselves, a holder hands off to the first,
//! and the line's task on the engine brings the first its lock from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::QueueMessage;
use super::task::ATTEMPT_MIN;
use crate::belief::Belief;
use crate::core::ClientHandle;
use crate::engine::attempt::{AcquireRequest, Acquisition};
use crate::error::Result;
use crate::guard::Guard;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::owner::Holds;

/// How many at the head of the store's queue look after it though no message comes. Several: some of
/// them may be dead.
const NEAR_HEAD: u64 = 4;

/// A caller that waits.
pub(crate) struct Waiter {
    pub(crate) client: Arc<ClientHandle>,
    pub(crate) request: AcquireRequest,
    pub(crate) owner: Option<Arc<Holds>>,
    pub(crate) joined: Moment,
    /// Until when it wants to wait for a holder.
    pub(crate) limit: Option<Moment>,
    /// What it has asked for already.
    pub(crate) started: StartedAcquisition,
    pub(crate) reply: oneshot::Sender<Result<Guard>>,
}

/// An acquisition that its caller began. Unless the line goes on with it, nothing of it is left
/// behind.
pub(crate) struct StartedAcquisition {
    client: Arc<ClientHandle>,
    acquisition: Option<Box<Acquisition>>,
    /// Whether the store said that the lock is busy.
    pub(in crate::engine) found_busy: bool,
}

/// The waiters of one name, and how to reach the task that serves them.
pub(crate) struct LocalQueue {
    waiters: Mutex<Waiters>,
    inbox: mpsc::UnboundedSender<QueueMessage>,
}

/// A queue whose members may leave from the middle, and by their limits.
#[derive(Default)]
pub(in crate::engine) struct Waiters {
    /// By number, which only grows: so this is the order of arrival.
    by_number: BTreeMap<u64, Waiter>,
    limits: BTreeSet<(Moment, u64)>,
    /// Where the line stands in the store's queue, or asks to.
    pub(in crate::engine) queued_as: Option<LeaseId>,
    /// Whether the store has said that it stands there.
    pub(in crate::engine) is_queued: bool,
    /// How many stand there before it, if that is known.
    ahead: Option<u64>,
    /// Since when the lock may be nobody's, if a release was begun here or heard of. Only measured.
    pub(in crate::engine) idle_since: Option<Moment>,
    /// When the line looks next by itself; never while it knows of nobody.
    pub(in crate::engine) wakes_at: Option<Moment>,
}

impl StartedAcquisition {
    pub(crate) fn new(
        client: &Arc<ClientHandle>,
        acquisition: Option<Acquisition>,
        found_busy: bool,
    ) -> Self {
        Self {
            client: Arc::clone(client),
            acquisition: acquisition.map(Box::new),
            found_busy,
        }
    }
}

impl Drop for StartedAcquisition {
    fn drop(&mut self) {
        if let Some(mut acquisition) = self.acquisition.take()
            && acquisition.needs_cleanup()
        {
            let core = Arc::clone(&self.client.core);
            let pending = core.pending.begin();
            self.client.engine.spawn(async move {
                acquisition.abandon(&core).await;
                drop(pending);
            });
        }
    }
}

impl LocalQueue {
    pub(in crate::engine) fn new(inbox: mpsc::UnboundedSender<QueueMessage>) -> Arc<Self> {
        Arc::new(Self {
            waiters: Mutex::default(),
            inbox,
        })
    }

    /// A std mutex: nothing is awaited while it is held, and no guard is dropped, because that
    /// may hand off and come back here.
    pub(in crate::engine) fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::engine) fn send(&self, message: QueueMessage) {
        // If its task failed, the next one to join begins another.
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
    /// Takes a waiter in; true if the line must be told, because it would look too late by itself.
    pub(in crate::engine) fn join(&mut self, number: u64, waiter: Waiter) -> bool {
        let limit = limit(&waiter);
        self.limits.extend(limit.map(|limit| (limit, number)));
        self.by_number.insert(number, waiter);
        match self.wakes_at {
            None => true,
            Some(wakes_at) => limit.is_some_and(|limit| limit < wakes_at),
        }
    }

    /// Where the line stands in the store's queue, if the store has said so.
    pub(in crate::engine) fn queued(&self) -> Option<&LeaseId> {
        self.queued_as.as_ref().filter(|_| self.is_queued)
    }

    /// Takes note of how many stand before the line in the store's queue, or that nobody knows.
    pub(in crate::engine) fn set_ahead(&mut self, ahead: Option<u64>) {
        self.ahead = ahead;
    }

    /// Takes note that the lock went to another one of that queue.
    pub(in crate::engine) fn advance(&mut self) {
        self.ahead = self.ahead.map(|ahead| ahead.saturating_sub(1));
    }

    /// Whether so many stand before the line that looking after the lock is theirs to do.
    pub(in crate::engine) fn is_far_behind(&self) -> bool {
        self.ahead.is_some_and(|ahead| ahead >= NEAR_HEAD)
    }

    /// Whether the line is known to be one of those who look after the lock.
    pub(in crate::engine) fn is_near_head(&self) -> bool {
        self.ahead.is_some_and(|ahead| ahead < NEAR_HEAD)
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Whose turn it is, and its number. One whose caller has gone away is as good as gone itself,
    /// though word of it may come later.
    pub(in crate::engine) fn first(&self) -> Option<(u64, &Waiter)> {
        let here = |(_, waiter): &(&u64, &Waiter)| !waiter.reply.is_closed();
        let first = self.by_number.iter().find(here);
        first.map(|(number, waiter)| (*number, waiter))
    }

    /// Takes out the one with this number, if it is here.
    pub(in crate::engine) fn leave(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.by_number.remove(&number)?;
        if let Some(limit) = limit(&waiter) {
            self.limits.remove(&(limit, number));
        }
        Some(waiter)
    }

    /// Takes out one whose limit has passed, other than the one that is being served.
    pub(in crate::engine) fn take_expired(
        &mut self,
        now: Moment,
        served: Option<u64>,
    ) -> Option<Waiter> {
        let mut limits = self.limits.iter();
        let &(limit, number) = limits.find(|(_, number)| Some(*number) != served)?;
        (now >= limit).then(|| self.leave(number)).flatten()
    }

    /// The numbers of all waiters of one owner.
    pub(in crate::engine) fn numbers_of(&self, owner: &Arc<Holds>) -> Vec<u64> {
        let is_theirs = |waiter: &Waiter| {
            let theirs = waiter.owner.as_ref();
            theirs.is_some_and(|theirs| Arc::ptr_eq(theirs, owner))
        };
        let all = self.by_number.iter();
        let theirs = all.filter(|(_, waiter)| is_theirs(waiter));
        theirs.map(|(number, _)| *number).collect()
    }

    pub(in crate::engine) fn get(&self, number: u64) -> Option<&Waiter> {
        self.by_number.get(&number)
    }

    /// What a waiter has asked for already: the line goes on with it.
    pub(in crate::engine) fn take_started(&mut self, number: u64) -> Option<Acquisition> {
        let started = self.by_number.get_mut(&number)?.started.acquisition.take();
        started.map(|acquisition| *acquisition)
    }

    /// When the next limit passes, but for the one that is being served.
    pub(in crate::engine) fn next_deadline(&self, served: Option<u64>) -> Option<Moment> {
        let mut limits = self.limits.iter();
        let next = limits.find(|(_, number)| Some(*number) != served);
        next.map(|(limit, _)| *limit)
    }
}

/// One whose limit has passed already is still asked for once, if it is its turn soon.
fn limit(waiter: &Waiter) -> Option<Moment> {
    waiter
        .limit
        .map(|limit| limit.max(waiter.joined + ATTEMPT_MIN))
}
