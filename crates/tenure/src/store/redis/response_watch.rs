//! Counts the replies that a connection owes to callers without a timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::moment::{Clock, Moment};

/// How many replies a connection owes, and when the last one came.
#[derive(Debug, Default)]
pub(super) struct ResponseWatch {
    pub(super) awaited: AtomicUsize,
    /// When the last reply came, or the first request was sent, in nanoseconds of the clock.
    last_reply_at: AtomicU64,
    pub(super) watching: AtomicBool,
    pub(super) request_sent: Arc<Notify>,
}

/// A reply that is awaited, until this is dropped.
pub(super) struct AwaitedReply<'a> {
    watch: &'a ResponseWatch,
    clock: &'a Clock,
}

impl ResponseWatch {
    /// Notes that a request is being sent.
    pub(super) fn expect_reply<'a>(&'a self, clock: &'a Clock) -> AwaitedReply<'a> {
        if self.awaited.fetch_add(1, Ordering::AcqRel) == 0 {
            self.note_reply(clock.now());
        }
        if !self.watching.swap(true, Ordering::AcqRel) {
            self.request_sent.notify_one();
        }
        AwaitedReply { watch: self, clock }
    }

    fn note_reply(&self, now: Moment) {
        self.last_reply_at.store(now.as_nanos(), Ordering::Release);
    }

    pub(super) fn silent_for(&self, now: Moment) -> Duration {
        let last_reply_at = Moment::from_nanos(self.last_reply_at.load(Ordering::Acquire));
        now.saturating_since(last_reply_at)
    }
}

impl AwaitedReply<'_> {
    /// The reply came.
    pub(super) fn answered(self) {
        self.watch.note_reply(self.clock.now());
    }
}

impl Drop for AwaitedReply<'_> {
    fn drop(&mut self) {
        self.watch.awaited.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for ResponseWatch {
    fn drop(&mut self) {
        // The watching task finds that the connection is gone, and ends.
        self.request_sent.notify_one();
    }
}
