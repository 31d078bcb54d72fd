//! What may be violated on which deployment: everything else must hold, or the run fails.
//!
//! docs/testing.md shows this table, and each run compares the two before it begins.

use std::fmt::{self, Write as _};

use super::deployment::Deployment;

/// What a lock stands on: the deployment, and what the lock asks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Footing {
    Plain(Deployment),
    /// Each grant and renewal is confirmed by all replicas.
    Replicated(Deployment),
}

/// The worst that happens in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Whatever breaks, no server loses what it has promised to keep, and no lease ends early by its
    /// clock.
    Kept,
    /// Servers lose data that they had promised to keep.
    Lost,
    /// A server's clock is set forward.
    ClockSet,
    /// Servers that promise to keep nothing come back empty.
    Forgetful,
    /// A replica takes its master's place.
    FailedOver,
}

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    HeldOnce,
    FencesUnique,
    FencesGrow,
    GrantedFencesGrow,
    ResourceWhole,
    FreeAfterHealing,
    WaitsBounded,
    NothingLeftOver,
    LossNoticed,
    ClientsUnharmed,
    CallsInTime,
}

/// What is counted and reported only, because nobody promises it.
pub struct Row {
    pub footing: Footing,
    pub class: Class,
    pub counted: &'static [Check],
    pub why: &'static str,
}

use Check::{FencesGrow, GrantedFencesGrow, HeldOnce, LossNoticed, NothingLeftOver};
use Deployment::{Cluster, Redlock, Sentinel, Single};
use Footing::{Plain, Replicated};

const OF_A_FAILOVER: &[Check] = &[
    HeldOnce,
    FencesGrow,
    GrantedFencesGrow,
    NothingLeftOver,
    LossNoticed,
];
const LOST_WRITES: &str = "what the old master granted or released last is not on the new one, \
     and the old one goes on for a moment";
const LOST_RELEASE: &str = "a release waits for no replica: the new master may not know of it";

/// Each row widens what its footing may do in phases of that class. A pair without a row may do
/// nothing.
pub const TABLE: &[Row] = &[
    Row {
        footing: Plain(Single),
        class: Class::Lost,
        counted: &[HeldOnce, FencesGrow, LossNoticed],
        why: "a lease that is deleted can be granted again before its holder knows",
    },
    Row {
        footing: Plain(Single),
        class: Class::ClockSet,
        counted: &[HeldOnce, FencesGrow, LossNoticed],
        why: "leases end early by the server's clock",
    },
    Row {
        footing: Plain(Redlock),
        class: Class::Lost,
        counted: &[HeldOnce, FencesGrow, LossNoticed],
        why: "a lease that stands on a bare majority needs each node of it to remember",
    },
    Row {
        footing: Plain(Redlock),
        class: Class::ClockSet,
        counted: &[HeldOnce, FencesGrow, LossNoticed],
        why: "a lease that stands on a bare majority needs each node of it to let it last",
    },
    Row {
        footing: Plain(Sentinel),
        class: Class::FailedOver,
        counted: OF_A_FAILOVER,
        why: LOST_WRITES,
    },
    Row {
        footing: Replicated(Sentinel),
        class: Class::FailedOver,
        counted: &[NothingLeftOver],
        why: LOST_RELEASE,
    },
    Row {
        footing: Plain(Cluster),
        class: Class::FailedOver,
        counted: OF_A_FAILOVER,
        why: LOST_WRITES,
    },
    Row {
        footing: Replicated(Cluster),
        class: Class::FailedOver,
        counted: &[NothingLeftOver],
        why: LOST_RELEASE,
    },
];

/// Whether a violation fails the run.
pub fn must_hold(footing: Footing, class: Class, check: Check) -> bool {
    let rows = TABLE.iter();
    let mut of_both = rows.filter(|row| row.footing == footing && row.class == class);
    !of_both.any(|row| row.counted.contains(&check))
}

/// Panics unless docs/testing.md shows the table as it is.
pub fn assert_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = in_markdown();
    assert!(
        text.contains(&table),
        "docs/testing.md does not show what may be violated:\n{table}"
    );
}

fn in_markdown() -> String {
    let mut text = String::from("| locks | when | counted only | because |\n|---|---|---|---|\n");
    for row in TABLE {
        let counted: Vec<&str> = row.counted.iter().map(|check| check.name()).collect();
        let (footing, class, counted) = (row.footing, row.class, counted.join(", "));
        let _ = writeln!(text, "| {footing} | {class} | {counted} | {} |", row.why);
    }
    text
}

impl Check {
    pub fn name(self) -> &'static str {
        match self {
            Self::HeldOnce => "C1 held once",
            Self::FencesUnique => "C2 fences unique",
            Self::FencesGrow => "C2 fences grow",
            Self::GrantedFencesGrow => "C2 granted fences grow",
            Self::ResourceWhole => "C3 resource whole",
            Self::FreeAfterHealing => "C5 free after healing",
            Self::WaitsBounded => "C5 waits bounded",
            Self::NothingLeftOver => "C5 nothing left over",
            Self::LossNoticed => "C6 loss noticed",
            Self::ClientsUnharmed => "clients unharmed",
            Self::CallsInTime => "calls in time and reason",
        }
    }
}

impl fmt::Display for Footing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(deployment) => write!(f, "{deployment}"),
            Self::Replicated(deployment) => write!(f, "{deployment}, `replicas` all"),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "nothing is lost",
            Self::Lost => "data are lost",
            Self::ClockSet => "a clock is set forward",
            Self::Forgetful => "servers without AOF come back empty",
            Self::FailedOver => "a replica was promoted",
        })
    }
}
