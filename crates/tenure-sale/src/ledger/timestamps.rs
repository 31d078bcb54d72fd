//! Times in the ledger: milliseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest integer that a double represents exactly: about 285 000 years.
const MILLISECONDS_MAX: u128 = 1 << 53;

/// A time in milliseconds; times before 1970 count as 1970.
pub(super) fn milliseconds(moment: SystemTime) -> i64 {
    duration_ms(moment.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in milliseconds.
pub(super) fn duration_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis().min(MILLISECONDS_MAX)).unwrap_or(i64::MAX)
}

/// Converts milliseconds back to a time.
pub(super) fn moment(milliseconds: i64) -> SystemTime {
    UNIX_EPOCH + duration(milliseconds)
}

/// Converts milliseconds back to a duration.
pub(super) fn duration(milliseconds: i64) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default())
}
