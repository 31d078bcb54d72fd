//! What may not hold on which deployment: everything else must, or the run fails.
//!
//! docs/testing.md shows this table, and each run compares the two before it begins.

use std::fmt::Write as _;

use tenure_testkit::sale::Allowed;

use crate::deployment::Deployment;

pub struct Row {
    pub deployment: Deployment,
    pub allowed: Allowed,
    what: &'static str,
    why: &'static str,
}

const NOTHING: Allowed = Allowed {
    lossy: false,
    uncounted: false,
    dead: 0,
};

const LOSSY: Allowed = Allowed {
    lossy: true,
    uncounted: true,
    ..NOTHING
};
const LOST_OR_REJECTED: &str = "accepted orders that were not confirmed may be *lost* or *rejected*, if the buyer is told; their \
     requests may get another order";

/// Each deployment with what is allowed there.
pub const TABLE: &[Row] = &[
    Row {
        deployment: Deployment::Single,
        allowed: NOTHING,
        what: "nothing",
        why: "what was written to an append-only file before the reply survives the server's death",
    },
    Row {
        deployment: Deployment::Sentinel,
        allowed: LOSSY,
        what: LOST_OR_REJECTED,
        why: "a promoted replica does not have what its master acknowledged last",
    },
    Row {
        deployment: Deployment::Cluster,
        allowed: LOSSY,
        what: "the same",
        why: "a promoted replica of a shard does not have what its master acknowledged last",
    },
    Row {
        deployment: Deployment::Damaged,
        allowed: LOSSY,
        what: "the same",
        why: "what was accepted and not confirmed is only in the queue, and operators delete queues",
    },
];

/// What is allowed on this deployment.
pub fn of(deployment: Deployment) -> Allowed {
    let row = TABLE.iter().find(|row| row.deployment == deployment);
    row.map_or(NOTHING, |row| row.allowed)
}

/// Panics unless docs/testing.md shows the table as it is.
pub fn assert_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = in_markdown();
    assert!(
        text.contains(&table),
        "docs/testing.md does not show what is allowed:\n{table}"
    );
}

fn in_markdown() -> String {
    let mut text = String::from("| gate | allowed | because |\n|---|---|---|\n");
    for row in TABLE {
        let _ = writeln!(text, "| {} | {} | {} |", row.deployment, row.what, row.why);
    }
    text
}
