//! The local queues of a client: one per lock name with waiting callers.
//!
//! Callers of one process queue up here first; only the head of each local queue takes part in the
//! store's queue. `task.rs` serves one name, `sleep.rs` is how it waits, `messages.rs` what wakes
//! it, `ask.rs` how it asks a client that keeps the lock, `waiters.rs` the waiting callers. Those that
//! are served strictly in order have a queue and a task each: `fair.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use self::fair::FairQueues;
pub(super) use self::queue_message::QueueMessage;
use self::task::QueueTask;
pub(crate) use self::waiters::{Caller, LocalQueue, Waiter};
use crate::core::Core;
use crate::engine::Engine;
use crate::lease::{ClientId, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{OfferedGrant, QueuedWaiter};

mod ask;
mod fair;
mod messages;
mod queue_message;
mod sleep;
mod task;
mod waiters;

/// How many callers that are served in order are told what happens to the lock. The others would only
/// wake up: a message to each of ten thousand would cost more than the hand-over.
const TOLD: usize = 4;

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
    fair: FairQueues<Arc<LocalQueue>>,
    /// Names that a caller is trying on the fast path.
    on_fast_path: HashSet<LockName>,
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
        if registry.is_waited_for(name) || !registry.on_fast_path.insert(name.clone()) {
            return None;
        }
        Some(FastPathPermit { queues: self, name })
    }

    /// Whether a caller of this process waits for the name.
    pub(super) fn is_waited_for(&self, name: &LockName) -> bool {
        self.registry().is_waited_for(name)
    }

    /// Whether a caller of this process waits for the name that only the store may serve.
    pub(super) fn is_waited_for_in_order(&self, name: &LockName) -> bool {
        self.registry().fair.has_before(name, None)
    }

    /// Whether a caller of this process that came before the one with this number, or before a new one,
    /// waits to hold the lock alone.
    pub(crate) fn is_behind_writer(&self, name: &LockName, number: Option<u64>) -> bool {
        let registry = self.registry();
        let queue = registry.queues.get(name);
        queue.is_some_and(|queue| queue.waiters().has_writer_before(number))
            || registry.fair.has_before(name, number)
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
        let is_alone = waiter.request.is_in_order() && !bug(Bug::FairSharesAPlace);
        let queue = if is_alone {
            let queue = start_queue(client, name, Some(number));
            registry.fair.insert(name, number, Arc::clone(&queue));
            queue
        } else {
            Arc::clone(Self::queue_for(&mut registry.queues, client, name))
        };
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
        client: ClientId,
        name: &LockName,
        offered_to: LeaseId,
        grant: Option<OfferedGrant>,
    ) {
        let registry = self.registry();
        let message = QueueMessage::Offered(offered_to.clone(), grant);
        if offered_to.client() == Some(client) && registry.tell(name, &offered_to, message.clone())
        {
            // The others learn only that the lock is another's.
            registry.tell_plain(name, QueueMessage::Offered(offered_to, None));
            return;
        }
        registry.tell_first(name, || message.clone());
        registry.tell_plain(name, message.clone());
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
        let registry = self.registry();
        registry.tell_first(name, || QueueMessage::ShortOffer(lasts));
        registry.tell_plain(name, QueueMessage::ShortOffer(lasts));
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
        let queues = registry.queues.iter().chain(registry.fair.all());
        queues.filter_map(place).collect()
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
        let QueuedWaiter { name, id } = place;
        let registry = self.registry();
        let message = QueueMessage::LostStorePlace(id.clone());
        if !registry.tell(&name, &id, message) {
            registry.tell_plain(&name, QueueMessage::LostStorePlace(id));
        }
    }

    pub(crate) fn retry(&self, name: &LockName) {
        let registry = self.registry();
        for queue in registry.fair.of_name(name) {
            queue.send(QueueMessage::Retry);
        }
        registry.tell_plain(name, QueueMessage::Retry);
    }

    pub(crate) fn retry_all(&self) {
        for queue in self.registry().all() {
            queue.send(QueueMessage::Retry);
        }
    }

    pub(crate) fn close_all(&self) {
        for queue in self.registry().all() {
            queue.send(QueueMessage::Close);
        }
    }

    /// How many callers wait, by name.
    pub(crate) fn lengths(&self) -> HashMap<LockName, usize> {
        let registry = self.registry();
        let mut lengths = HashMap::new();
        for (name, queue) in registry.queues.iter().chain(registry.fair.all()) {
            *lengths.entry(name.clone()).or_default() += queue.waiters().len();
        }
        lengths
    }

    /// Whether a lost message would delay a caller: one near the head of a queue, or one that does
    /// not know its position.
    pub(crate) fn needs_messages(&self) -> bool {
        let attends = |queue: &Arc<LocalQueue>| {
            let waiters = queue.waiters();
            waiters.len() > 0 && !waiters.is_far_behind()
        };
        self.registry().all().any(attends)
    }

    /// Removes a queue, unless a caller has joined meanwhile. With a number it is the queue of this caller
    /// alone.
    pub(super) fn close(&self, name: &LockName, number: Option<u64>) -> bool {
        let registry = &mut self.registry();
        if let Some(number) = number {
            let waits = |queue: &Arc<LocalQueue>| queue.waiters().len() > 0;
            return registry.fair.close(name, number, waits);
        }
        let queues = &mut registry.queues;
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
        queues
            .entry(name.clone())
            .or_insert_with(|| start_queue((core, engine), name, None))
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

impl Registry {
    /// Whether a caller waits for the name.
    fn is_waited_for(&self, name: &LockName) -> bool {
        let queue = self.queues.get(name);
        let waits = queue.is_some_and(|queue| queue.waiters().len() > 0);
        waits || self.fair.has_before(name, None)
    }

    /// Sends a message to the first of those that are served in order.
    fn tell_first(&self, name: &LockName, message: impl Fn() -> QueueMessage) {
        for queue in self.fair.of_name(name).take(TOLD) {
            queue.send(message());
        }
    }

    /// Sends a message to the caller that has this place, and is served in order. False if there is none.
    fn tell(&self, name: &LockName, place: &LeaseId, message: QueueMessage) -> bool {
        // The next is nearly always among the first.
        let mut queues = self.fair.of_name(name);
        let owner = queues.find(|queue| queue.waiters().queued_as.as_ref() == Some(place));
        owner.map(|owner| owner.send(message)).is_some()
    }

    /// Sends a message to the callers that share one place.
    fn tell_plain(&self, name: &LockName, message: QueueMessage) {
        if let Some(queue) = self.queues.get(name) {
            queue.send(message);
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<LocalQueue>> {
        let fair = self.fair.all().map(|(_, queue)| queue);
        self.queues.values().chain(fair)
    }
}

/// Starts a queue and the task that serves it; with a number, it is for this caller alone.
fn start_queue(
    (core, engine): (&Arc<Core>, &Engine),
    name: &LockName,
    number: Option<u64>,
) -> Arc<LocalQueue> {
    let (inbox, messages) = mpsc::unbounded_channel();
    let queue = LocalQueue::new(inbox);
    let core = Arc::clone(core);
    let line = QueueTask::new(core, name.clone(), (Arc::clone(&queue), messages), number);
    engine.spawn(line.run());
    queue
}
