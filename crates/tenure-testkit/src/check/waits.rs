//! No client waits for a free lock.

use std::time::Duration;

use super::holds::{Hold, by_lock, holds};
use super::violation::Violation;
use crate::history::{Event, Fault, History, Millis, Op, whole_ns};

/// How long a client may wait for a lock; see [`waits`].
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Continuously, while no client believes that it holds the lock. The lease of a holder that died,
    /// or that never received its grant, must have time to expire.
    pub while_free: Duration,
    /// In total, regardless of the holder.
    pub total: Duration,
    /// How long after its end a fault still counts.
    pub recovery: Duration,
}

/// Waiting: while a client waits for a lock, that lock is not left free for longer than
/// [`while_free`](Patience::while_free), and no wait is longer than [`total`](Patience::total).
///
/// Time does not count while the client itself was paused, nor during a fault that hit no particular
/// client, if it `hinders`. Faults of other clients are no excuse.
pub fn waits(
    history: &History,
    patience: Patience,
    hinders: impl Fn(&Fault) -> bool,
) -> Vec<Violation> {
    let holds = holds(history);
    let holds = holds.iter().filter(|hold| hold.was_believed());
    let holds = by_lock(holds, |hold| &hold.grant.lock);
    let shortest_ns = whole_ns(patience.while_free.min(patience.total));
    let long = history
        .events
        .iter()
        .filter(|event| event.op == Op::Acquire && event.return_ns - event.call_ns > shortest_ns);
    let mut violations = Vec::new();
    for wait in long {
        let of_lock = holds.binary_search_by(|(lock, _)| (*lock).cmp(&*wait.lock));
        let held = of_lock.map_or(&[][..], |index| &*holds[index].1);
        let faults = history.faults.iter().filter(|fault| match fault.client {
            Some(client) => client == wait.client,
            None => hinders(fault),
        });
        violations.extend(too_long(wait, held, faults, patience));
    }
    violations
}

fn too_long<'a>(
    wait: &Event,
    held: &[&Hold<'_>],
    faults: impl Iterator<Item = &'a Fault>,
    patience: Patience,
) -> Option<Violation> {
    let recovery_ns = whole_ns(patience.recovery);
    let faults = faults.map(|fault| Span {
        start_ns: fault.start_ns,
        end_ns: fault.end_ns.saturating_add(recovery_ns),
    });
    let faults: Vec<Span> = faults.collect();
    let counted_ns = |span: Span| -> u64 { span.without(&faults).iter().map(Span::ns).sum() };
    let whole = Span {
        start_ns: wait.call_ns,
        end_ns: wait.return_ns,
    };
    let held: Vec<Span> = held.iter().map(|hold| Span::of(hold)).collect();
    for free in whole.without(&held) {
        let free_ns = counted_ns(free);
        if free_ns > whole_ns(patience.while_free) {
            let (start, end) = (Millis(free.start_ns), Millis(free.end_ns));
            let counted = Millis(free_ns);
            let gap =
                format!("free at {start}..{end} ms, for {counted} ms of that without a fault");
            return Some(Violation::new(
                "free but not granted",
                &wait.lock,
                &[&gap, wait],
            ));
        }
    }
    let waited_ns = counted_ns(whole);
    if waited_ns > whole_ns(patience.total) {
        let waited = format!("for {} ms of its wait without a fault", Millis(waited_ns));
        return Some(Violation::new(
            "waited too long",
            &wait.lock,
            &[&waited, wait],
        ));
    }
    None
}

/// A period of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start_ns: u64,
    end_ns: u64,
}

impl Span {
    fn of(hold: &Hold<'_>) -> Self {
        Self {
            start_ns: hold.start_ns(),
            end_ns: hold.end_ns(),
        }
    }

    fn ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// The parts not covered by `others`, in order.
    fn without(self, others: &[Span]) -> Vec<Span> {
        let mut others: Vec<Span> = others.to_vec();
        others.sort_by_key(|other| other.start_ns);
        let mut left = Vec::new();
        let mut start_ns = self.start_ns;
        for other in others {
            let end_ns = other.start_ns.min(self.end_ns);
            if end_ns > start_ns {
                left.push(Span { start_ns, end_ns });
            }
            start_ns = start_ns.max(other.end_ns);
        }
        if self.end_ns > start_ns {
            let end_ns = self.end_ns;
            left.push(Span { start_ns, end_ns });
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::Outcome;

    const PATIENCE: Patience = Patience {
        while_free: Duration::from_nanos(100),
        total: Duration::from_micros(1),
        recovery: Duration::from_nanos(10),
    };

    fn rules(events: Vec<Event>, faults: Vec<Fault>) -> Vec<&'static str> {
        let history = History::new(events, faults);
        let violations = waits(&history, PATIENCE, |fault| fault.kind != "harmless");
        violations.iter().map(|violation| violation.rule).collect()
    }

    fn waited(outcome: Outcome, call: u64, ret: u64) -> Event {
        event(9, Op::Acquire, outcome, call, ret)
    }

    fn of_all(kind: &str, start: u64, end: u64) -> Fault {
        Fault {
            client: None,
            ..fault(kind, 0, start, end)
        }
    }

    #[test]
    fn waiting_for_a_holder_is_fine() {
        let held = vec![grant(1, 0, 10, 900), waited(Outcome::Granted, 20, 1000)];
        assert!(rules(held, vec![]).is_empty());
        // One holder after another, with short gaps.
        let held = vec![
            grant(1, 0, 10, 300),
            grant(2, 20, 390, 600),
            release(2, 500, 510),
            grant(3, 20, 590, 880),
            waited(Outcome::Granted, 20, 980),
        ];
        assert!(rules(held, vec![]).is_empty());
    }

    #[test]
    fn a_wait_for_a_free_lock_is_found_whatever_its_outcome() {
        for outcome in [
            Outcome::Granted,
            Outcome::Cancelled,
            Outcome::Failed,
            Outcome::Busy,
        ] {
            assert!(rules(vec![waited(outcome, 20, 120)], vec![]).is_empty());
            let found = rules(vec![waited(outcome, 20, 121)], vec![]);
            assert_eq!(found, ["free but not granted"], "{outcome}");
        }
    }

    #[test]
    fn expiry_and_release_free_a_lock() {
        let ended = vec![grant(1, 0, 10, 300), waited(Outcome::Granted, 20, 401)];
        assert_eq!(rules(ended, vec![]), ["free but not granted"]);
        let released = vec![
            grant(1, 0, 10, 900),
            release(1, 300, 310),
            waited(Outcome::Granted, 20, 401),
        ];
        assert_eq!(rules(released, vec![]), ["free but not granted"]);
        let killed = vec![grant(1, 0, 10, 900), waited(Outcome::Granted, 20, 401)];
        let kill = fault(Fault::KILL_CLIENT, 1, 290, 300);
        assert_eq!(rules(killed, vec![kill]), ["free but not granted"]);
    }

    #[test]
    fn other_locks_do_not_matter() {
        let mut other = grant(1, 0, 10, 900);
        other.lock = "b".into();
        let events = vec![other, waited(Outcome::Granted, 20, 500)];
        assert_eq!(rules(events, vec![]), ["free but not granted"]);
    }

    #[test]
    fn time_with_a_fault_does_not_count() {
        let wait = || vec![waited(Outcome::Granted, 20, 220)];
        let fault_of = |end| vec![of_all("kill-server", 50, end)];
        assert!(rules(wait(), fault_of(140)).is_empty(), "and 10 to recover");
        assert_eq!(rules(wait(), fault_of(139)), ["free but not granted"]);
        let harmless = vec![of_all("harmless", 50, 140)];
        assert_eq!(rules(wait(), harmless), ["free but not granted"]);
    }

    #[test]
    fn only_its_own_pauses_excuse_a_client() {
        let wait = || vec![waited(Outcome::Granted, 20, 220)];
        let pause = |client| vec![fault(Fault::PAUSE_CLIENT, client, 50, 150)];
        assert!(rules(wait(), pause(9)).is_empty());
        assert_eq!(rules(wait(), pause(1)), ["free but not granted"]);
    }

    #[test]
    fn a_wait_that_is_overtaken_for_too_long_is_found() {
        let holds = (0..20).map(|turn| {
            let mut hold = grant(1, turn * 60, turn * 60 + 5, turn * 60 + 60);
            hold.hold = turn + 1;
            hold
        });
        let mut events: Vec<Event> = holds.collect();
        events.push(waited(Outcome::Granted, 20, 1021));
        assert_eq!(rules(events.clone(), vec![]), ["waited too long"]);
        let fault = vec![of_all("kill-server", 50, 60)];
        assert!(rules(events, fault).is_empty());
    }

    #[test]
    fn overlapping_spans_are_subtracted_once() {
        let span = |start_ns, end_ns| Span { start_ns, end_ns };
        let others = [span(50, 60), span(0, 20), span(15, 30), span(90, 200)];
        assert_eq!(span(10, 100).without(&others), [span(30, 50), span(60, 90)]);
        assert!(span(10, 100).without(&[span(0, 100)]).is_empty());
        assert_eq!(span(10, 100).without(&[]), [span(10, 100)]);
    }
}
