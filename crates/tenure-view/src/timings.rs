//! How long many things took: percentiles without keeping every sample.

use std::time::Duration;

use hdrhistogram::Histogram;

/// How long many things took.
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

/// A length of time in milliseconds, with as many digits as mean something.
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
