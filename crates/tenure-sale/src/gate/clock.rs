//! Time at the gates: whole microseconds, which Lua's numbers represent exactly.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stock::UNITS_MAX;

/// Microseconds since 1970; earlier times count as 1970.
pub(super) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    exact(since.as_micros())
}

pub(super) fn time_of(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

pub(super) fn millis(duration: Duration) -> u64 {
    exact(duration.as_millis())
}

fn exact(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX).min(UNITS_MAX)
}
