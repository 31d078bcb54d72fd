//! No two clients believe that they hold the same lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::holds::{Hold, by_lock, holds};
use super::violation::Violation;
use crate::history::{History, Mode};

/// Believed exclusion: an exclusive hold overlaps no other hold of its lock, from the return of
/// its grant to the earliest of its release's call, its deadline as last believed, the notice of
/// its loss and its process's death. Permits are ignored; see [`permits`].
pub fn exclusion(history: &History) -> Vec<Violation> {
    let holds = holds(history);
    let holds = holds.iter().filter(|hold| hold.grant.mode != Mode::Permit);
    let mut violations = Vec::new();
    for (lock, holds) in by_lock(holds, |hold| &hold.grant.lock) {
        sweep(lock, &holds, &mut violations);
    }
    violations
}

/// Believed permits: at most `permits_max` holds of [`Mode::Permit`] on `lock` at any time.
pub fn permits(history: &History, lock: &str, permits_max: usize) -> Vec<Violation> {
    let holds = holds(history);
    let permits = holds
        .iter()
        .filter(|hold| hold.grant.mode == Mode::Permit && hold.grant.lock == lock);
    at_once(lock, permits, permits_max)
}

/// Believed slots: each hold of a lock `<semaphore>#<number>` is a slot of the semaphore. At most `limit`
/// of them at any time, and only numbers below it. That no slot has two holders is for [`exclusion`].
pub fn slots(history: &History, semaphore: &str, limit: usize) -> Vec<Violation> {
    let slot_of = |hold: &Hold<'_>| -> Option<usize> {
        let rest = hold.grant.lock.strip_prefix(semaphore)?;
        rest.strip_prefix('#')?.parse().ok()
    };
    let holds = holds(history);
    let slots: Vec<&Hold<'_>> = holds
        .iter()
        .filter(|hold| slot_of(hold).is_some())
        .collect();
    let beyond = slots.iter().filter(|hold| slot_of(hold) >= Some(limit));
    let beyond = beyond.map(|hold| {
        let evidence = format!("there are `{limit}` slots");
        Violation::new("no such slot", semaphore, &[&evidence, hold])
    });
    let mut violations: Vec<Violation> = beyond.collect();
    violations.extend(at_once(semaphore, slots.iter().copied(), limit));
    violations
}

/// At most so many of these holds at any time.
fn at_once<'a, 'b: 'a>(
    lock: &str,
    permits: impl Iterator<Item = &'a Hold<'b>>,
    permits_max: usize,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut ends = BinaryHeap::new();
    for hold in permits.filter(|hold| hold.was_believed()) {
        while ends
            .peek()
            .is_some_and(|&Reverse(end)| end <= hold.start_ns())
        {
            ends.pop();
        }
        ends.push(Reverse(hold.end_ns()));
        if ends.len() > permits_max {
            let held = format!("`{}` of `{permits_max}` permits held", ends.len());
            violations.push(Violation::new("too many permits", lock, &[&held, hold]));
        }
    }
    violations
}

/// Sweeps the holds of one lock by their start. Remembering the one that ends last is enough: if a
/// new hold overlaps any earlier one, it overlaps that one.
fn sweep(lock: &str, holds: &[&Hold<'_>], violations: &mut Vec<Violation>) {
    let mut last: Option<&Hold<'_>> = None;
    let mut last_exclusive: Option<&Hold<'_>> = None;
    for hold in holds.iter().filter(|hold| hold.was_believed()) {
        let exclusive = hold.grant.mode == Mode::Exclusive;
        let rival = if exclusive { last } else { last_exclusive };
        if let Some(rival) = rival.filter(|rival| rival.end_ns() > hold.start_ns()) {
            violations.push(Violation::new("held twice", lock, &[rival, hold]));
        }
        last = Some(ends_later(last, hold));
        if exclusive {
            last_exclusive = Some(ends_later(last_exclusive, hold));
        }
    }
}

fn ends_later<'a, 'b>(one: Option<&'a Hold<'b>>, other: &'a Hold<'b>) -> &'a Hold<'b> {
    one.filter(|one| one.end_ns() >= other.end_ns())
        .unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{Event, Fault, Op, Outcome};

    fn violations(events: Vec<Event>) -> usize {
        exclusion(&History::new(events, vec![])).len()
    }

    fn with_mode(mode: Mode, event: Event) -> Event {
        Event { mode, ..event }
    }

    #[test]
    fn consecutive_holds_are_fine() {
        // The second grant was requested early and came after the release was called.
        assert_eq!(
            violations(vec![
                grant(1, 0, 10, 100),
                release(1, 20, 25),
                grant(2, 5, 22, 100)
            ]),
            0
        );
        // There was no release, but the first had stopped believing.
        assert_eq!(
            violations(vec![grant(1, 0, 10, 100), grant(2, 5, 100, 200)]),
            0
        );
        // The first has noticed its loss.
        assert_eq!(
            violations(vec![
                grant(1, 0, 10, 100),
                lost(1, 30),
                grant(2, 5, 40, 200)
            ]),
            0
        );
    }

    fn of_slot(slot: u64, event: &Event) -> Event {
        Event {
            lock: format!("s#{slot}"),
            ..event.clone()
        }
    }

    fn slot_rules(events: Vec<Event>) -> Vec<&'static str> {
        let found = slots(&History::new(events, vec![]), "s", 2);
        found.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn slots_up_to_the_limit_are_fine() {
        let both = vec![
            of_slot(0, &grant(1, 0, 10, 100)),
            of_slot(1, &grant(2, 0, 10, 100)),
            of_slot(1, &grant(3, 0, 100, 200)),
        ];
        assert!(slot_rules(both).is_empty());
    }

    #[test]
    fn a_slot_too_many_is_found() {
        let three = vec![
            of_slot(0, &grant(1, 0, 10, 100)),
            of_slot(1, &grant(2, 0, 10, 100)),
            of_slot(1, &grant(3, 0, 50, 200)),
        ];
        assert_eq!(slot_rules(three), ["too many permits"]);
    }

    #[test]
    fn a_slot_beyond_the_limit_is_found() {
        assert_eq!(
            slot_rules(vec![of_slot(2, &grant(1, 0, 10, 100))]),
            ["no such slot"]
        );
        // Another semaphore, and a lock.
        let other = Event {
            lock: "so#7".into(),
            ..grant(1, 0, 10, 100)
        };
        assert!(slot_rules(vec![other, grant(2, 0, 10, 100)]).is_empty());
    }

    #[test]
    fn overlapping_holds_are_found() {
        let found = exclusion(&History::new(
            vec![
                grant(1, 0, 10, 100),
                release(1, 90, 95),
                grant(2, 5, 50, 200),
            ],
            vec![],
        ));
        assert_eq!(found.len(), 1);
        let text = found[0].to_string();
        assert!(text.contains("held twice: `a`"), "{text}");
        assert!(
            text.contains("client 1") && text.contains("client 2"),
            "{text}"
        );
    }

    #[test]
    fn a_short_hold_inside_a_long_one_does_not_hide_a_third() {
        assert_eq!(
            violations(vec![
                grant(1, 0, 10, 100),
                grant(2, 0, 20, 30),
                grant(3, 0, 50, 60)
            ]),
            2
        );
    }

    #[test]
    fn other_locks_do_not_matter() {
        let mut other = grant(2, 5, 50, 200);
        other.lock = "b".into();
        assert_eq!(violations(vec![grant(1, 0, 10, 100), other]), 0);
    }

    #[test]
    fn a_renewal_lengthens_the_belief() {
        let renewal = Event {
            believed_until_ns: Some(300),
            ..event(1, Op::Renew, Outcome::Granted, 50, 60)
        };
        let events = vec![grant(1, 0, 10, 100), renewal, grant(2, 5, 150, 400)];
        assert_eq!(violations(events), 1);
    }

    #[test]
    fn the_belief_at_the_release_counts() {
        let late_release = Event {
            believed_until_ns: Some(300),
            ..release(1, 200, 210)
        };
        let events = vec![grant(1, 0, 10, 100), late_release, grant(2, 5, 150, 400)];
        assert_eq!(violations(events), 1);
    }

    #[test]
    fn a_release_counts_from_its_call_even_if_its_client_was_killed_in_it() {
        let releasing = event(1, Op::Releasing, Outcome::Done, 20, 20);
        let kill = fault(Fault::KILL_CLIENT, 1, 25, 60);
        let events = vec![grant(1, 0, 10, 100), releasing, grant(2, 5, 30, 200)];
        assert!(exclusion(&History::new(events, vec![kill.clone()])).is_empty());
        let events = vec![grant(1, 0, 10, 100), grant(2, 5, 30, 200)];
        assert_eq!(exclusion(&History::new(events, vec![kill])).len(), 1);
    }

    #[test]
    fn a_killed_client_holds_nothing() {
        let kill = fault(Fault::KILL_CLIENT, 1, 15, 20);
        let events = vec![grant(1, 0, 10, 100), grant(2, 5, 30, 200)];
        assert!(exclusion(&History::new(events, vec![kill])).is_empty());
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let shared = |event| with_mode(Mode::Shared, event);
        let readers = [shared(grant(1, 0, 10, 100)), shared(grant(2, 0, 20, 90))];
        assert_eq!(violations(readers.to_vec()), 0);
        let mut with_writer = readers.to_vec();
        with_writer.push(grant(3, 0, 95, 200));
        assert_eq!(violations(with_writer), 1);
        let reader_in_writer = vec![grant(1, 0, 10, 100), shared(grant(2, 0, 20, 90))];
        assert_eq!(violations(reader_in_writer), 1);
    }

    #[test]
    fn permits_are_counted() {
        let permit = |event| with_mode(Mode::Permit, event);
        let events = vec![
            permit(grant(1, 0, 10, 100)),
            permit(grant(2, 0, 20, 50)),
            permit(grant(3, 0, 50, 90)),
        ];
        let history = History::new(events, vec![]);
        assert!(permits(&history, "a", 2).is_empty());
        assert_eq!(permits(&history, "a", 1).len(), 2);
        assert!(exclusion(&history).is_empty());
    }
}
