//! The server's clock, as a connection knows it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Connection;
use crate::moment::Moment;

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
