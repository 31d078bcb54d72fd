//! The report of a run, as JSON.

#![expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]

use serde::Serialize;
use utoipa::ToSchema;

use super::curve::Point;
use super::plan::{Fault, Mode};

/// A run: its settings and results so far.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunReport {
    /// Id, also part of its keys.
    #[schema(example = "play-1f00d5a7")]
    pub id: String,
    pub mode: Mode,
    pub stock: u64,
    pub buyers: u64,
    pub concurrency: u64,
    pub instances: u64,
    pub work_ms: u64,
    pub ttl_ms: u64,
    pub seed: u32,
    pub state: RunState,
    /// Why it failed or was stopped.
    pub detail: Option<String>,
    /// RFC 3339.
    pub started_at: String,
    pub took_ms: u64,
    /// Units left according to the store.
    pub left: i64,
    /// Confirmed orders, recorded apart from the stock.
    pub sold: u64,
    /// Orders beyond the stock.
    pub oversold: u64,
    /// Buyers that got *sold out*.
    pub sold_out: u64,
    /// Writes refused because of an older fence.
    pub refused_stale: u64,
    /// Holders that noticed the loss of their lock.
    pub lost: u64,
    /// Orders for a unit that was sold already.
    pub duplicates: u64,
    pub sold_per_s: f64,
    /// Median response time of buyers.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub by_instance: Vec<InstanceReport>,
    /// Milliseconds since the start, and stock minus sold; below zero when oversold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<i64>>>)]
    pub curve: Option<Vec<Point>>,
    pub faults: Vec<FaultReport>,
    /// Whether stock = left + sold, each unit once.
    pub holds: bool,
    /// The equation with its numbers.
    #[schema(example = "initial 100 = left 0 + sold 100")]
    pub invariant: String,
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    /// Every buyer was served.
    Done,
    /// It was stopped, or reached its time limit.
    Stopped,
    Failed,
}

/// A selling instance.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct InstanceReport {
    /// From 1 on.
    pub instance: u64,
    pub sold: u64,
    pub state: InstanceState,
}

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    Selling,
    /// Paused.
    Paused,
    Killed,
    Done,
}

/// An injected fault and its effect.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FaultReport {
    /// When it was injected; before that, when it was requested.
    pub at_ms: u64,
    pub fault: Fault,
    /// In words.
    pub told: String,
}

/// An update of a run in progress.
#[derive(Debug, Serialize)]
pub struct RunUpdate {
    #[serde(flatten)]
    pub run: RunReport,
    /// New points of the curve.
    pub curve_tail: Vec<Point>,
}

/// The last runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunList {
    pub runs: Vec<RunReport>,
}
