//! Closes a connection that owes replies to callers without a timer for too long.
//!
//! A caller's own task may run on any executor, so it cannot rely on timers there. Instead, one
//! task on the engine watches each connection, and only while replies are awaited.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::connection::Connection;
use crate::moment::{Clock, Moment};
use crate::store::RESPONSE_TIMEOUT;

/// How often to check while replies are awaited, and for a while after.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How long to keep checking without callers: under load the next one comes soon and need not wake
/// the engine.
const LINGER: Duration = Duration::from_secs(1);

/// How many replies a connection owes, and when the last one came.
#[derive(Debug, Default)]
pub(super) struct ResponseWatch {
    awaited: AtomicUsize,
    /// When the last reply came, or the first request was sent, in nanoseconds of the clock.
    last_reply_at: AtomicU64,
    watching: AtomicBool,
    request_sent: Arc<Notify>,
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

    fn silent_for(&self, now: Moment) -> Duration {
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

/// Watches a connection and closes it when it times out. `engine` is needed if the current runtime
/// is not the engine.
pub(super) fn watch(connection: &Arc<Connection>, engine: Option<&Handle>) {
    let request_sent = Arc::clone(&connection.response_watch().request_sent);
    let watching = watch_loop(Arc::downgrade(connection), request_sent);
    match engine {
        Some(engine) => drop(engine.spawn(watching)),
        None => drop(tokio::spawn(watching)),
    }
}

async fn watch_loop(connection: Weak<Connection>, request_sent: Arc<Notify>) {
    loop {
        request_sent.notified().await;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let Some(connection) = connection.upgrade() else {
                return;
            };
            let watch = connection.response_watch();
            let lasts = watch.silent_for(connection.clock().now());
            let awaited = watch.awaited.load(Ordering::Acquire) > 0;
            if awaited && lasts >= RESPONSE_TIMEOUT {
                return connection.close();
            }
            if !awaited && lasts >= LINGER {
                watch.watching.store(false, Ordering::Release);
                // A request sent just now may have seen the old value.
                if watch.awaited.load(Ordering::Acquire) == 0 {
                    break;
                }
                watch.watching.store(true, Ordering::Release);
            }
        }
    }
}
