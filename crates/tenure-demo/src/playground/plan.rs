//! What a run is to be.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Refused;
use crate::ways::Way;

/// In which way the stock is sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Read, think, write back: sells units twice.
    Naive,
    /// The same under a lock, with its fence.
    Lock,
    /// Check, subtract and queue in one step.
    Script,
}

/// What can be done to a running sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The instance that holds the lock stands still for longer than its lease, with everything in it.
    PauseHolder,
    /// The holder works for longer than its lease, and nothing renews that.
    DropRenewals,
    /// The instance that holds the lock ends without letting go of it.
    KillHolder,
}

/// What a run is to be.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// In which way to sell.
    pub mode: Mode,
    /// How many units there are, 1 to 100 000.
    #[serde(default = "stock")]
    #[schema(default = stock, minimum = 1, maximum = 100_000)]
    pub stock: u64,
    /// How many buyers come, one unit each, 1 to 100 000.
    #[serde(default = "buyers")]
    #[schema(default = buyers, minimum = 1, maximum = 100_000)]
    pub buyers: u64,
    /// How many buyers are served at once by all instances together: as many as those at least, and
    /// at most 1 000.
    #[serde(default = "concurrency")]
    #[schema(default = concurrency, minimum = 1, maximum = 1_000)]
    pub concurrency: u64,
    /// How many processes sell, each with a thread and clients of its own, 1 to 16.
    #[serde(default = "instances")]
    #[schema(default = instances, minimum = 1, maximum = 16)]
    pub instances: u64,
    /// How long an order takes between reading the stock and writing it, on average; at most 1 000.
    #[serde(default = "work_ms")]
    #[schema(default = work_ms, maximum = 1_000)]
    pub work_ms: u64,
    /// How long a lease lasts without renewal, 100 to 60 000.
    #[serde(default = "ttl_ms")]
    #[schema(default = ttl_ms, minimum = 100, maximum = 60_000)]
    pub ttl_ms: u64,
    /// What to do to the first holder.
    pub fault: Option<Fault>,
    /// From which the time that each order takes is drawn; any unless it is given.
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
    /// Refuses what is out of its limits: nobody who reaches the page may keep the machine busy.
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
    let detail = format!("cannot play with `{field}` of `{value}`: it is {from} to {to}");
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
    fn all_instances_together_serve_as_many_as_planned() {
        let text = r#"{"mode": "lock", "concurrency": 50, "instances": 4}"#;
        let plan: Plan = serde_json::from_str(text).unwrap();
        let shares: Vec<u64> = (0..4).map(|instance| plan.share(instance)).collect();
        assert_eq!(shares, [13, 13, 12, 12]);
    }
}
