//! The end of a phase.

use std::time::{Duration, Instant};

use tenure::CancellationToken;

/// A phase ends when its time is up, or on an interrupt.
#[derive(Clone, Debug)]
pub struct Until {
    begun: Instant,
    end: Instant,
    stopped: CancellationToken,
}

impl Until {
    pub fn after(length: Duration, stopped: &CancellationToken) -> Self {
        let begun = Instant::now();
        Self {
            begun,
            end: begun + length,
            stopped: stopped.clone(),
        }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end || self.stopped.is_cancelled()
    }

    /// The result of the work, or `None` if the phase ends first.
    pub async fn cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.stopped.cancelled() => None,
            () = tokio::time::sleep_until(self.end.into()) => None,
        }
    }

    /// How long the phase has taken so far.
    pub fn took(&self) -> Duration {
        self.begun.elapsed()
    }
}
