//! Points of the last minutes, hours and day, in bounded memory.

use std::collections::VecDeque;

use serde::Deserialize;
use utoipa::ToSchema;

use super::point::Point;
use super::tally::Tally;

/// How far back to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
pub(crate) enum Window {
    #[default]
    #[serde(rename = "5m")]
    Minutes,
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "24h")]
    Day,
}

/// A ring for each window.
#[derive(Debug)]
pub(crate) struct Rings([Ring; 3]);

#[derive(Debug)]
struct Ring {
    window: Window,
    points: VecDeque<Point>,
    /// Collected for the next point.
    tally: Tally,
    seconds: u32,
    highest: Point,
}

impl Window {
    /// How many seconds a step has, and how many steps are kept.
    fn shape(self) -> (u32, usize) {
        match self {
            Self::Minutes => (1, 300),
            Self::Hour => (10, 360),
            Self::Day => (120, 720),
        }
    }

    pub(crate) fn step_ms(self) -> u64 {
        u64::from(self.shape().0) * 1_000
    }
}

impl Default for Rings {
    fn default() -> Self {
        Self([Window::Minutes, Window::Hour, Window::Day].map(Ring::new))
    }
}

impl Rings {
    /// Adds a second and returns its point.
    pub(crate) fn push(&mut self, seen: Point, tally: &Tally) -> Point {
        for ring in &mut self.0 {
            ring.push(seen, tally);
        }
        self.0[0].points.back().copied().unwrap_or(seen)
    }

    pub(crate) fn points(&self, window: Window) -> impl Iterator<Item = &Point> {
        let ring = self.0.iter().filter(move |ring| ring.window == window);
        ring.flat_map(|ring| &ring.points)
    }
}

impl Ring {
    fn new(window: Window) -> Self {
        Self {
            window,
            points: VecDeque::new(),
            tally: Tally::new(),
            seconds: 0,
            highest: Point::default(),
        }
    }

    fn push(&mut self, seen: Point, tally: &Tally) {
        let (step, kept) = self.window.shape();
        self.tally.add(tally);
        self.seconds += 1;
        let highest = &mut self.highest;
        highest.at_ms = seen.at_ms;
        highest.held = highest.held.max(seen.held);
        highest.waiting = highest.waiting.max(seen.waiting);
        highest.store_ms = match (highest.store_ms, seen.store_ms) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        if self.seconds < step {
            return;
        }
        if self.points.len() == kept {
            self.points.pop_front();
        }
        let point = self.tally.point(self.highest, f64::from(self.seconds));
        self.points.push_back(point);
        self.tally = Tally::new();
        self.seconds = 0;
        self.highest = Point::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn seconds_become_steps_and_the_oldest_go() {
        let mut rings = Rings::default();
        let mut tally = Tally::new();
        tally.acquired = 5;
        tally.waits.note(Duration::from_millis(2));
        for second in 0..1_000 {
            let seen = Point {
                at_ms: second * 1_000,
                held: Some(3),
                ..Point::default()
            };
            rings.push(seen, &tally);
        }
        let count = |window| rings.points(window).count();
        assert_eq!(count(Window::Minutes), 300);
        assert_eq!(count(Window::Hour), 100);
        assert_eq!(count(Window::Day), 8);
        for window in [Window::Minutes, Window::Hour, Window::Day] {
            let last = rings.points(window).last().unwrap();
            assert!((last.acquired - 5.0).abs() < 0.001, "{last:?}");
            assert!((last.wait_p99_ms.unwrap() - 2.0).abs() < 0.1, "{last:?}");
            assert_eq!((last.held, last.hold_p50_ms), (Some(3), None));
        }
    }
}
