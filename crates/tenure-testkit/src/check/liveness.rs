//! After healing, every lock can be acquired and no key is left over.

use std::collections::HashSet;
use std::time::Duration;

use super::holds::{by_lock, is_grant};
use super::violation::Violation;
use crate::RespClient;
use crate::history::{Event, History, Millis, Op, whole_ns};

/// Liveness: each lock in the history was granted to some client within `limit` (usually the ttl plus
/// a second). The limit starts at `healed_ns` or at the first request after it, whichever is later: a
/// client that requests many locks in sequence comes late to the last of them. A lock that no client
/// requested after the healing is a violation too: a test that does not try proves nothing.
pub fn liveness(history: &History, healed_ns: u64, limit: Duration) -> Vec<Violation> {
    let acquires = history
        .events
        .iter()
        .filter(|event| event.op == Op::Acquire);
    let locks = by_lock(acquires, |event| &event.lock);
    let judged = locks
        .iter()
        .filter_map(|(lock, acquires)| not_live(lock, acquires, healed_ns, limit));
    judged.collect()
}

/// Keys that match `pattern` (as in `SCAN`) and never expire, except those that are `allowed`.
pub fn immortal_keys(
    client: &mut RespClient,
    pattern: &str,
    allowed: impl Fn(&str) -> bool,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for key in keys(client, pattern).iter().filter(|key| !allowed(key)) {
        if client.command(&["PTTL", key]).int() == -1 {
            let kind = client.command(&["TYPE", key]);
            violations.push(Violation::new("never expires", key, &[&kind.text()]));
        }
    }
    violations
}

/// Keys that match `pattern` (as in `SCAN`) and whose owner, read by `owner_of`, is not alive. Keys
/// without an owner are free.
pub fn orphans(
    client: &mut RespClient,
    pattern: &str,
    owner_of: impl Fn(&mut RespClient, &str) -> Option<String>,
    is_alive: impl Fn(&str) -> bool,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for key in keys(client, pattern) {
        let owner = owner_of(client, &key).filter(|owner| !is_alive(owner));
        if let Some(owner) = owner {
            let left = client.command(&["PTTL", &key]).int();
            let evidence = format!("owner `{owner}` has no guard, `{left}` ms left");
            violations.push(Violation::new("orphan", &key, &[&evidence]));
        }
    }
    violations
}

fn not_live(lock: &str, acquires: &[&Event], healed_ns: u64, limit: Duration) -> Option<Violation> {
    let after: Vec<&&Event> = acquires
        .iter()
        .filter(|event| event.return_ns >= healed_ns)
        .collect();
    let asked_ns = after.iter().map(|event| event.call_ns).min();
    let begun_ns = asked_ns.map_or(healed_ns, |asked_ns| asked_ns.max(healed_ns));
    let end_ns = begun_ns.saturating_add(whole_ns(limit));
    let first_grant = after
        .iter()
        .filter(|event| is_grant(event))
        .min_by_key(|event| event.return_ns);
    let healed = format!("healed at {} ms", Millis(healed_ns));
    match (first_grant, after.last()) {
        (Some(grant), _) if grant.return_ns <= end_ns => None,
        (Some(grant), _) => Some(Violation::new("granted too late", lock, &[&healed, grant])),
        (None, Some(last)) => Some(Violation::new("not granted again", lock, &[&healed, last])),
        (None, None) => Some(Violation::new("not tried again", lock, &[&healed])),
    }
}

fn keys(client: &mut RespClient, pattern: &str) -> Vec<String> {
    let mut keys = HashSet::new();
    let mut cursor = String::from("0");
    loop {
        let reply = client.command(&["SCAN", &cursor, "MATCH", pattern, "COUNT", "1000"]);
        let [next, found] = reply.array() else {
            panic!("unexpected reply to `SCAN`: `{reply:?}`");
        };
        keys.extend(found.array().iter().map(|key| key.text().to_string()));
        cursor = next.text().into();
        if cursor == "0" {
            let mut keys: Vec<String> = keys.into_iter().collect();
            keys.sort();
            return keys;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::Outcome;

    fn rules(events: Vec<Event>) -> Vec<&'static str> {
        let history = History::new(events, vec![]);
        let violations = liveness(&history, 1000, Duration::from_nanos(100));
        violations.iter().map(|violation| violation.rule).collect()
    }

    fn busy(client: u64, call: u64, ret: u64) -> Event {
        event(client, Op::Acquire, Outcome::Busy, call, ret)
    }

    #[test]
    fn a_grant_soon_after_healing_is_fine() {
        assert!(
            rules(vec![
                grant(1, 0, 10, 100),
                busy(2, 1000, 1010),
                grant(3, 900, 1100, 2000)
            ])
            .is_empty()
        );
    }

    #[test]
    fn a_late_grant_is_found() {
        assert_eq!(rules(vec![grant(1, 900, 1101, 2000)]), ["granted too late"]);
    }

    #[test]
    fn the_limit_counts_from_the_first_request() {
        assert!(rules(vec![grant(1, 1500, 1600, 2000)]).is_empty());
        assert_eq!(
            rules(vec![grant(1, 1500, 1601, 2000)]),
            ["granted too late"]
        );
        let asked_again = vec![busy(1, 1500, 1510), grant(2, 1590, 1601, 2000)];
        assert_eq!(rules(asked_again), ["granted too late"]);
    }

    #[test]
    fn a_lock_that_stays_busy_is_found() {
        let events = vec![grant(1, 0, 10, 100), busy(2, 1000, 1010)];
        assert_eq!(rules(events), ["not granted again"]);
    }

    #[test]
    fn a_lock_that_no_client_tried_is_found() {
        assert_eq!(rules(vec![grant(1, 0, 10, 100)]), ["not tried again"]);
    }
}
