//! Lock operations of this instance, counted per second and kept for a day.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::columns::Columns;
use super::point::Point;
use super::ring::{Rings, Window};
use super::tally::Tally;
use crate::feed::{Feed, Source};

/// The current counts, and the past ones.
#[derive(Debug)]
pub(crate) struct TimeSeries {
    pub(crate) feed: Arc<Feed>,
    tally: Mutex<Tally>,
    rings: Mutex<Rings>,
}

impl TimeSeries {
    pub(crate) fn new() -> Self {
        Self {
            feed: Feed::new(),
            tally: Mutex::new(Tally::new()),
            rings: Mutex::default(),
        }
    }

    pub(crate) fn acquired(&self, waited: Duration) {
        let mut tally = self.tally();
        tally.acquired += 1;
        tally.waits.note(waited);
    }

    pub(crate) fn busy(&self) {
        self.tally().busy += 1;
    }

    pub(crate) fn renewed(&self) {
        self.tally().renewed += 1;
    }

    /// A lease was released; how long it was held is known if it was granted here.
    pub(crate) fn released(&self, held: Option<Duration>) {
        let mut tally = self.tally();
        tally.released += 1;
        tally.held(held);
    }

    /// A lease ended before it was released.
    pub(crate) fn lost(&self, held: Option<Duration>) {
        let mut tally = self.tally();
        tally.lost += 1;
        tally.held(held);
    }

    /// A feed with a point each second.
    pub(crate) fn source(&self) -> Source {
        Source {
            snapshot: Box::new(|| None),
            wanted: Box::new(|_| true),
            feed: Arc::clone(&self.feed),
        }
    }

    /// The points of a window.
    pub(crate) fn columns(&self, window: Window) -> Columns {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        Columns::of(rings.points(window), window.step_ms())
    }

    /// Ends the current second.
    pub(crate) fn tick(
        &self,
        held: Option<i64>,
        waiting: Option<i64>,
        store_ms: Option<f64>,
    ) -> Point {
        let tally = std::mem::replace(&mut *self.tally(), Tally::new());
        let now = SystemTime::now();
        let at_ms = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let seen = Point {
            at_ms: u64::try_from(at_ms.as_millis()).unwrap_or(0),
            held,
            waiting,
            store_ms,
            ..Point::default()
        };
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.push(seen, &tally)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
