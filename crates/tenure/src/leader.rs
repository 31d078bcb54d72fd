//! The leader of an election, and the metadata that says who it is.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::holder::Holder;
use crate::lease::{ClientId, Fence, LeaseId};

/// Fields with this prefix belong to Tenure itself.
pub(crate) const RESERVED_FIELDS: &str = "tenure:";
/// When the leader was elected, in ms of the server's clock. The store fills it in with the grant.
const SINCE: &str = "tenure:since";
/// The leader's term. The store fills it in with the grant.
const TERM: &str = "tenure:term";
const VALUE: &str = "tenure:value";
/// How many values the leader has proclaimed; missing before the first.
const VERSION: &str = "tenure:version";

/// Who leads, as [`Election::leader`](crate::Election::leader) and
/// [`Observer::next`](crate::Observer::next) report it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leader {
    /// What the leader campaigned with or [proclaimed](crate::Leadership::proclaim) last. `None` if
    /// the holder took part in no election: it holds an ordinary lock of the same name.
    pub value: Option<String>,
    /// The leader's term: the fence of its lease, greater than that of every leader before. `None`
    /// for the holder of an ordinary lock.
    pub term: Option<Fence>,
    /// The lease that leads.
    pub lease: LeaseId,
    /// When it was elected, by the server's clock; for people, not for decisions. `None` for the
    /// holder of an ordinary lock.
    pub since: Option<SystemTime>,
    /// The time until its lease expires unless it is renewed; `None` if the key has no expiry, in
    /// which case it may not be a lock at all.
    pub remaining: Option<Duration>,
    pub(crate) version: u64,
}

/// What was reported last.
#[derive(Debug, Default)]
pub(crate) enum LastReport {
    #[default]
    Nothing,
    Leader(Leader),
    Nobody,
}

impl LastReport {
    /// Whether this is no news.
    pub(crate) fn is(&self, leader: Option<&Leader>) -> bool {
        match (self, leader) {
            (Self::Leader(last), Some(leader)) => last.is_same(leader),
            (Self::Nobody, None) => true,
            _ => false,
        }
    }

    /// Remembers a report.
    pub(crate) fn set(&mut self, leader: Option<&Leader>) {
        *self = leader.cloned().map_or(Self::Nobody, Self::Leader);
    }
}

impl Leader {
    /// The client that leads, if the lease is one of Tenure's.
    pub fn client(&self) -> Option<ClientId> {
        self.lease.client()
    }

    /// The leader, if this holder leads. A candidate that was only offered the lock does not yet.
    pub(crate) fn of(holder: Holder) -> Option<Self> {
        let mut meta = holder.meta;
        let term = term_of(&meta);
        if term.is_none() && holder.lease.is_candidate() {
            return None;
        }
        let number = |field: &str| meta.get(field)?.parse::<u64>().ok();
        let since = number(SINCE).map(Duration::from_millis);
        let version = version_of(&meta);
        Some(Self {
            value: meta.remove(VALUE).filter(|_| term.is_some()),
            term,
            lease: holder.lease,
            since: since.and_then(|since| UNIX_EPOCH.checked_add(since)),
            remaining: holder.remaining,
            version,
        })
    }

    /// Whether an observer that has seen `self` has nothing new to report.
    pub(crate) fn is_same(&self, other: &Leader) -> bool {
        (&self.lease, self.term, &self.value) == (&other.lease, other.term, &other.value)
    }

    /// Whether it was replaced, in the knowledge of who has seen `other`: a lower term, or an earlier
    /// value of the same one.
    pub(crate) fn is_older_than(&self, other: &Leader) -> bool {
        match (self.term, other.term) {
            (Some(term), Some(seen)) if term == seen => self.version < other.version,
            (Some(term), Some(seen)) => term < seen,
            _ => false,
        }
    }
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.value, self.term) {
            (Some(value), Some(term)) => write!(f, "`{value}`, term {term}"),
            _ => write!(f, "lease `{}`, without a value", self.lease),
        }
    }
}

/// The metadata of a candidate's lease. The store fills in the rest when it grants it.
pub(crate) fn candidate_meta(value: &str) -> BTreeMap<String, String> {
    [(SINCE, ""), (TERM, ""), (VALUE, value)]
        .map(|(field, value)| (field.to_owned(), value.to_owned()))
        .into()
}

/// Whether this is the metadata of a candidate's lease, whose term the store must write down. Such a
/// lease goes through the store each time: the next one needs a term of its own.
pub(crate) fn is_candidate_meta(meta: &BTreeMap<String, String>) -> bool {
    meta.contains_key(TERM)
}

/// The metadata of a leader's lease, granted at this time of the store with this term.
pub(crate) fn elected_meta(
    meta: &BTreeMap<String, String>,
    now_us: u64,
    term: Fence,
) -> BTreeMap<String, String> {
    let mut meta = meta.clone();
    meta.insert(SINCE.to_owned(), (now_us / 1_000).to_string());
    meta.insert(TERM.to_owned(), term.to_string());
    meta
}

/// Writes a proclaimed value down, unless a later one is there.
pub(crate) fn proclaim_in(
    meta: &mut BTreeMap<String, String>,
    term: Fence,
    version: u64,
    value: &str,
) {
    if version_of(meta) < version {
        meta.insert(TERM.to_owned(), term.to_string());
        meta.insert(VERSION.to_owned(), version.to_string());
        meta.insert(VALUE.to_owned(), value.to_owned());
    }
}

/// The term of a leader's lease.
pub(crate) fn term_of(meta: &BTreeMap<String, String>) -> Option<Fence> {
    meta.get(TERM)?.parse().ok().map(Fence::new)
}

/// How many values the leader has proclaimed.
pub(crate) fn version_of(meta: &BTreeMap<String, String>) -> u64 {
    let version = meta.get(VERSION).and_then(|it| it.parse().ok());
    version.unwrap_or(0)
}
