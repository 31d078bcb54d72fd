//! One point of the charts.

use serde::Serialize;
use utoipa::ToSchema;

/// One point of the charts.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Point {
    #[serde(skip)]
    pub(crate) at_ms: u64,
    /// Held locks and waiters of all clients; null while Redis does not respond.
    pub(crate) held: Option<i64>,
    pub(crate) waiting: Option<i64>,
    /// Per second, for locks of this instance over HTTP.
    pub(crate) acquired: f64,
    pub(crate) busy: f64,
    pub(crate) released: f64,
    pub(crate) lost: f64,
    pub(crate) renewed: f64,
    pub(crate) wait_p50_ms: Option<f64>,
    pub(crate) wait_p99_ms: Option<f64>,
    pub(crate) hold_p50_ms: Option<f64>,
    pub(crate) hold_p99_ms: Option<f64>,
    /// Latency of Redis.
    pub(crate) store_ms: Option<f64>,
}
