//! Increasing pauses while something is unavailable.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    pub(crate) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// No pause is longer.
    pub(crate) const LONGEST: Duration = LONGEST;

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        // Jitter: many consumers must not come back all at once.
        let pause = self.next.mul_f64(rand::random_range(0.5..1.0));
        self.next = (self.next * 2).min(LONGEST);
        pause
    }

    /// Sleeps, but not for long if stopped.
    pub(crate) async fn pause(&mut self, stop: &CancellationToken) {
        let pause = self.next();
        if stop.is_cancelled() {
            tokio::time::sleep(pause.min(FIRST)).await;
        } else {
            let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }
}
