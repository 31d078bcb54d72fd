//! What has changed between two looks.

use std::collections::BTreeMap;
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
        let is_same = before
            .is_some_and(|before| before.lease_id == lock.lease_id && before.fence == lock.fence);
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
