//! Points as columns, which are shorter in JSON than objects.

use serde::Serialize;
use utoipa::ToSchema;

use super::point::Point;

/// Columns of equal length, oldest first.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Columns {
    step_ms: u64,
    /// Unix time in milliseconds.
    at: Vec<u64>,
    held: Vec<Option<i64>>,
    waiting: Vec<Option<i64>>,
    /// Per second, like the following up to `renewed`.
    acquired: Vec<f64>,
    busy: Vec<f64>,
    released: Vec<f64>,
    lost: Vec<f64>,
    renewed: Vec<f64>,
    wait_p50_ms: Vec<Option<f64>>,
    wait_p99_ms: Vec<Option<f64>>,
    hold_p50_ms: Vec<Option<f64>>,
    hold_p99_ms: Vec<Option<f64>>,
    store_ms: Vec<Option<f64>>,
}

impl Columns {
    /// The columns of these points, which are a step apart.
    pub(crate) fn of<'a>(points: impl Iterator<Item = &'a Point>, step_ms: u64) -> Self {
        let mut columns = Self {
            step_ms,
            ..Self::default()
        };
        for point in points {
            columns.push(point);
        }
        columns
    }

    fn push(&mut self, point: &Point) {
        self.at.push(point.at_ms);
        self.held.push(point.held);
        self.waiting.push(point.waiting);
        self.acquired.push(point.acquired);
        self.busy.push(point.busy);
        self.released.push(point.released);
        self.lost.push(point.lost);
        self.renewed.push(point.renewed);
        self.wait_p50_ms.push(point.wait_p50_ms);
        self.wait_p99_ms.push(point.wait_p99_ms);
        self.hold_p50_ms.push(point.hold_p50_ms);
        self.hold_p99_ms.push(point.hold_p99_ms);
        self.store_ms.push(point.store_ms);
    }
}
