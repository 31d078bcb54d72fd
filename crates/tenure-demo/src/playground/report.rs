//! A run as programs read it.

#![expect(
    missing_docs,
    reason = "a comment would become a description in the OpenAPI document; the names say it"
)]

use serde::Serialize;
use utoipa::ToSchema;

use super::curve::Point;
use super::plan::{Fault, Mode};

/// A run: what was planned, and what has come of it so far.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunReport {
    /// Its name, which its stock and its lock carry too.
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
    /// The units that the store says are left.
    pub left: i64,
    /// Orders that were confirmed, each written down with its buyer and its unit.
    pub sold: u64,
    /// How many of them are more than there were units.
    pub oversold: u64,
    /// Buyers who were told that nothing is left.
    pub sold_out: u64,
    /// Writes that the stock refused: their fence was older than one that it had seen.
    pub refused_stale: u64,
    /// Holders who noticed themselves that they had lost the lock.
    pub lost: u64,
    /// Orders for a unit that somebody else has too.
    pub duplicates: u64,
    pub sold_per_s: f64,
    /// The time within which half of all buyers had their answer.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub by_instance: Vec<InstanceReport>,
    /// Milliseconds after the beginning, and the stock less what was sold by then: below zero once
    /// units were sold that never were.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<i64>>>)]
    pub curve: Option<Vec<Point>>,
    pub faults: Vec<FaultReport>,
    /// Whether every unit is either left or sold, once.
    pub holds: bool,
    /// The same with its numbers.
    #[schema(example = "initial 100 = left 0 + sold 100")]
    pub invariant: String,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    /// Every buyer was served.
    Done,
    /// Somebody stopped it, or its time was over.
    Stopped,
    Failed,
}

/// One of the processes that sell.
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
    /// It stands still.
    Paused,
    Killed,
    Done,
}

/// What was done to a run, and what came of that.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FaultReport {
    /// When it struck; when it was asked for, until then.
    pub at_ms: u64,
    pub fault: Fault,
    /// In words.
    pub told: String,
}

/// What is told of a run while it goes on.
#[derive(Debug, Serialize)]
pub struct RunUpdate {
    #[serde(flatten)]
    pub run: RunReport,
    /// What the curve got since the last one.
    pub curve_tail: Vec<Point>,
}

/// All runs that are remembered, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunList {
    pub runs: Vec<RunReport>,
}
