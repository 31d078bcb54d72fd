//! Leaders of elections, in JSON and in words.

use std::time::SystemTime;

use serde::Serialize;
use tenure::Leader;

use crate::holders::printable;
use crate::time;

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaderReport {
    /// The name of the election.
    pub name: String,
    /// Whether somebody leads; if not, nothing else is known.
    pub leads: bool,
    /// What the leader says of itself; missing if it holds an ordinary lock of this name.
    pub value: Option<String>,
    /// Greater than that of every leader before.
    pub term: Option<u64>,
    /// The lease that leads.
    pub lease_id: Option<String>,
    /// The client that leads.
    pub client: Option<String>,
    /// When it was elected, by the server's clock.
    pub since: Option<String>,
    /// How long its lease lasts, unless it is renewed.
    pub left_ms: Option<u64>,
}

impl LeaderReport {
    /// The leader of this election, or that there is none.
    pub fn of(name: &str, leader: Option<&Leader>) -> Self {
        let of = |leader: &Leader| leader.client().map(|client| client.to_string());
        Self {
            name: name.to_owned(),
            leads: leader.is_some(),
            value: leader.and_then(|leader| leader.value.clone()),
            term: leader.and_then(|leader| leader.term).map(Into::into),
            lease_id: leader.map(|leader| leader.lease.to_string()),
            client: leader.and_then(of),
            since: leader.and_then(|leader| leader.since).map(time::moment),
            left_ms: leader.and_then(|leader| leader.remaining).map(time::millis),
        }
    }

    /// The leader in one line.
    pub fn line(&self, since: Option<SystemTime>) -> String {
        let text = match (&self.value, self.term, &self.lease_id) {
            (Some(value), Some(term), _) => format!("{value} leads, term {term}"),
            (_, _, Some(lease)) => format!("lease {lease} holds the lock, without a value"),
            _ => return "nobody leads".to_owned(),
        };
        let text = match since {
            Some(since) => format!("{text}, since {}", time::moment(since)),
            None => text,
        };
        printable(&text)
    }
}
