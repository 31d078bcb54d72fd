//! The settings of a run.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::refused::Refused;
use crate::ways::Way;

/// How the stock is sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Read, wait, write back: oversells.
    Naive,
    /// The same with a lock and its fence.
    Lock,
    /// Check, subtract and queue in one step.
    Script,
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The instance that holds the lock pauses longer than its lease.
    PauseHolder,
    /// The holder works longer than its lease, without renewals.
    DropRenewals,
    /// The instance that holds the lock dies without releasing it.
    KillHolder,
}

/// The settings of a run.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// How to sell.
    pub mode: Mode,
    /// Units in stock, 1 to 100 000.
    #[serde(default = "stock")]
    #[schema(default = stock, minimum = 1, maximum = 100_000)]
    pub stock: u64,
    /// Number of buyers, one unit each, 1 to 100 000.
    #[serde(default = "buyers")]
    #[schema(default = buyers, minimum = 1, maximum = 100_000)]
    pub buyers: u64,
    /// Concurrent buyers over all instances: at least one per instance, at most 1 000.
    #[serde(default = "concurrency")]
    #[schema(default = concurrency, minimum = 1, maximum = 1_000)]
    pub concurrency: u64,
    /// Number of instances, each with its own thread and clients, 1 to 16.
    #[serde(default = "instances")]
    #[schema(default = instances, minimum = 1, maximum = 16)]
    pub instances: u64,
    /// Average time between reading and writing the stock, at most 1 000.
    #[serde(default = "work_ms")]
    #[schema(default = work_ms, maximum = 1_000)]
    pub work_ms: u64,
    /// How long a lease lasts without renewal, 100 to 60 000.
    #[serde(default = "ttl_ms")]
    #[schema(default = ttl_ms, minimum = 100, maximum = 60_000)]
    pub ttl_ms: u64,
    /// Fault for the first holder.
    pub fault: Option<Fault>,
    /// Seed of the random order times; default: random.
    pub seed: Option<u32>,
}

impl Mode {
    pub(crate) fn way(self) -> Way {
        match self {
            Self::Naive => Way::Naive,
            Self::Lock => Way::Lock,
            Self::Script => Way::Script,
        }
    }
}

impl Plan {
    /// Refuses values out of range: users of the page must not overload the machine.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        within("stock", self.stock, 1..=100_000)?;
        within("buyers", self.buyers, 1..=100_000)?;
        within("instances", self.instances, 1..=16)?;
        within("concurrency", self.concurrency, self.instances..=1_000)?;
        within("work_ms", self.work_ms, 0..=1_000)?;
        within("ttl_ms", self.ttl_ms, 100..=60_000)
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// How many buyers one instance serves at once.
    pub(crate) fn share(&self, instance: u64) -> u64 {
        let rest = u64::from(instance < self.concurrency % self.instances);
        self.concurrency / self.instances + rest
    }
}

fn within(field: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), Refused> {
    if range.contains(&value) {
        return Ok(());
    }
    let (from, to): (&dyn Display, &dyn Display) = (range.start(), range.end());
    let detail = format!("invalid `{field}` `{value}`: expected {from} to {to}");
    Err(Refused::Invalid(detail))
}

fn stock() -> u64 {
    100
}

fn buyers() -> u64 {
    500
}

fn concurrency() -> u64 {
    50
}

fn instances() -> u64 {
    4
}

fn work_ms() -> u64 {
    5
}

fn ttl_ms() -> u64 {
    2_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_concurrency() {
        let text = r#"{"mode": "lock", "concurrency": 50, "instances": 4}"#;
        let plan: Plan = serde_json::from_str(text).unwrap();
        let shares: Vec<u64> = (0..4).map(|instance| plan.share(instance)).collect();
        assert_eq!(shares, [13, 13, 12, 12]);
    }
}
