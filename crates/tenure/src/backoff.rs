//! Pauses between attempts.

use std::time::Duration;

/// Between attempts of a caller's request that got no reply.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Between attempts to connect, or to find the nodes of a deployment.
pub(crate) const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Pauses that double from `min` to `max`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// For attempts to acquire a lock on behalf of waiters.
    pub(crate) const ACQUIRE: Self = Self::new(20, 250);
    /// For releases: a lock that stays held delays everyone.
    pub(crate) const RELEASE: Self = Self::new(20, 500);
    /// For keys of a slot that is migrating between nodes of a cluster.
    pub(crate) const MIGRATING: Self = Self::new(2, 32);

    const fn new(min_ms: u64, max_ms: u64) -> Self {
        let min = Duration::from_millis(min_ms);
        Self {
            min,
            max: Duration::from_millis(max_ms),
            next: min,
        }
    }

    pub(crate) const fn min(&self) -> Duration {
        self.min
    }

    pub(crate) const fn max(&self) -> Duration {
        self.max
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = (next * 2).min(self.max);
        next
    }

    /// Begins with the shortest pause again.
    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::new(20, 70);
        let pauses: Vec<_> = (0..4).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [20, 40, 70, 70]);
        backoff.reset();
        assert_eq!(backoff.next(), backoff.min());
    }
}
