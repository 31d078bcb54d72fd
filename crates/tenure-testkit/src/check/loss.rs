//! A client that loses a lock notices in time.

use std::time::Duration;

use super::holds::{Hold, by_lock, holds};
use super::violation::Violation;
use crate::history::{Fault, History, Mode, whole_ns};

/// Loss noticed: when an exclusive lock goes to another client although the previous hold was not
/// released and its process not killed, the previous holder has noticed the loss by then, or at most
/// `tolerance` later. A client that was paused ([`Fault::PAUSE_CLIENT`]) at that time has until
/// `tolerance` after its pause.
pub fn loss(history: &History, tolerance: Duration) -> Vec<Violation> {
    let tolerance_ns = whole_ns(tolerance);
    let holds = holds(history);
    let exclusive = holds
        .iter()
        .filter(|hold| hold.grant.mode == Mode::Exclusive);
    let mut violations = Vec::new();
    for (lock, holds) in by_lock(exclusive, |hold| &hold.grant.lock) {
        for (number, before) in holds.iter().enumerate() {
            let mut later = holds[number + 1..].iter();
            // A grant that expired before its client received it took the lock from no other client.
            let Some(after) = later.find(|hold| hold.was_believed()) else {
                continue;
            };
            let due_ns = notice_due_ns(before, after.start_ns(), &history.faults);
            if !was_noticed(
                before,
                after.start_ns(),
                due_ns.saturating_add(tolerance_ns),
            ) {
                let evidence: [&dyn std::fmt::Display; 2] = [before, after];
                violations.push(Violation::new("loss not noticed in time", lock, &evidence));
            }
        }
    }
    violations
}

fn was_noticed(hold: &Hold<'_>, next_ns: u64, due_ns: u64) -> bool {
    let ended = [hold.released_ns, hold.killed_ns].into_iter().flatten();
    let ended_before = ended.min().is_some_and(|ended_ns| ended_ns <= next_ns);
    let killed_before_due = hold.killed_ns.is_some_and(|killed_ns| killed_ns <= due_ns);
    let noticed = hold.lost_ns.is_some_and(|lost_ns| lost_ns <= due_ns);
    ended_before || killed_before_due || noticed
}

/// The deadline to notice the loss: the next grant, or the end of the pause that the client was in
/// at that time.
fn notice_due_ns(hold: &Hold<'_>, next_ns: u64, faults: &[Fault]) -> u64 {
    let pauses = faults.iter().filter(|fault| {
        fault.kind == Fault::PAUSE_CLIENT
            && fault.client == Some(hold.grant.client)
            && (fault.start_ns..=fault.end_ns).contains(&next_ns)
    });
    let ends = pauses.map(|pause| pause.end_ns);
    ends.max().unwrap_or(next_ns)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{Event, Op, Outcome};

    fn violations(events: Vec<Event>, faults: Vec<Fault>) -> usize {
        loss(&History::new(events, faults), Duration::from_nanos(5)).len()
    }

    #[test]
    fn a_release_before_the_next_grant_is_no_loss() {
        let events = vec![
            grant(1, 0, 10, 100),
            release(1, 20, 25),
            grant(2, 5, 22, 100),
        ];
        assert_eq!(violations(events, vec![]), 0);
    }

    #[test]
    fn a_loss_noticed_in_time_is_fine() {
        let events = vec![grant(1, 0, 10, 100), lost(1, 99), grant(2, 5, 110, 200)];
        assert_eq!(violations(events, vec![]), 0);
        // Just within the tolerance.
        let events = vec![grant(1, 0, 10, 100), lost(1, 115), grant(2, 5, 110, 200)];
        assert_eq!(violations(events, vec![]), 0);
    }

    #[test]
    fn a_loss_noticed_late_or_never_is_found() {
        let late = vec![grant(1, 0, 10, 100), lost(1, 116), grant(2, 5, 110, 200)];
        assert_eq!(violations(late, vec![]), 1);
        let never = vec![grant(1, 0, 10, 100), grant(2, 5, 110, 200)];
        assert_eq!(violations(never, vec![]), 1);
    }

    #[test]
    fn a_loss_noticed_only_by_a_late_release_is_found() {
        let release = event(1, Op::Release, Outcome::Lost, 150, 160);
        let events = vec![grant(1, 0, 10, 100), release, grant(2, 5, 110, 200)];
        assert_eq!(violations(events, vec![]), 1);
    }

    #[test]
    fn a_paused_client_has_until_it_resumes() {
        let events = || vec![grant(1, 0, 10, 100), lost(1, 303), grant(2, 5, 110, 200)];
        let pause = |client| fault(Fault::PAUSE_CLIENT, client, 50, 300);
        assert_eq!(violations(events(), vec![pause(1)]), 0);
        assert_eq!(violations(events(), vec![pause(2)]), 1);
        let late = vec![grant(1, 0, 10, 100), lost(1, 306), grant(2, 5, 110, 200)];
        assert_eq!(violations(late, vec![pause(1)]), 1);
    }

    #[test]
    fn a_grant_that_expired_before_it_returned_causes_no_loss() {
        // Client 2 was granted the lock first and paused until its lease had expired.
        let late = grant(2, 0, 50, 40);
        let events = vec![grant(1, 5, 45, 200), late.clone(), release(1, 100, 101)];
        assert_eq!(violations(events, vec![]), 0);
        // It hides nothing: every later grant of the lock counts.
        let events = vec![grant(1, 5, 45, 200), late, grant(3, 5, 60, 200)];
        assert_eq!(violations(events, vec![]), 2);
    }

    #[test]
    fn a_killed_client_need_not_notice() {
        let events = vec![grant(1, 0, 10, 100), grant(2, 5, 110, 200)];
        let kill = fault(Fault::KILL_CLIENT, 1, 20, 30);
        assert_eq!(violations(events, vec![kill]), 0);
    }
}
