//! Fences only grow.

use std::collections::HashMap;

use super::holds::{by_lock, is_grant};
use super::violation::Violation;
use crate::history::{Event, History, Op, Outcome};

/// The rule that a later grant has a greater fence.
pub const FENCE_WENT_BACK: &str = "fence went back";

/// Fences of one lock are unique. A grant requested after another had returned has a greater one.
/// Re-entering and renewing keep the fence.
///
/// Grants without a fence are ignored.
pub fn fences(history: &History) -> Vec<Violation> {
    let fenced = history.events.iter().filter(|event| event.fence.is_some());
    let mut violations = Vec::new();
    for (lock, events) in by_lock(fenced, |event| &event.lock) {
        let grants: Vec<&Event> = events.iter().copied().filter(|e| is_grant(e)).collect();
        unique(lock, &grants, &mut violations);
        growing(lock, &grants, &mut violations);
        constant(lock, &grants, &events, &mut violations);
    }
    violations
}

fn unique(lock: &str, grants: &[&Event], violations: &mut Vec<Violation>) {
    let mut grants = grants.to_vec();
    grants.sort_by_key(|grant| (grant.fence, grant.call_ns));
    for pair in grants
        .windows(2)
        .filter(|pair| pair[0].fence == pair[1].fence)
    {
        violations.push(Violation::new(
            "same fence twice",
            lock,
            &[pair[0], pair[1]],
        ));
    }
}

/// Sweeps by call time and compares with the greatest fence returned before each call.
fn growing(lock: &str, by_call: &[&Event], violations: &mut Vec<Violation>) {
    let mut by_return = by_call.to_vec();
    by_return.sort_by_key(|grant| grant.return_ns);
    let mut returned = by_return.into_iter().peekable();
    let mut greatest: Option<&Event> = None;
    for grant in by_call {
        while let Some(earlier) = returned.next_if(|other| other.return_ns < grant.call_ns) {
            if greatest.is_none_or(|greatest| earlier.fence > greatest.fence) {
                greatest = Some(earlier);
            }
        }
        // Equal fences are reported by `unique`.
        if let Some(greatest) = greatest.filter(|greatest| greatest.fence > grant.fence) {
            let evidence: [&dyn std::fmt::Display; 2] = [greatest, grant];
            violations.push(Violation::new(FENCE_WENT_BACK, lock, &evidence));
        }
    }
}

fn constant(lock: &str, grants: &[&Event], events: &[&Event], violations: &mut Vec<Violation>) {
    let of_hold: HashMap<(u64, u64), &Event> = grants
        .iter()
        .map(|grant| ((grant.client, grant.hold), *grant))
        .collect();
    let later = events.iter().filter(|event| {
        matches!(event.op, Op::Reenter | Op::Renew) && event.outcome == Outcome::Granted
    });
    for event in later {
        let grant = of_hold.get(&(event.client, event.hold));
        if let Some(grant) = grant.filter(|grant| grant.fence != event.fence) {
            let evidence: [&dyn std::fmt::Display; 2] = [grant, event];
            violations.push(Violation::new("fence changed in a hold", lock, &evidence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn rules(events: Vec<Event>) -> Vec<&'static str> {
        let violations = fences(&History::new(events, vec![]));
        violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn growing_fences_are_fine() {
        let nested = event(1, Op::Reenter, Outcome::Granted, 12, 13);
        let events = vec![
            fenced(1, grant(1, 0, 10, 100)),
            fenced(1, nested),
            fenced(7, grant(2, 20, 30, 100)),
            grant(3, 40, 50, 100),
        ];
        assert!(rules(events).is_empty());
    }

    #[test]
    fn concurrent_grants_may_be_fenced_in_any_order() {
        let events = vec![
            fenced(2, grant(1, 0, 10, 100)),
            fenced(1, grant(2, 10, 15, 100)),
        ];
        assert!(rules(events).is_empty());
    }

    #[test]
    fn a_fence_that_went_back_is_found() {
        // The greatest fence is not the latest one.
        let events = vec![
            fenced(9, grant(1, 0, 10, 100)),
            fenced(3, grant(2, 5, 12, 100)),
            fenced(4, grant(3, 20, 30, 100)),
        ];
        assert_eq!(rules(events), ["fence went back"]);
    }

    #[test]
    fn a_fence_used_twice_is_found_even_if_concurrent() {
        let events = vec![
            fenced(2, grant(1, 0, 10, 100)),
            fenced(2, grant(2, 5, 15, 100)),
        ];
        assert_eq!(rules(events), ["same fence twice"]);
    }

    #[test]
    fn a_fence_raised_by_reentry_is_found() {
        let nested = event(1, Op::Reenter, Outcome::Granted, 12, 13);
        let events = vec![fenced(1, grant(1, 0, 10, 100)), fenced(2, nested)];
        assert_eq!(rules(events), ["fence changed in a hold"]);
    }

    #[test]
    fn each_lock_has_its_own_fences() {
        let mut other = fenced(1, grant(2, 20, 30, 100));
        other.lock = "b".into();
        assert!(rules(vec![fenced(5, grant(1, 0, 10, 100)), other]).is_empty());
    }
}
