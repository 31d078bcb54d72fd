//! Whether the next waiter was served in time when those before it were gone.

use std::time::Duration;

use tenure_testkit::History;
use tenure_testkit::check::Violation;
use tenure_testkit::history::Fault;

use crate::allowance::{self, Check, Class, Footing};
use crate::client::CROWD_TTL;
use crate::judge::Verdict;
use crate::nemesis::Kind;

/// After the end of the lease that a dead holder left: a second by the promise, and what ten processes
/// on two cores may need besides. It is less than a turn of each dead waiter would take.
const SERVED_WITHIN: Duration = Duration::from_secs(4);

/// Looks at the faults that left a line without its first waiters: each lasted until others had had
/// the lock several times.
pub fn next_served(history: &History, footing: Footing, class: Class) -> Verdict {
    let gone = [Kind::KillFirstWaiters, Kind::PauseFirstWaiters].map(Kind::name);
    let faults = history.faults.iter();
    let faults = faults.filter(|fault| fault.took_effect && gone.contains(&&*fault.kind));
    let late = faults.filter(|fault| took(fault) > CROWD_TTL + SERVED_WITHIN);
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
