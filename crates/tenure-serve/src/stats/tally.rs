//! Counts of lock operations in a period.

use std::time::Duration;

use tenure_view::timings::Timings;

use super::point::Point;

/// What happened since the last read.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) acquired: u64,
    pub(crate) busy: u64,
    pub(crate) released: u64,
    pub(crate) lost: u64,
    pub(crate) renewed: u64,
    pub(crate) waits: Timings,
    pub(crate) holds: Timings,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            acquired: 0,
            busy: 0,
            released: 0,
            lost: 0,
            renewed: 0,
            waits: Timings::new(),
            holds: Timings::new(),
        }
    }

    /// How long a lease was held, if known.
    pub(crate) fn held(&mut self, held: Option<Duration>) {
        if let Some(held) = held {
            self.holds.note(held);
        }
    }

    /// Adds the counts of another period.
    pub(crate) fn add(&mut self, other: &Self) {
        self.acquired += other.acquired;
        self.busy += other.busy;
        self.released += other.released;
        self.lost += other.lost;
        self.renewed += other.renewed;
        self.waits.join(&other.waits);
        self.holds.join(&other.holds);
    }

    /// The rates per second, with the state at the end of the period.
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds are small")]
    pub(crate) fn point(&self, seen: Point, seconds: f64) -> Point {
        let a_second = |count: u64| count as f64 / seconds;
        Point {
            acquired: a_second(self.acquired),
            busy: a_second(self.busy),
            released: a_second(self.released),
            lost: a_second(self.lost),
            renewed: a_second(self.renewed),
            wait_p50_ms: percentile_ms(&self.waits, 50.0),
            wait_p99_ms: percentile_ms(&self.waits, 99.0),
            hold_p50_ms: percentile_ms(&self.holds, 50.0),
            hold_p99_ms: percentile_ms(&self.holds, 99.0),
            ..seen
        }
    }
}

fn percentile_ms(of: &Timings, percent: f64) -> Option<f64> {
    (of.count() > 0).then(|| of.percentile(percent).as_secs_f64() * 1_000.0)
}
