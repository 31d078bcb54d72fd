//! How many releases are still on their way, for those who want to wait for them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    count: Mutex<usize>,
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
        *self.count() += 1;
        PendingOne {
            pending: self.clone(),
        }
    }

    /// Blocks the thread until nothing is pending, at most for `limit`.
    pub(crate) fn wait_blocking(&self, limit: Duration) {
        let none_left = &self.shared.none_left;
        drop(none_left.wait_timeout_while(self.count(), limit, |count| *count > 0));
    }

    pub(crate) async fn wait(&self) {
        loop {
            let changed = self.shared.none_left_async.notified();
            if *self.count() == 0 {
                return;
            }
            changed.await;
        }
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.shared
            .count
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingOne {
    fn drop(&mut self) {
        let mut count = self.pending.count();
        *count -= 1;
        if *count == 0 {
            self.pending.shared.none_left.notify_all();
            self.pending.shared.none_left_async.notify_waiters();
        }
    }
}
