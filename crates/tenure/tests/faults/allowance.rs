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
    /// A new master gives no new locks until old leases have ended: `after_failover`.
    Patient(Deployment),
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
    NextServed,
    InOrder,
    ClientsUnharmed,
    CallsInTime,
}

/// What is only counted and reported, because it is not guaranteed.
pub struct Row {
    pub footings: &'static [Footing],
    pub class: Class,
    pub counted: &'static [Check],
    /// Words of the line in docs/guarantees.md that says so.
    pub said: &'static str,
    pub why: &'static str,
}

use Check::{FencesGrow, HeldOnce, LossNoticed, NothingLeftOver};
use Deployment::{Cluster, Redlock, Sentinel, Single};
use Footing::{Patient, Plain, Replicated};

/// Two holders, and what follows from it.
const TWO_HOLDERS: &[Check] = &[HeldOnce, FencesGrow, LossNoticed];

/// Each row widens what its footings may do in phases of that class. A pair without a row may do
/// nothing.
pub const TABLE: &[Row] = &[
    Row {
        footings: &[Plain(Single)],
        class: Class::Lost,
        counted: TWO_HOLDERS,
        said: "the server restarts without its data",
        why: "a lease that is deleted can be granted again before its holder knows",
    },
    Row {
        footings: &[Plain(Single)],
        class: Class::ClockSet,
        counted: TWO_HOLDERS,
        said: "the server's clock steps forward",
        why: "leases end early by the server's clock",
    },
    Row {
        footings: &[Plain(Redlock)],
        class: Class::Lost,
        counted: TWO_HOLDERS,
        said: "a node with AOF `always` comes back empty, or is flushed",
        why: "a lease that stands on a bare majority needs each node of it to remember",
    },
    Row {
        footings: &[Plain(Redlock)],
        class: Class::ClockSet,
        counted: TWO_HOLDERS,
        said: "one node's clock is set forward",
        why: "a lease that stands on a bare majority needs each node of it to let it last",
    },
    Row {
        footings: &[Plain(Single), Plain(Sentinel), Plain(Cluster)],
        class: Class::FailedOver,
        counted: TWO_HOLDERS,
        said: "the master dies, the replica lacks the lock",
        why: "what the old master granted last is not on the new one, and the old one goes on for a \
              moment",
    },
    Row {
        footings: &[
            Plain(Single),
            Plain(Sentinel),
            Plain(Cluster),
            Replicated(Sentinel),
            Replicated(Cluster),
            Patient(Single),
            Patient(Sentinel),
            Patient(Cluster),
        ],
        class: Class::FailedOver,
        counted: &[NothingLeftOver],
        said: "A release waits for no replica",
        why: "the new master may not know of a release, or of a waiter that has left",
    },
];

/// Whether a violation fails the run.
pub fn must_hold(footing: Footing, class: Class, check: Check) -> bool {
    let rows = TABLE.iter();
    let mut of_both = rows.filter(|row| row.footings.contains(&footing) && row.class == class);
    !of_both.any(|row| row.counted.contains(&check))
}

/// Panics unless docs/testing.md shows the table as it is, and docs/guarantees.md has the line that
/// each row goes back to.
pub fn assert_documented() {
    let docs = |name: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
        std::fs::read_to_string(format!("{path}{name}")).unwrap()
    };
    let table = in_markdown();
    assert!(
        docs("testing.md").contains(&table),
        "docs/testing.md does not show what may be violated:\n{table}"
    );
    let guarantees = docs("guarantees.md");
    for row in TABLE {
        let said = row.said;
        assert!(
            guarantees.contains(said),
            "docs/guarantees.md does not say `{said}`, but the run allows what follows from it"
        );
    }
}

fn in_markdown() -> String {
    let mut text = String::from(
        "| locks | when | counted only | because | in `guarantees.md` |\n|---|---|---|---|---|\n",
    );
    for row in TABLE {
        let counted: Vec<&str> = row.counted.iter().map(|check| check.name()).collect();
        let footings: Vec<String> = row.footings.iter().map(ToString::to_string).collect();
        let (footings, counted) = (footings.join("; "), counted.join(", "));
        let (class, said, why) = (row.class, row.said, row.why);
        let _ = writeln!(
            text,
            "| {footings} | {class} | {counted} | {why} | {said} |"
        );
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
            Self::NextServed => "C7 next waiter served",
            Self::InOrder => "F1 served in order",
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
            Self::Patient(deployment) => write!(f, "{deployment}, `after_failover`"),
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
