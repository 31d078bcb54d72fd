//! The local queues of a client: one per lock name with waiting callers.
//!
//! Callers of one process queue up here first; only the head of each local queue takes part in the
//! store's queue. `task.rs` serves one name, `sleep.rs` is how it waits, `messages.rs` what wakes
//! it, `ask.rs` how it asks a client that keeps the lock, `waiters.rs` the waiting callers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use self::task::QueueTask;
pub(crate) use self::waiters::{Caller, LocalQueue, Waiter};
use crate::core::Core;
use crate::engine::Engine;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{OfferedGrant, QueuedWaiter};

mod ask;
mod messages;
mod sleep;
mod task;
mod waiters;

/// A caller's entry in a local queue. Dropping it removes the caller.
pub(crate) struct QueueEntry {
    core: Arc<Core>,
    queue: Arc<LocalQueue>,
    number: u64,
    left: bool,
}

impl QueueEntry {
    /// The caller got its reply, and has left the queue already.
    pub(crate) fn answered(mut self) {
        self.left = true;
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let left = self.queue.waiters().leave(self.number);
        if left.is_some() {
            self.core.record_changed.notify_one();
            // If it was being served, the task must serve the next one.
            self.queue.send(QueueMessage::Left);
        }
    }
}

/// Permission to try the fast path: at most one caller per name has it.
pub(crate) struct FastPathPermit<'a> {
    queues: &'a LocalQueues,
    name: &'a LockName,
}

impl Drop for FastPathPermit<'_> {
    fn drop(&mut self) {
        self.queues.registry().on_fast_path.remove(self.name);
    }
}

/// All local queues of a client, by name.
#[derive(Default)]
pub(crate) struct LocalQueues {
    registry: Mutex<Registry>,
    /// Numbers are never reused, not even by the next queue for the same name.
    arrivals: AtomicU64,
    /// A queue has joined the store's queue.
    queued: Notify,
}

#[derive(Default)]
struct Registry {
    queues: HashMap<LockName, Arc<LocalQueue>>,
    /// Names that a caller is trying on the fast path.
    on_fast_path: HashSet<LockName>,
}

/// Messages to the task of a queue.
pub(super) enum QueueMessage {
    /// A caller joined whose limit comes before the task would wake up by itself.
    Joined,
    /// A caller left.
    Left,
    /// Our place in the store's queue was given up together with a release.
    LeftStoreQueue,
    /// Our place in the store's queue is gone, because heartbeats were missing for too long.
    LostStorePlace(LeaseId),
    /// The lock was offered to this lease, perhaps with a grant.
    Offered(LeaseId, Option<OfferedGrant>),
    /// The lock is free, and perhaps this waiter is next.
    Opened(Option<LeaseId>),
    /// The lock is reserved for the next waiter for this long only.
    ShortOffer(Duration),
    /// Try again: messages may have been lost.
    Retry,
    Close,
}

impl LocalQueues {
    /// The number of a caller that arrives now: lower numbers are served first.
    pub(crate) fn next_number(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets a caller try the fast path, unless another caller of this process waits for the name or
    /// tries it: of a thundering herd, one asks the store.
    pub(crate) fn try_fast_path<'a>(&'a self, name: &'a LockName) -> Option<FastPathPermit<'a>> {
        let mut registry = self.registry();
        let queue = registry.queues.get(name);
        let waited_for = queue.is_some_and(|queue| queue.waiters().len() > 0);
        if waited_for || !registry.on_fast_path.insert(name.clone()) {
            return None;
        }
        Some(FastPathPermit { queues: self, name })
    }

    /// Whether a caller of this process waits for the name.
    pub(super) fn is_waited_for(&self, name: &LockName) -> bool {
        let registry = self.registry();
        let queue = registry.queues.get(name);
        queue.is_some_and(|queue| queue.waiters().len() > 0)
    }

    /// Whether a caller of this process that came before the one with this number, or before a new one,
    /// waits to hold the lock alone.
    pub(crate) fn is_behind_writer(&self, name: &LockName, number: Option<u64>) -> bool {
        let registry = self.registry();
        let queue = registry.queues.get(name);
        queue.is_some_and(|queue| queue.waiters().has_writer_before(number))
    }

    /// Adds a waiter to the queue for its name.
    pub(crate) fn join(
        &self,
        client: (&Arc<Core>, &Engine),
        number: u64,
        waiter: Waiter,
    ) -> QueueEntry {
        let mut registry = self.registry();
        let name = &waiter.request.name;
        let queue = Arc::clone(Self::queue_for(&mut registry.queues, client, name));
        let needs_message = queue.waiters().join(number, waiter);
        if needs_message {
            queue.send(QueueMessage::Joined);
        }
        drop(registry);
        let core = Arc::clone(client.0);
        core.record_changed.notify_one();
        QueueEntry {
            core,
            queue,
            number,
            left: false,
        }
    }

    pub(super) fn queue(&self, name: &LockName) -> Option<Arc<LocalQueue>> {
        self.registry().queues.get(name).cloned()
    }

    pub(crate) fn offered(
        &self,
        name: &LockName,
        offered_to: LeaseId,
        grant: Option<OfferedGrant>,
    ) {
        self.send(name, QueueMessage::Offered(offered_to, grant));
    }

    /// A release of this lock has started. Remembered for the timings of the next holder.
    pub(crate) fn release_started(&self, name: &LockName, now: Moment) {
        if let Some(queue) = self.queue(name) {
            let mut waiters = queue.waiters();
            waiters.idle_since = (waiters.len() > 0).then_some(now);
        }
    }

    /// There was nothing to release.
    pub(crate) fn release_found_nothing(&self, name: &LockName) {
        if let Some(queue) = self.queue(name) {
            queue.waiters().idle_since = None;
        }
    }

    /// The lock is reserved for the next waiter for this long only.
    pub(crate) fn short_offer(&self, name: &LockName, lasts: Duration) {
        self.send(name, QueueMessage::ShortOffer(lasts));
    }

    pub(crate) fn opened(&self, name: &LockName, next: Option<LeaseId>) {
        self.send(name, QueueMessage::Opened(next));
    }

    /// Our place in the store's queue was given up. Sent afterwards: a caller that joined meanwhile
    /// may have taken that place again before it was given up.
    pub(crate) fn left_store_queue(&self, name: &LockName) {
        self.send(name, QueueMessage::LeftStoreQueue);
    }

    /// Our places in the store's queues, as far as the store has confirmed them.
    pub(super) fn queued_waiters(&self) -> Vec<QueuedWaiter> {
        let registry = self.registry();
        let place = |(name, queue): (&LockName, &Arc<LocalQueue>)| {
            let id = queue.waiters().queued().cloned()?;
            let name = name.clone();
            Some(QueuedWaiter { name, id })
        };
        registry.queues.iter().filter_map(place).collect()
    }

    /// A queue has joined the store's queue and needs heartbeats from now on.
    pub(super) fn notify_queued(&self) {
        self.queued.notify_one();
    }

    /// Waits for [`notify_queued`](LocalQueues::notify_queued).
    pub(super) async fn wait_until_queued(&self) {
        self.queued.notified().await;
    }

    /// The store no longer has this place in its queue, although the task relies on it.
    pub(super) fn lost_store_place(&self, place: QueuedWaiter) {
        self.send(&place.name, QueueMessage::LostStorePlace(place.id));
    }

    pub(crate) fn retry(&self, name: &LockName) {
        self.send(name, QueueMessage::Retry);
    }

    pub(crate) fn retry_all(&self) {
        for queue in self.registry().queues.values() {
            queue.send(QueueMessage::Retry);
        }
    }

    pub(crate) fn close_all(&self) {
        for queue in self.registry().queues.values() {
            queue.send(QueueMessage::Close);
        }
    }

    /// How many callers wait, by name.
    pub(crate) fn lengths(&self) -> Vec<(LockName, usize)> {
        let length =
            |(name, queue): (&LockName, &Arc<LocalQueue>)| (name.clone(), queue.waiters().len());
        self.registry().queues.iter().map(length).collect()
    }

    /// Whether a lost message would delay a caller: one near the head of a queue, or one that does
    /// not know its position.
    pub(crate) fn needs_messages(&self) -> bool {
        let attends = |queue: &Arc<LocalQueue>| {
            let waiters = queue.waiters();
            waiters.len() > 0 && !waiters.is_far_behind()
        };
        self.registry().queues.values().any(attends)
    }

    /// Removes a queue, unless a caller has joined meanwhile.
    pub(super) fn close(&self, name: &LockName) -> bool {
        let queues = &mut self.registry().queues;
        let empty = queues
            .get(name)
            .is_none_or(|queue| queue.waiters().len() == 0);
        if empty {
            queues.remove(name);
        }
        empty
    }

    fn queue_for<'a>(
        queues: &'a mut HashMap<LockName, Arc<LocalQueue>>,
        (core, engine): (&Arc<Core>, &Engine),
        name: &LockName,
    ) -> &'a Arc<LocalQueue> {
        if queues.get(name).is_some_and(|queue| queue.is_dead()) {
            // Its task panicked, which must not block the name forever.
            queues.remove(name);
        }
        queues.entry(name.clone()).or_insert_with(|| {
            let (inbox, messages) = mpsc::unbounded_channel();
            let queue = LocalQueue::new(inbox);
            let line = QueueTask::new(Arc::clone(core), name.clone(), Arc::clone(&queue), messages);
            engine.spawn(line.run());
            queue
        })
    }

    fn send(&self, name: &LockName, message: QueueMessage) {
        if let Some(queue) = self.queue(name) {
            queue.send(message);
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
