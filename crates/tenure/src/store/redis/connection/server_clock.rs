//! The server's clock, as a connection knows it.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::{Connection, SendOptions};
use crate::moment::Moment;
use crate::store::redis::command::cmd;
use crate::store::redis::told_offer::ClockReading;

/// How long a reading of the server's clock is fresh.
const FRESH_FOR: Duration = Duration::from_millis(100);

impl Connection {
    /// The latest that the server's clock can show at `moment`, in microseconds.
    pub(crate) fn server_us(&self, moment: Moment) -> u64 {
        let ours = i64::try_from(moment.as_nanos() / 1_000).unwrap_or(i64::MAX);
        let theirs = ours.saturating_add(self.clock_offset_us.load(Ordering::Relaxed));
        u64::try_from(theirs).unwrap_or(0)
    }

    /// Notes that the server's clock showed this some time after `asked_at`.
    pub(crate) fn set_clock(&self, asked_at: Moment, server_us: u64) {
        let ours = i64::try_from(asked_at.as_nanos() / 1_000).unwrap_or(i64::MAX);
        let theirs = i64::try_from(server_us).unwrap_or(i64::MAX);
        self.clock_offset_us
            .store(theirs.saturating_sub(ours), Ordering::Relaxed);
        self.clock_read_at
            .store(asked_at.as_nanos(), Ordering::Relaxed);
        *self.clock_reading() = Some(ClockReading {
            asked_at,
            server_us,
        });
    }

    /// Guesses the server's clock, because its user may not read it.
    pub(super) fn guess_clock(&self, asked_at: Moment, server_us: u64) {
        self.set_clock(asked_at, server_us);
        *self.clock_reading() = None;
    }

    /// The last reading of the server's clock, if it was ever read.
    pub(crate) fn last_clock_reading(&self) -> Option<ClockReading> {
        *self.clock_reading()
    }

    /// Reads the server's clock. False if the server does not reply.
    pub(crate) async fn read_clock(&self, limit: Moment) -> bool {
        let asked_at = self.clock().now();
        match self.run(&cmd("TIME"), SendOptions::until(limit)).await {
            Ok(time) => {
                if let Some(server_us) = time.as_server_time_us() {
                    self.set_clock(asked_at, server_us);
                }
                true
            }
            // A refusal is a reply too.
            Err(failure) => !failure.transient,
        }
    }

    fn clock_reading(&self) -> MutexGuard<'_, Option<ClockReading>> {
        self.clock_reading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last reading of the server's clock is fresh.
    pub(crate) fn knows_clock(&self, now: Moment) -> bool {
        let read_at = self.clock_read_at.load(Ordering::Relaxed);
        let age = Duration::from_nanos(now.as_nanos().saturating_sub(read_at));
        read_at != 0 && age < FRESH_FOR
    }

    /// The server's clock must be read again before it is relied on.
    pub(crate) fn doubt_clock(&self) {
        self.clock_read_at.store(0, Ordering::Relaxed);
    }
}
