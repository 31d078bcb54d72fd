//! Who came first was served first.

use std::time::Duration;

use super::holds::is_grant;
use super::violation::Violation;
use crate::history::{Event, Fault, History, whole_ns};

/// Order: nobody who asked for `lock` more than `slack` after another caller was granted it before that
/// one. `slack` is for the time until a call is in the queue.
///
/// Callers that were not granted it do not count: they may have given up. Nor does a wait during which a
/// fault of its own client happened, or one of no particular client that `hinders`: it may have lost its
/// place.
pub fn order(
    history: &History,
    lock: &str,
    slack: Duration,
    hinders: impl Fn(&Fault) -> bool,
) -> Vec<Violation> {
    let grants = history.events.iter();
    let mut grants: Vec<&Event> = grants
        .filter(|event| is_grant(event) && event.lock == lock)
        .collect();
    grants.sort_by_key(|grant| grant.return_ns);
    let slack_ns = whole_ns(slack);
    let mut violations = Vec::new();
    for (at, passed) in grants.iter().enumerate() {
        let came_later = |other: &&&Event| {
            other.call_ns > passed.call_ns.saturating_add(slack_ns)
                // The two returns may be seen in another order than they were granted.
                && other.return_ns.saturating_add(slack_ns) < passed.return_ns
        };
        let Some(other) = grants[..at].iter().find(came_later) else {
            continue;
        };
        let disturbed = history.faults.iter().any(|fault| {
            let concerns = fault
                .client
                .map_or_else(|| hinders(fault), |it| it == passed.client);
            concerns && fault.start_ns < passed.return_ns && fault.end_ns > passed.call_ns
        });
        if !disturbed {
            violations.push(Violation::new("passed a waiter", lock, &[other, passed]));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn found(events: Vec<Event>, faults: Vec<Fault>) -> usize {
        let history = History::new(events, faults);
        let slack = Duration::from_nanos(10);
        order(&history, "a", slack, |fault| fault.kind != "harmless").len()
    }

    #[test]
    fn first_come_first_served_is_fine() {
        let in_order = vec![
            grant(1, 0, 100, 150),
            grant(2, 20, 200, 250),
            grant(3, 40, 300, 350),
        ];
        assert_eq!(found(in_order, vec![]), 0);
        // So close together that nobody knows who was first.
        let close = vec![grant(1, 0, 200, 250), grant(2, 10, 100, 150)];
        assert_eq!(found(close, vec![]), 0);
    }

    #[test]
    fn a_waiter_that_was_passed_is_found() {
        let passed = || vec![grant(1, 0, 200, 250), grant(2, 11, 100, 150)];
        assert_eq!(found(passed(), vec![]), 1);
        let harmless = Fault {
            client: None,
            ..fault("harmless", 0, 50, 60)
        };
        assert_eq!(found(passed(), vec![harmless]), 1);
        assert_eq!(found(passed(), vec![fault("pause-client", 2, 50, 60)]), 1);
    }

    #[test]
    fn who_may_have_lost_its_place_is_excused() {
        let passed = || vec![grant(1, 0, 200, 250), grant(2, 11, 100, 150)];
        assert_eq!(found(passed(), vec![fault("pause-client", 1, 50, 60)]), 0);
        let of_all = Fault {
            client: None,
            ..fault("kill-server", 0, 50, 60)
        };
        assert_eq!(found(passed(), vec![of_all]), 0);
    }
}
