//! Waits for a condition instead of a fixed time.

use std::thread;
use std::time::{Duration, Instant};

/// Polling many processes puts load on them.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// Polls `condition` until it holds; `false` if it does not within `limit`.
///
/// It is checked at least once, even with a limit of zero.
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Polls many processes until the answer is `Ok`; returns the last `Err` after `limit`.
pub(crate) fn until_ok<T>(
    limit: Duration,
    mut ask: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let end = Instant::now() + limit;
    loop {
        let answer = ask();
        if answer.is_ok() || Instant::now() >= end {
            return answer;
        }
        thread::sleep(POLL_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_as_soon_as_the_condition_holds() {
        let mut asked = 0;
        assert!(eventually(Duration::from_secs(5), || {
            asked += 1;
            asked == 3
        }));
        assert_eq!(asked, 3);
    }

    #[test]
    fn gives_up_at_the_limit() {
        assert!(!eventually(Duration::from_millis(5), || false));
    }
}
