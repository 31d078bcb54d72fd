//! Since when a connection owes replies, and how many senders without a timer wait for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::moment::{Clock, Moment};

/// A timer may fire this much early by the clock.
const TIMER_PRECISION: Duration = Duration::from_millis(5);

/// The replies that a connection owes.
#[derive(Debug, Default)]
pub(super) struct ResponseWatch {
    /// Since when replies are owed, in nanoseconds of the clock; 0 if none are.
    owed_since: AtomicU64,
    /// How many senders without a timer wait for a reply.
    pub(super) awaited: AtomicUsize,
    /// When the last reply came, or the first of those senders began to wait.
    last_reply_at: AtomicU64,
    pub(super) watching: AtomicBool,
    pub(super) request_sent: Arc<Notify>,
}

/// A reply that is awaited, until this is dropped.
pub(super) struct AwaitedReply<'a> {
    watch: &'a ResponseWatch,
    clock: &'a Clock,
    has_timer: bool,
    pub(super) sent_at: Moment,
}

impl ResponseWatch {
    /// Notes that a request is being sent.
    pub(super) fn expect_reply<'a>(
        &'a self,
        clock: &'a Clock,
        has_timer: bool,
    ) -> AwaitedReply<'a> {
        let sent_at = clock.now();
        let now = sent_at.as_nanos().max(1);
        let _ = self
            .owed_since
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        if !has_timer {
            self.watch_for(now);
        }
        AwaitedReply {
            watch: self,
            clock,
            has_timer,
            sent_at,
        }
    }

    /// Notes that a request is being sent whose reply no future awaits: it is awaited until
    /// [`settled`](ResponseWatch::settled).
    pub(super) fn expect(&self, now: Moment) {
        let now = now.as_nanos().max(1);
        let _ = self
            .owed_since
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.watch_for(now);
    }

    /// So many of those requests are done: their replies came, or none will come.
    pub(super) fn settled(&self, requests: usize, replied_at: Option<Moment>) {
        if let Some(now) = replied_at {
            self.owed_since.store(0, Ordering::Relaxed);
            self.last_reply_at.store(now.as_nanos(), Ordering::Release);
        }
        self.awaited.fetch_sub(requests, Ordering::AcqRel);
    }

    fn watch_for(&self, now: u64) {
        if self.awaited.fetch_add(1, Ordering::SeqCst) == 0 {
            self.last_reply_at.store(now, Ordering::Release);
        }
        if !self.watching.swap(true, Ordering::SeqCst) {
            self.request_sent.notify_one();
        }
    }

    /// How long the senders without a timer have waited since the last reply.
    pub(super) fn silent_for(&self, now: Moment) -> Duration {
        let last_reply_at = Moment::from_nanos(self.last_reply_at.load(Ordering::Acquire));
        now.saturating_since(last_reply_at)
    }

    /// Whether a reply has been owed for the whole response timeout.
    pub(super) fn is_overdue(&self, now: Moment, timeout: Duration) -> bool {
        let owed_since = self.owed_since.load(Ordering::Relaxed);
        let owed_for = now.saturating_since(Moment::from_nanos(owed_since));
        owed_since > 0 && owed_for + TIMER_PRECISION >= timeout
    }
}

impl AwaitedReply<'_> {
    /// The reply came.
    pub(super) fn answered(self) {
        let watch = self.watch;
        watch.owed_since.store(0, Ordering::Relaxed);
        if watch.awaited.load(Ordering::Relaxed) > 0 {
            let now = self.clock.now().as_nanos();
            watch.last_reply_at.store(now, Ordering::Release);
        }
    }
}

impl Drop for AwaitedReply<'_> {
    fn drop(&mut self) {
        if !self.has_timer {
            self.watch.awaited.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for ResponseWatch {
    fn drop(&mut self) {
        // The watching task finds that the connection is gone, and ends.
        self.request_sent.notify_one();
    }
}
