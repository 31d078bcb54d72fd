//! A histogram of durations: percentiles without keeping every sample.

use std::time::Duration;

use hdrhistogram::Histogram;

/// A histogram of durations.
#[derive(Clone, Debug)]
pub struct Timings(Histogram<u64>);

impl Timings {
    /// No samples yet.
    pub fn new() -> Self {
        let histogram = Histogram::new(3);
        Self(histogram.expect("a precision of three digits is allowed"))
    }

    /// Adds a sample.
    pub fn note(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // It grows by itself: no value is out of range.
        let _ = self.0.record(nanos);
    }

    /// Adds a sample `count` times, as [`counts`](Self::counts) lists it.
    pub fn note_many(&mut self, time: Duration, count: u64) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let _ = self.0.record_n(nanos, count);
    }

    /// The samples, rounded, and how often each occurred: to be sent to another process.
    pub fn counts(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let recorded = self.0.iter_recorded();
        recorded.map(|it| {
            let time = Duration::from_nanos(it.value_iterated_to());
            (time, it.count_at_value())
        })
    }

    /// Adds what others noted.
    pub fn join(&mut self, other: &Self) {
        let _ = self.0.add(&other.0);
    }

    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time within which so many of a hundred were done; zero if nothing was.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }
}

impl Default for Timings {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<Duration> for Timings {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        let mut timings = Self::new();
        times.into_iter().for_each(|time| timings.note(time));
        timings
    }
}

/// A duration in milliseconds with two or three significant digits.
pub fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1_000.0;
    if millis < 10.0 {
        format!("{millis:.2} ms")
    } else {
        format!("{millis:.0} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_can_be_sent_to_another_process() {
        let one: Timings = (1..=100).map(Duration::from_millis).collect();
        let mut other = Timings::new();
        for (time, count) in one.counts() {
            other.note_many(time, count);
        }
        assert_eq!(other.count(), 100);
        assert_eq!(other.percentile(50.0), one.percentile(50.0));
    }

    #[test]
    fn so_many_of_a_hundred_were_not_slower() {
        let mut times: Timings = (1..=100).map(Duration::from_millis).collect();
        let others: Timings = (101..=200).map(Duration::from_millis).collect();
        times.join(&others);
        assert_eq!(times.count(), 200);
        let near = |percent, expected: f64| {
            let found = times.percentile(percent).as_secs_f64() * 1_000.0;
            assert!((found - expected).abs() < 1.0, "{found} is not {expected}");
        };
        near(50.0, 100.0);
        near(99.0, 198.0);
        assert_eq!(Timings::new().percentile(99.0), Duration::ZERO);
    }

    #[test]
    fn lengths_have_the_digits_that_matter() {
        assert_eq!(millis(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(millis(Duration::from_micros(45_678)), "46 ms");
    }
}
