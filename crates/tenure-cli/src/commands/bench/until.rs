//! When a part of the measuring is over.

use std::time::{Duration, Instant};

use tenure::CancellationToken;

/// A part is over when its time is, or when somebody interrupts.
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

    /// What comes of the work, or nothing if the part is over before it is done.
    pub async fn cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.stopped.cancelled() => None,
            () = tokio::time::sleep_until(self.end.into()) => None,
        }
    }

    /// How long the part has taken so far.
    pub fn took(&self) -> Duration {
        self.begun.elapsed()
    }
}
