//! Whether a connection has gone silent while it owes answers to callers who have no timer.
//!
//! A caller's own task may run on any executor, so it cannot rely on timers there. One task on the
//! engine listens for the silence of each connection instead, and only while somebody waits.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::connection::Connection;
use crate::moment::{Clock, Moment};
use crate::store::SILENCE_LIMIT;

/// How often to look while answers are owed, and for a while after.
const LOOK: Duration = Duration::from_millis(50);
/// How long to go on looking though nobody waits: under load the next one comes at once, and need
/// not wake the engine.
const LINGER: Duration = Duration::from_secs(1);

/// What a connection owes, and when it last answered.
#[derive(Debug, Default)]
pub(super) struct ResponseWatch {
    owed: AtomicUsize,
    /// When an answer came, or the first question was asked, in nanoseconds of the clock.
    heard_at: AtomicU64,
    listening: AtomicBool,
    asked: Arc<Notify>,
}

/// An answer that is owed, until it is dropped.
pub(super) struct AwaitedReply<'a> {
    silence: &'a ResponseWatch,
    clock: &'a Clock,
}

impl ResponseWatch {
    /// Takes note that a question is asked now.
    pub(super) fn owe<'a>(&'a self, clock: &'a Clock) -> AwaitedReply<'a> {
        if self.owed.fetch_add(1, Ordering::AcqRel) == 0 {
            self.hear(clock.now());
        }
        if !self.listening.swap(true, Ordering::AcqRel) {
            self.asked.notify_one();
        }
        AwaitedReply {
            silence: self,
            clock,
        }
    }

    fn hear(&self, now: Moment) {
        self.heard_at.store(now.as_nanos(), Ordering::Release);
    }

    fn lasts(&self, now: Moment) -> Duration {
        let heard_at = Moment::from_nanos(self.heard_at.load(Ordering::Acquire));
        now.saturating_since(heard_at)
    }
}

impl AwaitedReply<'_> {
    /// The answer came.
    pub(super) fn answered(self) {
        self.silence.hear(self.clock.now());
    }
}

impl Drop for AwaitedReply<'_> {
    fn drop(&mut self) {
        self.silence.owed.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for ResponseWatch {
    fn drop(&mut self) {
        // The listener finds that the connection is gone, and ends.
        self.asked.notify_one();
    }
}

/// Gives the connection up when it stays silent. The engine must be given by whoever does not run
/// on it.
pub(super) fn listen_for(connection: &Arc<Connection>, engine: Option<&Handle>) {
    let asked = Arc::clone(&connection.silence().asked);
    let listening = listen(Arc::downgrade(connection), asked);
    match engine {
        Some(engine) => drop(engine.spawn(listening)),
        None => drop(tokio::spawn(listening)),
    }
}

async fn listen(connection: Weak<Connection>, asked: Arc<Notify>) {
    loop {
        asked.notified().await;
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(connection) = connection.upgrade() else {
                return;
            };
            let silence = connection.silence();
            let lasts = silence.lasts(connection.clock().now());
            let owed = silence.owed.load(Ordering::Acquire) > 0;
            if owed && lasts >= SILENCE_LIMIT {
                return connection.give_up();
            }
            if !owed && lasts >= LINGER {
                silence.listening.store(false, Ordering::Release);
                // Whoever asked just now may have seen the old value.
                if silence.owed.load(Ordering::Acquire) == 0 {
                    break;
                }
                silence.listening.store(true, Ordering::Release);
            }
        }
    }
}
