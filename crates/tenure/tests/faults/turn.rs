//! Whether the next waiter was served in time when those before it were gone.

use std::time::Duration;

use tenure_testkit::History;
use tenure_testkit::check::Violation;
use tenure_testkit::history::Fault;

use crate::allowance::{self, Check, Class, Footing};
use crate::client::CROWD_TTL;
use crate::judge::Verdict;
use crate::nemesis::{Kind, WITH_THE_GONE};

/// How long those that are dead may have the lock until several others have had it, when six or more are:
/// the lease of one that held it, and half a second for each whom nobody hears any more. A turn of two
/// seconds for each of them would be more.
const OF_THE_DEAD: Duration = Duration::from_secs(7);
/// Who is paused counts as living for six seconds, and may have been offered the lock just then.
const OF_THE_PAUSED: Duration = Duration::from_secs(10);

/// Looks at the faults that left a line without its first waiters: each lasted until others had had
/// the lock several times. What counts is how long the lock was with those that are gone: a crowded
/// machine delays the others.
pub fn next_served(history: &History, footing: Footing, class: Class) -> Verdict {
    let limit = |fault: &Fault| match &*fault.kind {
        kind if kind == Kind::KillFirstWaiters.name() => Some(OF_THE_DEAD),
        kind if kind == Kind::PauseFirstWaiters.name() => Some(OF_THE_PAUSED),
        _ => None,
    };
    let blocked = |fault: &Fault| {
        let within = |other: &&Fault| {
            other.kind == WITH_THE_GONE && (fault.start_ns..=fault.end_ns).contains(&other.start_ns)
        };
        history
            .faults
            .iter()
            .filter(within)
            .map(took)
            .sum::<Duration>()
    };
    let late = |fault: &&Fault| limit(fault).is_some_and(|limit| blocked(fault) > limit);
    let late = history.faults.iter().filter(late);
    let check = Check::NextServed;
    Verdict {
        check,
        footing,
        violations: late
            .map(|fault| as_violation(fault, blocked(fault)))
            .collect(),
        must_hold: allowance::must_hold(footing, class, check),
    }
}

fn took(fault: &Fault) -> Duration {
    Duration::from_nanos(fault.end_ns - fault.start_ns)
}

fn as_violation(fault: &Fault, blocked: Duration) -> Violation {
    Violation {
        rule: "the next waiter was not served in time",
        subject: fault.kind.clone(),
        evidence: vec![
            fault.to_string(),
            format!(
                "those that are gone had the lock for {blocked:.1?}, with a lease of {CROWD_TTL:?}"
            ),
        ],
    }
}
