//! The periods in which clients believed that they held a lock.

use std::collections::HashMap;
use std::fmt;

use crate::history::{Event, Fault, History, Op, Outcome};

/// The lifetime of one guard as its holder saw it.
#[derive(Debug, Clone)]
pub struct Hold<'a> {
    /// The grant it began with.
    pub grant: &'a Event,
    /// When its release was called, if it was.
    pub released_ns: Option<u64>,
    /// When its holder noticed the loss, if it did: by notification or by a failed release.
    pub lost_ns: Option<u64>,
    /// When its process was gone, if it was killed.
    pub killed_ns: Option<u64>,
    /// The latest moment until which its holder believed that it held the lock; `u64::MAX` if never
    /// recorded.
    pub believed_until_ns: u64,
}

/// All holds of a history, ordered by the time of their grant.
pub fn holds(history: &History) -> Vec<Hold<'_>> {
    let killed = kills(&history.faults);
    let mut holds: HashMap<(u64, u64), Hold<'_>> = HashMap::new();
    for event in history.events.iter().filter(|event| is_grant(event)) {
        let hold = Hold::new(event, killed.get(&event.client).copied());
        let earlier = holds.insert((event.client, event.hold), hold);
        assert!(earlier.is_none(), "two grants of one hold: {event}");
    }
    for event in &history.events {
        if let Some(hold) = holds.get_mut(&(event.client, event.hold)) {
            hold.learn(event);
        }
    }
    let mut holds: Vec<Hold<'_>> = holds.into_values().collect();
    holds.sort_by_key(|hold| (hold.start_ns(), hold.grant.client, hold.grant.hold));
    holds
}

/// Whether this event began a hold.
pub(super) fn is_grant(event: &Event) -> bool {
    event.op == Op::Acquire && event.outcome == Outcome::Granted
}

/// Groups items by lock and keeps their order.
pub(super) fn by_lock<'a, T>(
    items: impl IntoIterator<Item = T>,
    lock: impl Fn(&T) -> &'a str,
) -> Vec<(&'a str, Vec<T>)> {
    let mut groups: HashMap<&str, Vec<T>> = HashMap::new();
    for item in items {
        groups.entry(lock(&item)).or_default().push(item);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(lock, _)| *lock);
    groups
}

impl<'a> Hold<'a> {
    fn new(grant: &'a Event, killed_ns: Option<u64>) -> Self {
        Self {
            grant,
            released_ns: None,
            lost_ns: None,
            killed_ns,
            believed_until_ns: grant.believed_until_ns.unwrap_or(u64::MAX),
        }
    }

    /// When the client received the guard.
    pub fn start_ns(&self) -> u64 {
        self.grant.return_ns
    }

    /// When the client stopped believing that it held the lock, for whichever reason came first.
    pub fn end_ns(&self) -> u64 {
        let ends = [self.released_ns, self.lost_ns, self.killed_ns];
        let earliest = ends.into_iter().flatten().min();
        earliest.map_or(self.believed_until_ns, |end_ns| {
            end_ns.min(self.believed_until_ns)
        })
    }

    /// Whether its holder ever believed that it held the lock. A client that is paused just before its
    /// call returns gets a guard that has already expired, while others have had the lock.
    pub fn was_believed(&self) -> bool {
        self.start_ns() < self.end_ns()
    }

    fn learn(&mut self, event: &Event) {
        if let Some(until_ns) = event.believed_until_ns {
            let known = self.grant.believed_until_ns.is_some();
            self.believed_until_ns = match self.believed_until_ns {
                u64::MAX if !known => until_ns,
                latest => latest.max(until_ns),
            };
        }
        match event.op {
            Op::Releasing | Op::Release => earliest(&mut self.released_ns, event.call_ns),
            Op::Lost => earliest(&mut self.lost_ns, event.call_ns),
            _ => {}
        }
        if event.op == Op::Release && event.outcome == Outcome::Lost {
            earliest(&mut self.lost_ns, event.return_ns);
        }
    }
}

impl fmt::Display for Hold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::history::Millis;
        self.grant.fmt(f)?;
        let ends = [
            ("release called", self.released_ns),
            ("loss noticed", self.lost_ns),
            ("killed", self.killed_ns),
        ];
        for (what, ns) in ends {
            if let Some(ns) = ns {
                write!(f, ", {what} at {} ms", Millis(ns))?;
            }
        }
        if self.end_ns() == u64::MAX {
            return f.write_str("; held forever");
        }
        let (start, end) = (Millis(self.start_ns()), Millis(self.end_ns()));
        write!(f, "; held {start}..{end} ms")
    }
}

fn kills(faults: &[Fault]) -> HashMap<u64, u64> {
    let kills = faults
        .iter()
        .filter(|fault| fault.kind == Fault::KILL_CLIENT);
    kills
        .filter_map(|fault| Some((fault.client?, fault.end_ns)))
        .collect()
}

fn earliest(known: &mut Option<u64>, ns: u64) {
    *known = Some(known.map_or(ns, |known_ns| known_ns.min(ns)));
}
