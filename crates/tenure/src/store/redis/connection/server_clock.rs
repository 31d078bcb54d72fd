//! The server's clock as a connection knows it, and the fences that are counted by it.

use std::sync::atomic::Ordering;

use super::Connection;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::redis::value::Value;

/// How far a fence may be below the server's clock where it counts by that: our reckoning of the clock
/// may be this far ahead.
const FENCE_LAG_US: u64 = 1_000;

impl Connection {
    /// A fence counter below this is new, or an old copy: then the clock is the next fence.
    ///
    /// Whatever forgets a counter mostly ends the connection too, so that its beginning will do. But
    /// a server that is deposed, and promoted again, has lost what its successor did not know, and
    /// keeps its connections. There the clock itself is the floor.
    pub(in crate::store::redis) fn fence_floor_us(&self) -> u64 {
        let made_us = self.made_us();
        if !self.counts_by_clock() {
            return made_us;
        }
        let now_us = self.server_us(self.clock().now());
        now_us.saturating_sub(FENCE_LAG_US).max(made_us)
    }

    /// Whether fences are to be as high as the clock, each of them.
    pub(in crate::store::redis) fn counts_by_clock(&self) -> bool {
        self.server.is_replaceable() && !bug(Bug::FenceFromOldCopy)
    }

    /// What the server's clock showed when the connection was made, in microseconds.
    pub(crate) fn made_us(&self) -> u64 {
        self.made_us.load(Ordering::Relaxed)
    }

    /// The latest that the server's clock can show at `moment`, in microseconds.
    pub(crate) fn server_us(&self, moment: Moment) -> u64 {
        let ours = i64::try_from(moment.as_nanos() / 1_000).unwrap_or(i64::MAX);
        let theirs = ours.saturating_add(self.clock_offset_us.load(Ordering::Relaxed));
        u64::try_from(theirs).unwrap_or(0)
    }

    /// Takes note of what the server's clock showed some time after `asked_at`.
    pub(crate) fn set_clock(&self, asked_at: Moment, server_us: u64) {
        let ours = i64::try_from(asked_at.as_nanos() / 1_000).unwrap_or(i64::MAX);
        let theirs = i64::try_from(server_us).unwrap_or(i64::MAX);
        self.clock_offset_us
            .store(theirs.saturating_sub(ours), Ordering::Relaxed);
    }
}

/// The reply to `TIME` as microseconds.
pub(in crate::store::redis) fn micros(time: &Value) -> Option<u64> {
    let [seconds, micros] = time.as_array()? else {
        return None;
    };
    let part = |value: &Value| u64::try_from(value.as_int()?).ok();
    part(seconds)?
        .checked_mul(1_000_000)?
        .checked_add(part(micros)?)
}
