//! The stock over time, in a bounded number of points.

/// Milliseconds since the start, and the units left then; below zero when oversold.
pub type Point = [i64; 2];

/// The maximum number of points. At one every 50 ms that is 100 s; after that every second one is
/// dropped.
pub const POINTS_MAX: usize = 2_000;

/// The stock over time.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    points: Vec<Point>,
    /// Keep one point out of this many.
    stride: u64,
    seen: u64,
    /// The last one, kept or not.
    last: Option<Point>,
    /// Points that were not sent yet.
    tail: Vec<Point>,
}

impl Curve {
    pub(crate) fn new() -> Self {
        Self {
            points: Vec::new(),
            stride: 1,
            seen: 0,
            last: None,
            tail: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, point: Point) {
        self.last = Some(point);
        self.tail.push(point);
        if self.seen.is_multiple_of(self.stride) {
            self.points.push(point);
        }
        self.seen += 1;
        if self.points.len() > POINTS_MAX - 1 {
            self.points = thinned(&self.points, 2);
            self.stride *= 2;
        }
    }

    /// The points added since the last call.
    pub(crate) fn take_tail(&mut self) -> Vec<Point> {
        std::mem::take(&mut self.tail)
    }

    /// At most this many points, including the first and the last.
    pub(crate) fn points(&self, most: usize) -> Vec<Point> {
        let most = most.clamp(2, POINTS_MAX);
        let every = self.points.len().div_ceil(most - 1).max(1);
        let mut points = thinned(&self.points, every);
        points.extend(self.last.filter(|last| points.last() != Some(last)));
        points
    }
}

fn thinned(points: &[Point], every: usize) -> Vec<Point> {
    points.iter().step_by(every).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_ends_and_few_points() {
        let mut curve = Curve::new();
        for at in 0..10_000 {
            curve.note([at, -at]);
            assert!(curve.points(POINTS_MAX).len() <= POINTS_MAX);
        }
        let all = curve.points(POINTS_MAX);
        assert!(all.len() > POINTS_MAX / 4, "{}", all.len());
        let few = curve.points(100);
        assert!((50..=100).contains(&few.len()), "{}", few.len());
        for points in [all, few] {
            assert_eq!(points.first(), Some(&[0, 0]));
            assert_eq!(points.last(), Some(&[9_999, -9_999]));
            assert!(points.is_sorted_by_key(|point| point[0]));
        }
        assert_eq!(curve.take_tail().len(), 10_000);
        assert!(curve.take_tail().is_empty());
    }
}
