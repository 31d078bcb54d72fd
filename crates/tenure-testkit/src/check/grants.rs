//! The order of the holders of a lock.

use std::collections::HashMap;
use std::fmt;

use super::holds::{Hold, holds};
use crate::history::{Event, History};

/// The grants of one lock, by client and fence.
#[derive(Debug)]
pub(super) struct Grants<'a> {
    grants: HashMap<(u64, u64), Grant<'a>>,
}

/// A hold, and the server's grant that its fence comes from.
#[derive(Debug)]
pub(super) struct Grant<'a> {
    hold: Hold<'a>,
    /// Its own grant, or that of an earlier holder in the same process that handed the lock on.
    by_server: &'a Event,
}

impl<'a> Grants<'a> {
    /// Ignores grants without a fence. Consecutive fences of one client that are at most
    /// `hand_off_turns` apart come from one grant of the server, which reserved them all.
    pub(super) fn of(history: &'a History, hand_off_turns: u64) -> Self {
        let mut holds: Vec<(u64, Hold<'a>)> = holds(history)
            .into_iter()
            .filter_map(|hold| Some((hold.grant.fence?, hold)))
            .collect();
        holds.sort_by_key(|(fence, _)| *fence);
        let mut grants = HashMap::new();
        let mut last: Option<(u64, &Event)> = None;
        for (fence, hold) in holds {
            let handed_on = last.filter(|(last, by_server)| {
                by_server.client == hold.grant.client && fence - last <= hand_off_turns
            });
            let by_server = handed_on.map_or(hold.grant, |(_, by_server)| by_server);
            last = Some((fence, by_server));
            grants.insert((hold.grant.client, fence), Grant { hold, by_server });
        }
        Self { grants }
    }

    pub(super) fn get(&self, client: u64, fence: u64) -> Option<&Grant<'a>> {
        self.grants.get(&(client, fence))
    }

    /// Whether a newer holder had the lock at that time.
    pub(super) fn is_succeeded(&self, grant: &Grant<'_>, at_ns: u64) -> bool {
        let mut others = self.grants.values();
        others.any(|other| other.is_after(grant) && other.hold.start_ns() <= at_ns)
    }
}

impl Grant<'_> {
    /// When the grant was requested from the server.
    pub(super) fn asked_ns(&self) -> u64 {
        self.by_server.call_ns
    }

    /// Whether the server certainly granted this one later: it was requested after the other grant had
    /// returned.
    pub(super) fn is_after(&self, other: &Grant<'_>) -> bool {
        other.by_server.return_ns < self.by_server.call_ns
    }

    /// Whether its holder believed that it held the lock at this time.
    pub(super) fn is_believed_at(&self, at_ns: u64) -> bool {
        (self.hold.start_ns()..self.hold.end_ns()).contains(&at_ns)
    }
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}
