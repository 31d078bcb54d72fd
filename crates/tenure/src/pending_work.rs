//! Counts the work that must not be cut off: requests in flight, releases, clean-ups. A shutdown waits
//! for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    count: AtomicUsize,
    /// How many wait for the count to reach zero. Usually none, and then no wake-up is needed: that
    /// would be a system call for every lock.
    waiting: AtomicUsize,
    turn: Mutex<()>,
    none_left: Condvar,
    none_left_async: Notify,
}

/// Counts as one until it is dropped.
#[derive(Debug)]
pub(crate) struct PendingOne {
    pending: Pending,
}

impl Pending {
    pub(crate) fn begin(&self) -> PendingOne {
        self.shared.count.fetch_add(1, Ordering::SeqCst);
        PendingOne {
            pending: self.clone(),
        }
    }

    /// Blocks the thread until nothing is pending, at most for `limit`.
    #[cfg_attr(not(feature = "blocking"), expect(dead_code))]
    pub(crate) fn wait_blocking(&self, limit: Duration) {
        let shared = &self.shared;
        let _waiting = Waiting::new(shared);
        let turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_pending = |(): &mut ()| shared.count.load(Ordering::SeqCst) > 0;
        drop(shared.none_left.wait_timeout_while(turn, limit, is_pending));
    }

    pub(crate) async fn wait(&self) {
        let shared = &self.shared;
        let _waiting = Waiting::new(shared);
        loop {
            let changed = shared.none_left_async.notified();
            if shared.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for PendingOne {
    fn drop(&mut self) {
        let shared = &self.pending.shared;
        let last = shared.count.fetch_sub(1, Ordering::SeqCst) == 1;
        // A waiter that starts now either sees the count after this, or is seen here.
        if last && shared.waiting.load(Ordering::SeqCst) > 0 {
            drop(shared.turn.lock());
            shared.none_left.notify_all();
            shared.none_left_async.notify_waiters();
        }
    }
}

/// A waiter, until it is dropped.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
