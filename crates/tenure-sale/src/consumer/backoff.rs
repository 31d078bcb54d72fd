//! Increasing pauses while something is unavailable.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST }
    }

    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Sleeps, but not for long if stopped.
    pub(super) async fn pause(&mut self, stop: &CancellationToken) {
        // Jitter: many consumers must not come back all at once.
        let pause = self.next.mul_f64(rand::random_range(0.5..1.0));
        self.next = (self.next * 2).min(LONGEST);
        if stop.is_cancelled() {
            tokio::time::sleep(pause.min(FIRST)).await;
        } else {
            let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }
}
