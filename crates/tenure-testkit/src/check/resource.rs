//! A fenced resource is never damaged, whatever happens to the lock.

use super::grants::{Grant, Grants};
use super::violation::Violation;
use crate::history::History;
use crate::resource::{Access, AccessKind};

/// Checks the journal of a register that clients increment under one lock against the history of that
/// lock:
///
/// - no update is lost: each write is one more than the value before it;
/// - no fence is accepted after a greater one, and no two clients use the same fence;
/// - no holder is accepted after a newer holder was;
/// - the newest holder is not refused while it believes that it holds the lock.
///
/// The register itself refuses lower fences, so the second rule holds whatever the lock does. The
/// last two rules take the order of holders from the history of grants, not from the register. They
/// are broken when a later grant has a lower fence.
///
/// A process may hand a lock on internally, with one of at most `hand_off_turns` fences that the
/// server reserved for it. Such a holder is as new as that grant of the server.
pub fn resource(journal: &[Access], history: &History, hand_off_turns: u64) -> Vec<Violation> {
    let grants = Grants::of(history, hand_off_turns);
    let mut sweep = Sweep::default();
    for access in journal {
        let Some(grant) = grants.get(access.client, access.fence) else {
            sweep.violations.push(violation(NOT_GRANTED, None, access));
            continue;
        };
        if access.was_accepted() {
            sweep.accepted(access, grant);
        } else {
            sweep.refused(access, grant, &grants);
        }
    }
    sweep.violations
}

const NOT_GRANTED: &str = "fence that was never granted";

/// The state of the sweep over the accesses.
#[derive(Default)]
struct Sweep<'a> {
    violations: Vec<Violation>,
    last_write: Option<&'a Access>,
    /// The access with the greatest fence.
    greatest: Option<Accepted<'a>>,
    /// The access whose lock was requested last.
    latest: Option<Accepted<'a>>,
}

/// An accepted access, and the grant of its fence.
#[derive(Clone, Copy)]
struct Accepted<'a> {
    access: &'a Access,
    grant: &'a Grant<'a>,
}

impl<'a> Sweep<'a> {
    fn accepted(&mut self, access: &'a Access, grant: &'a Grant<'a>) {
        if let Some(greatest) = self.greatest {
            if access.fence < greatest.access.fence {
                self.report("stale fence accepted", Some(greatest.access), access);
            } else if access.fence == greatest.access.fence
                && access.client != greatest.access.client
            {
                self.report("fence used by two clients", Some(greatest.access), access);
            }
        }
        if let Some(latest) = self.latest.filter(|latest| latest.grant.is_after(grant)) {
            self.report("stale holder accepted", Some(latest.access), access);
        }
        if let AccessKind::Write(new) = access.kind {
            let value = self.last_write.map_or(0, |write| write.kind.value());
            if new != value + 1 {
                self.report("lost update", self.last_write, access);
            }
            self.last_write = Some(access);
        }
        let accepted = Accepted { access, grant };
        if self
            .greatest
            .is_none_or(|it| it.access.fence <= access.fence)
        {
            self.greatest = Some(accepted);
        }
        if self
            .latest
            .is_none_or(|it| it.grant.asked_ns() <= grant.asked_ns())
        {
            self.latest = Some(accepted);
        }
    }

    fn refused(&mut self, access: &'a Access, grant: &'a Grant<'a>, grants: &Grants<'_>) {
        let Some(greatest) = self.greatest else {
            return self.report("refused without a greater fence", None, access);
        };
        let is_newer = grant.is_after(greatest.grant);
        let at_ns = access.at_ns;
        if is_newer && grant.is_believed_at(at_ns) && !grants.is_succeeded(grant, at_ns) {
            let rule = "newest holder refused";
            let evidence: [&dyn std::fmt::Display; 4] =
                [greatest.access, greatest.grant, access, grant];
            self.violations
                .push(Violation::new(rule, "register", &evidence));
        }
    }

    fn report(&mut self, rule: &'static str, before: Option<&Access>, access: &Access) {
        self.violations.push(violation(rule, before, access));
    }
}

fn violation(rule: &'static str, before: Option<&Access>, access: &Access) -> Violation {
    let before = before.map_or_else(|| "the beginning".into(), ToString::to_string);
    Violation::new(rule, "register", &[&before, access])
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::FencedRegister;
    use crate::history::Event;
    use crate::resource::Stale;

    const TURNS: u64 = 4;

    fn rules(journal: &[Access], history: &[Event]) -> Vec<&'static str> {
        let history = History::new(history.to_vec(), vec![]);
        let violations = resource(journal, &history, TURNS);
        violations.iter().map(|violation| violation.rule).collect()
    }

    /// Clients 1 and 2 hold the lock one after the other, with these fences.
    fn held(first: u64, second: u64) -> Vec<Event> {
        vec![
            fenced(first, grant(1, 0, 10, 100)),
            fenced(second, grant(2, 20, 30, 200)),
        ]
    }

    fn access(client: u64, fence: u64, newest: u64, kind: AccessKind, at_ns: u64) -> Access {
        Access {
            client,
            fence,
            kind,
            newest,
            at_ns,
        }
    }

    #[test]
    fn consecutive_holders_are_fine() {
        let dir = tempfile::tempdir().unwrap();
        let register = FencedRegister::open(dir.path());
        assert_eq!(register.increment(1, 10, || {}), Ok(1));
        assert_eq!(register.increment(1, 10, || {}), Ok(2));
        assert_eq!(register.increment(2, 20, || {}), Ok(3));
        assert_eq!(register.journal().len(), 6);
        assert!(rules(&register.journal(), &held(10, 20)).is_empty());
    }

    #[test]
    fn a_stale_holder_is_refused_in_the_middle_of_its_work() {
        let dir = tempfile::tempdir().unwrap();
        let register = FencedRegister::open(dir.path());
        let stale = register.increment(1, 10, || {
            register.increment(2, 20, || {}).unwrap();
        });
        assert_eq!(stale, Err(Stale { newest: 20 }));
        assert_eq!(register.read(1, 10), Err(Stale { newest: 20 }));
        assert_eq!(register.read(2, 20), Ok(1));
        let journal = register.journal();
        let refused = journal.iter().filter(|access| !access.was_accepted());
        assert_eq!(refused.count(), 2, "what was refused is in the journal");
        assert!(rules(&journal, &held(10, 20)).is_empty());
    }

    #[test]
    fn without_fences_a_stale_holder_loses_an_update_and_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let register = FencedRegister::open_unfenced(dir.path());
        let stale = register.increment(1, 10, || {
            register.increment(2, 20, || {}).unwrap();
        });
        assert_eq!(stale, Ok(1));
        assert_eq!(
            rules(&register.journal(), &held(10, 20)),
            [
                "stale fence accepted",
                "stale holder accepted",
                "lost update"
            ]
        );
    }

    #[test]
    fn a_fence_of_two_clients_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let register = FencedRegister::open(dir.path());
        register.increment(1, 10, || {}).unwrap();
        register.read(2, 10).unwrap();
        let found = rules(&register.journal(), &held(10, 10));
        assert_eq!(found, ["fence used by two clients"]);
    }

    /// The second holder has the lower fence, so the register correctly refuses the wrong client.
    #[test]
    fn the_newest_holder_is_refused_for_the_fence_of_an_older_one() {
        let journal = [
            access(1, 20, 0, AccessKind::Read(0), 40),
            access(2, 10, 20, AccessKind::Refused(0), 50),
        ];
        assert_eq!(rules(&journal, &held(20, 10)), ["newest holder refused"]);
    }

    #[test]
    fn an_older_holder_is_accepted_after_the_newest_one() {
        let journal = [
            access(2, 10, 0, AccessKind::Read(0), 40),
            access(1, 20, 10, AccessKind::Write(1), 50),
        ];
        assert_eq!(rules(&journal, &held(20, 10)), ["stale holder accepted"]);
    }

    #[test]
    fn a_holder_that_no_longer_believes_may_be_refused() {
        let journal = |at_ns| {
            [
                access(1, 20, 0, AccessKind::Read(0), 40),
                access(2, 10, 20, AccessKind::Refused(0), at_ns),
            ]
        };
        // Its belief ends at 200.
        assert_eq!(rules(&journal(199), &held(20, 10)).len(), 1);
        assert!(rules(&journal(200), &held(20, 10)).is_empty());
        // It has noticed its loss or released the lock.
        for end in [lost(2, 45), release(2, 45, 46)] {
            let mut history = held(20, 10);
            history.push(end);
            assert!(rules(&journal(50), &history).is_empty());
        }
    }

    #[test]
    fn only_the_newest_must_be_accepted() {
        let journal = [
            access(1, 20, 0, AccessKind::Read(0), 40),
            access(2, 10, 20, AccessKind::Refused(0), 80),
        ];
        let mut history = held(20, 10);
        history.push(fenced(30, grant(3, 50, 70, 300)));
        assert!(rules(&journal, &history).is_empty());
        // Granted after the second was refused.
        history[2] = fenced(30, grant(3, 85, 90, 300));
        assert_eq!(rules(&journal, &history), ["newest holder refused"]);
    }

    #[test]
    fn either_of_two_concurrent_grants_may_be_refused() {
        let journal = [
            access(1, 20, 0, AccessKind::Read(0), 40),
            access(2, 10, 20, AccessKind::Refused(0), 50),
        ];
        let history = [
            fenced(20, grant(1, 0, 25, 100)),
            fenced(10, grant(2, 20, 30, 200)),
        ];
        assert!(rules(&journal, &history).is_empty());
    }

    /// Client 1 lost its lease, did not notice, and handed it on.
    #[test]
    fn a_holder_that_was_handed_the_lock_is_as_new_as_its_lease() {
        let mut handed_on = fenced(12, grant(1, 40, 45, 200));
        handed_on.hold = 7;
        let first = fenced(10, grant(1, 0, 10, 200));
        let other = fenced(20, grant(2, 20, 30, 200));
        let journal = [
            access(2, 20, 0, AccessKind::Read(0), 40),
            access(1, 12, 20, AccessKind::Refused(0), 50),
        ];
        let history = [first.clone(), other.clone(), handed_on.clone()];
        assert!(rules(&journal, &history).is_empty());
        // Too far apart for a hand-off, so this is a new grant of the server with too low a fence.
        handed_on.fence = Some(10 + TURNS + 1);
        let journal = [
            access(2, 20, 0, AccessKind::Read(0), 40),
            access(1, 10 + TURNS + 1, 20, AccessKind::Refused(0), 50),
        ];
        let history = [first, other, handed_on];
        assert_eq!(rules(&journal, &history), ["newest holder refused"]);
    }

    #[test]
    fn a_fence_without_a_grant_is_found() {
        let journal = [access(1, 11, 0, AccessKind::Read(0), 40)];
        assert_eq!(rules(&journal, &held(10, 20)), [NOT_GRANTED]);
    }

    #[test]
    fn a_refusal_without_a_greater_fence_is_found() {
        let journal = [access(1, 10, 0, AccessKind::Refused(0), 40)];
        assert_eq!(
            rules(&journal, &held(10, 20)),
            ["refused without a greater fence"]
        );
    }
}
