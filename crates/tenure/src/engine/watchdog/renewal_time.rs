//! When a lease is renewed.

use std::time::Duration;

use crate::moment::Moment;

/// How long to wait after a failed renewal: a tenth of the time left, within these bounds.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// The next renewal of a lease that was granted or renewed by a request of this moment.
pub(super) fn after_success(sent_at: Moment, ttl: Duration) -> Moment {
    sent_at + ttl / 3
}

/// The next attempt after one that failed, with this much time left until the deadline.
pub(super) fn after_failure(now: Moment, left: Duration) -> Moment {
    now + (left / 10).clamp(RETRY_MIN, RETRY_MAX)
}
