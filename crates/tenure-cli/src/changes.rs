//! What has changed between two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::SystemTime;

use serde::Serialize;

use crate::commands::holders::{ClientReport, LockReport, moment, printable};

/// The locks as they were when they were looked at last.
#[derive(Default)]
pub struct Known {
    locks: BTreeMap<String, LockReport>,
    /// Whether they were looked at before.
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It was held already when watching began.
    Held,
    Taken,
    /// It has another lease or another fence than before.
    HandedOn,
    /// Another number of callers waits.
    Waiting,
    /// Released, lost or run out: nobody holds it.
    Ended,
}

/// One event, as it is printed.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    at: String,
    event: Event,
    name: String,
    lease_id: Option<String>,
    fence: Option<u64>,
    holder: Option<ClientReport>,
    waiting: u64,
    #[serde(skip)]
    words: String,
}

impl Known {
    /// The locks that were held and are not among these.
    pub fn missing(&self, now: &[LockReport]) -> Vec<String> {
        let listed: BTreeSet<&str> = now.iter().map(|lock| lock.name.as_str()).collect();
        let held = self.locks.values().filter(|lock| lock.held);
        let missing = held.filter(|lock| !listed.contains(lock.name.as_str()));
        missing.map(|lock| lock.name.clone()).collect()
    }

    /// Takes note of how the locks are now, and tells what is new about that.
    pub fn update(&mut self, now: Vec<LockReport>) -> Vec<Change> {
        let now: BTreeMap<String, LockReport> = now
            .into_iter()
            .map(|lock| (lock.name.clone(), lock))
            .collect();
        let mut changes = Vec::new();
        for lock in now.values() {
            self.compare(lock, &mut changes);
        }
        for (name, before) in &self.locks {
            if !now.contains_key(name) {
                if before.held {
                    changes.push(Change::of(Event::Ended, before));
                }
                if before.waiting > 0 {
                    let mut nobody = before.clone();
                    nobody.waiting = 0;
                    changes.push(Change::of(Event::Waiting, &nobody));
                }
            }
        }
        self.locks = now;
        self.begun = true;
        changes
    }

    fn compare(&self, lock: &LockReport, changes: &mut Vec<Change>) {
        let before = self.locks.get(&lock.name);
        let was_held = before.is_some_and(|before| before.held);
        let is_same = before.is_some_and(|before| is_same_hold(before, lock));
        match (was_held, lock.held) {
            (false, true) if self.begun => changes.push(Change::of(Event::Taken, lock)),
            (false, true) => changes.push(Change::of(Event::Held, lock)),
            (true, true) if !is_same => changes.push(Change::of(Event::HandedOn, lock)),
            (true, false) => changes.extend(before.map(|it| Change::of(Event::Ended, it))),
            _ => {}
        }
        if before.map_or(0, |before| before.waiting) != lock.waiting {
            changes.push(Change::of(Event::Waiting, lock));
        }
    }
}

/// Whether nobody else has got the lock. A lease that is handed off inside a process keeps its id,
/// but not its fence; of that, only what the holder's client says is exact.
fn is_same_hold(before: &LockReport, now: &LockReport) -> bool {
    let is_exact = before.held_ms.is_some() && now.held_ms.is_some();
    before.lease_id == now.lease_id && (!is_exact || before.fence == now.fence)
}

impl Change {
    fn of(event: Event, lock: &LockReport) -> Self {
        let words = match (event, lock.held_for()) {
            (Event::Waiting, _) => format!("{} waiting", lock.waiting),
            (Event::Ended, Some(held)) => format!("{}, after {held}", lock.who()),
            _ => lock.who(),
        };
        Self {
            at: moment(SystemTime::now()),
            event,
            name: lock.name.clone(),
            lease_id: lock.lease_id.clone(),
            fence: lock.fence,
            holder: lock.holder.clone(),
            waiting: lock.waiting,
            words,
        }
    }
}

/// As in `2026-11-15T03:00:01.000Z taken nightly: web-3:4121 (backup.sh), fence 7`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = match self.event {
            Event::Held => "held",
            Event::Taken => "taken",
            Event::HandedOn => "handed on",
            Event::Waiting => "waiting",
            Event::Ended => "ended",
        };
        let name = printable(&self.name);
        write!(f, "{} {event:<9} {name}: {}", self.at, self.words)?;
        match self.fence.filter(|_| self.event != Event::Waiting) {
            Some(fence) => write!(f, ", fence {fence}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str, lease: &str, fence: u64) -> LockReport {
        let mut lock = LockReport::of_holder(name, None, &[]);
        lock.held = true;
        lock.lease_id = Some(lease.to_owned());
        lock.fence = Some(fence);
        lock.held_ms = Some(700);
        lock
    }

    fn events(changes: &[Change]) -> Vec<(Event, &str)> {
        let events = changes.iter();
        events.map(|it| (it.event, it.name.as_str())).collect()
    }

    #[test]
    fn each_difference_is_an_event() {
        let mut known = Known::default();
        let begun = known.update(vec![lock("a", "1", 1)]);
        assert_eq!(events(&begun), [(Event::Held, "a")]);
        assert!(known.update(vec![lock("a", "1", 1)]).is_empty());
        let handed_off = known.update(vec![lock("a", "1", 2), lock("b", "2", 1)]);
        assert_eq!(
            events(&handed_off),
            [(Event::HandedOn, "a"), (Event::Taken, "b")]
        );
        let mut waited_for = lock("a", "3", 3);
        waited_for.waiting = 2;
        let changes = known.update(vec![waited_for]);
        let expected = [
            (Event::HandedOn, "a"),
            (Event::Waiting, "a"),
            (Event::Ended, "b"),
        ];
        assert_eq!(events(&changes), expected);
        assert_eq!(known.missing(&[]), ["a"]);
        let ended = known.update(Vec::new());
        assert_eq!(events(&ended), [(Event::Ended, "a"), (Event::Waiting, "a")]);
    }

    #[test]
    fn a_fence_that_is_only_an_upper_bound_is_no_other_holder() {
        let mut known = Known::default();
        let mut young = lock("a", "1", 257);
        young.held_ms = None;
        known.update(vec![young]);
        assert!(known.update(vec![lock("a", "1", 1)]).is_empty());
    }
}
