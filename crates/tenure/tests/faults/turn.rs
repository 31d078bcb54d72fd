//! Whether the next waiter was served in time when those before it were gone.

use std::time::Duration;

use tenure_testkit::History;
use tenure_testkit::check::Violation;
use tenure_testkit::history::Fault;

use crate::allowance::{self, Check, Class, Footing};
use crate::client::CROWD_TTL;
use crate::judge::Verdict;
use crate::nemesis::Kind;

/// How long it may take until several others have had the lock, when six or more before them are dead:
/// the lease of the holder, half a second for each whom nobody hears any more, and as much again for
/// ten processes on two cores. A turn of two seconds for each of them would be much more.
const BEHIND_THE_DEAD: Duration = Duration::from_secs(8);
/// Who is paused counts as living for six seconds, and may have been offered the lock just then.
const BEHIND_THE_PAUSED: Duration = Duration::from_millis(11_500);

/// Looks at the faults that left a line without its first waiters: each lasted until others had had
/// the lock several times.
pub fn next_served(history: &History, footing: Footing, class: Class) -> Verdict {
    let limit = |fault: &Fault| match &*fault.kind {
        kind if kind == Kind::KillFirstWaiters.name() => Some(BEHIND_THE_DEAD),
        kind if kind == Kind::PauseFirstWaiters.name() => Some(BEHIND_THE_PAUSED),
        _ => None,
    };
    let faults = history.faults.iter();
    let late = faults.filter(|fault| limit(fault).is_some_and(|limit| took(fault) > limit));
    let check = Check::NextServed;
    Verdict {
        check,
        footing,
        violations: late.map(as_violation).collect(),
        must_hold: allowance::must_hold(footing, class, check),
    }
}

fn took(fault: &Fault) -> Duration {
    Duration::from_nanos(fault.end_ns - fault.start_ns)
}

fn as_violation(fault: &Fault) -> Violation {
    let took = took(fault);
    Violation {
        rule: "the next waiter was not served in time",
        subject: fault.kind.clone(),
        evidence: vec![
            fault.to_string(),
            format!("it took {took:.1?}, with a lease of {CROWD_TTL:?}"),
        ],
    }
}
