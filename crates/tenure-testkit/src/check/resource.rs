//! A fenced resource is never damaged, whatever becomes of the lock.

use super::Violation;
use crate::resource::{Access, AccessKind};

/// The journal of a register that clients increment: no update is lost (each write is one more
/// than the value before it), no fence is accepted after a newer one, and no fence is shown by two
/// clients.
pub fn resource(journal: &[Access]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut newest: Option<&Access> = None;
    let mut last_write: Option<&Access> = None;
    for access in journal {
        if let Some(rule) = newest.and_then(|newest| fence_rule_broken(newest, access)) {
            violations.push(violation(rule, newest, access));
        }
        let value = last_write.map_or(0, written);
        if matches!(access.kind, AccessKind::Write(new) if new != value + 1) {
            violations.push(violation("lost update", last_write, access));
        }
        if newest.is_none_or(|newest| newest.fence <= access.fence) {
            newest = Some(access);
        }
        if matches!(access.kind, AccessKind::Write(_)) {
            last_write = Some(access);
        }
    }
    violations
}

fn fence_rule_broken(newest: &Access, access: &Access) -> Option<&'static str> {
    if access.fence < newest.fence {
        Some("stale fence accepted")
    } else if access.fence == newest.fence && access.client != newest.client {
        Some("fence shown by two clients")
    } else {
        None
    }
}

fn written(access: &Access) -> u64 {
    match access.kind {
        AccessKind::Write(value) | AccessKind::Read(value) => value,
    }
}

fn violation(rule: &'static str, before: Option<&Access>, access: &Access) -> Violation {
    let before = before.map_or_else(|| "the beginning".into(), ToString::to_string);
    Violation::new(rule, "register", &[&before, access])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FencedRegister;
    use crate::resource::Stale;

    fn rules(journal: &[Access]) -> Vec<&'static str> {
        let violations = resource(journal);
        violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn holders_one_after_the_other_are_fine() {
        let dir = tempfile::tempdir().unwrap();
        let register = FencedRegister::open(dir.path());
        assert_eq!(register.increment(1, 10, || {}), Ok(1));
        assert_eq!(register.increment(1, 10, || {}), Ok(2));
        assert_eq!(register.increment(2, 11, || {}), Ok(3));
        assert_eq!(register.journal().len(), 6);
        assert!(rules(&register.journal()).is_empty());
    }

    #[test]
    fn a_stale_holder_is_refused_in_the_middle_of_its_work() {
        let dir = tempfile::tempdir().unwrap();
        let register = FencedRegister::open(dir.path());
        let stale = register.increment(1, 10, || {
            register.increment(2, 11, || {}).unwrap();
        });
        assert_eq!(stale, Err(Stale { newest: 11 }));
        assert_eq!(register.read(1, 10), Err(Stale { newest: 11 }));
        assert_eq!(register.read(2, 11), Ok(1));
        assert!(rules(&register.journal()).is_empty());
    }

    #[test]
    fn without_fences_a_stale_holder_loses_an_update_and_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let register = FencedRegister::open_unfenced(dir.path());
        let stale = register.increment(1, 10, || {
            register.increment(2, 11, || {}).unwrap();
        });
        assert_eq!(stale, Ok(1));
        assert_eq!(
            rules(&register.journal()),
            ["stale fence accepted", "lost update"]
        );
    }

    #[test]
    fn a_fence_of_two_clients_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let register = FencedRegister::open(dir.path());
        register.increment(1, 10, || {}).unwrap();
        register.read(2, 10).unwrap();
        assert_eq!(rules(&register.journal()), ["fence shown by two clients"]);
    }
}
