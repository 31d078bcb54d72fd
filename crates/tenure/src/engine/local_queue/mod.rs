//! All lines of a client: how callers come to stand in one, and how word reaches it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use self::task::QueueTask;
pub(crate) use self::waiters::{LocalQueue, StartedAcquisition, Waiter};
use crate::core::Core;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::owner::Holds;
use crate::store::QueuedWaiter;

mod messages;
mod sleep;
mod task;
mod waiters;

/// A waiter's place in a line. Dropping it takes the caller out.
pub(crate) struct QueueEntry {
    core: Arc<Core>,
    queue: Arc<LocalQueue>,
    number: u64,
    left: bool,
}

impl QueueEntry {
    /// The caller got its answer, and is out already.
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
            // If it was the one being served, the line has somebody else to serve.
            self.queue.send(QueueMessage::Left);
        }
    }
}

/// A caller that asks the store by itself, before it stands in any line.
pub(crate) struct FastPathPermit<'a> {
    queues: &'a LocalQueues,
    name: &'a LockName,
}

impl Drop for FastPathPermit<'_> {
    fn drop(&mut self) {
        self.queues.registry().on_fast_path.remove(self.name);
    }
}

/// All lines of a client, by name.
#[derive(Default)]
pub(crate) struct LocalQueues {
    registry: Mutex<Registry>,
    /// Numbers are never used twice, not even by the next line for the same name.
    arrivals: AtomicU64,
    /// A line stands in the store's queue.
    queued: Notify,
}

#[derive(Default)]
struct Registry {
    queues: HashMap<LockName, Arc<LocalQueue>>,
    /// Names that a caller asks for by itself.
    on_fast_path: HashSet<LockName>,
}

/// What a line is told.
pub(super) enum QueueMessage {
    /// Somebody joined who cannot wait for the line to look by itself.
    Joined,
    /// A caller went away.
    Left,
    /// The line's place in the store's queue was given up with a release.
    LeftStoreQueue,
    /// The line's place in the store's queue is gone: it was silent for too long.
    LostStorePlace(LeaseId),
    /// The lock was offered to this lease.
    Offered(LeaseId),
    /// The lock is free, and perhaps it is the turn of this lease.
    Opened(Option<LeaseId>),
    /// The lock is kept for the waiter whose turn it is for so long only.
    ShortOffer(Duration),
    /// Look again: messages may have been missed.
    Retry,
    /// An owner got the lock by another way; its waiters share it.
    ShareWithOwner(Arc<Holds>),
    Close,
}

impl LocalQueues {
    /// The number of a caller that arrives now: who came first stands first.
    pub(crate) fn next_number(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets a caller ask the store by itself, unless another one of this process waits for the name
    /// or asks for it: a herd asks once.
    pub(crate) fn try_fast_path<'a>(&'a self, name: &'a LockName) -> Option<FastPathPermit<'a>> {
        let mut registry = self.registry();
        let queue = registry.queues.get(name);
        let waited_for = queue.is_some_and(|queue| queue.waiters().len() > 0);
        if waited_for || !registry.on_fast_path.insert(name.clone()) {
            return None;
        }
        Some(FastPathPermit { queues: self, name })
    }

    /// Puts a waiter into the line for its name. If its owner was granted the lock while it was
    /// coming, it gets its guard instead: it must not stand behind somebody who waits for that
    /// owner.
    pub(crate) fn join(&self, core: &Arc<Core>, number: u64, waiter: Waiter) -> QueueEntry {
        let mut registry = self.registry();
        let queue = Arc::clone(Self::queue_for(&mut registry.queues, core, &waiter));
        let mut waiters = queue.waiters();
        let owner = waiter.owner.as_ref();
        if let Some(hold) = owner.and_then(|owner| owner.held(&waiter.request.name)) {
            drop(waiters);
            drop(registry);
            // Only now: should the hold be refused and end here, its release comes back to us.
            let _ = waiter.reply.send(hold.reenter(&waiter.request));
        } else {
            let tell = waiters.join(number, waiter);
            drop(waiters);
            if tell {
                queue.send(QueueMessage::Joined);
            }
            drop(registry);
            core.record_changed.notify_one();
        }
        QueueEntry {
            core: Arc::clone(core),
            queue,
            number,
            left: false,
        }
    }

    pub(super) fn queue(&self, name: &LockName) -> Option<Arc<LocalQueue>> {
        self.registry().queues.get(name).cloned()
    }

    pub(crate) fn offered(&self, name: &LockName, offered_to: LeaseId) {
        self.send(name, QueueMessage::Offered(offered_to));
    }

    /// A lease of this lock is on its way out: whoever of ours gets it next wants to know since when.
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

    /// The lock is kept for the waiter whose turn it is for so long only.
    pub(crate) fn short_offer(&self, name: &LockName, lasts: Duration) {
        self.send(name, QueueMessage::ShortOffer(lasts));
    }

    pub(crate) fn opened(&self, name: &LockName, next: Option<LeaseId>) {
        self.send(name, QueueMessage::Opened(next));
    }

    /// The line's place in the store's queue was given up. Told afterwards: whoever joined meanwhile
    /// may have taken up that place again before it was given up.
    pub(crate) fn left_store_queue(&self, name: &LockName) {
        self.send(name, QueueMessage::LeftStoreQueue);
    }

    /// Where lines stand in the store's queues, as far as the store has said so.
    pub(super) fn queued_waiters(&self) -> Vec<QueuedWaiter> {
        let registry = self.registry();
        let place = |(name, queue): (&LockName, &Arc<LocalQueue>)| {
            let id = queue.waiters().queued().cloned()?;
            let name = name.clone();
            Some(QueuedWaiter { name, id })
        };
        registry.queues.iter().filter_map(place).collect()
    }

    /// A line begins to stand in the store's queue: from now on it must say that it lives.
    pub(super) fn notify_queued(&self) {
        self.queued.notify_one();
    }

    /// Waits for [`notify_queued`](LocalQueues::notify_queued).
    pub(super) async fn wait_until_queued(&self) {
        self.queued.notified().await;
    }

    /// A place in the store's queue is gone though its line believes to stand there.
    pub(super) fn lost_store_place(&self, place: QueuedWaiter) {
        self.send(&place.name, QueueMessage::LostStorePlace(place.id));
    }

    /// The waiters of an owner who just got the lock have it too.
    pub(crate) fn share_with_owner(&self, name: &LockName, owner: &Arc<Holds>) {
        self.send(name, QueueMessage::ShareWithOwner(Arc::clone(owner)));
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

    /// Whether somebody waits whom a lost message would cost time: those at the head of a queue, and
    /// whoever does not know where it stands.
    pub(crate) fn needs_messages(&self) -> bool {
        let attends = |queue: &Arc<LocalQueue>| {
            let waiters = queue.waiters();
            waiters.len() > 0 && !waiters.is_far_behind()
        };
        self.registry().queues.values().any(attends)
    }

    /// Takes a line away, unless somebody has joined it meanwhile.
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
        core: &Arc<Core>,
        waiter: &Waiter,
    ) -> &'a Arc<LocalQueue> {
        let name = &waiter.request.name;
        if queues.get(name).is_some_and(|queue| queue.is_dead()) {
            // Its task failed, which must not shut the name for ever.
            queues.remove(name);
        }
        queues.entry(name.clone()).or_insert_with(|| {
            let (inbox, messages) = mpsc::unbounded_channel();
            let queue = LocalQueue::new(inbox);
            let line = QueueTask::new(Arc::clone(core), name.clone(), Arc::clone(&queue), messages);
            waiter.client.engine.spawn(line.run());
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
