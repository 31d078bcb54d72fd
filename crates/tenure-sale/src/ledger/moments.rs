//! Times as the ledger keeps them: milliseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a double can count; some hundred thousand years.
const MILLISECONDS_MAX: u128 = 1 << 53;

/// Milliseconds of a moment; one before 1970 counts as 1970.
pub(super) fn milliseconds(moment: SystemTime) -> i64 {
    length(moment.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Milliseconds of a length of time.
pub(super) fn length(length: Duration) -> i64 {
    i64::try_from(length.as_millis().min(MILLISECONDS_MAX)).unwrap_or(i64::MAX)
}

/// A moment again.
pub(super) fn moment(milliseconds: i64) -> SystemTime {
    UNIX_EPOCH + duration(milliseconds)
}

/// A length of time again.
pub(super) fn duration(milliseconds: i64) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default())
}
