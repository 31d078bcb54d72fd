//! The requests of concurrent callers that wait for the next call on one connection.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::fence_counter::FenceCounter;
use super::vote_request::{VoteEntry, VoteReleaseEntry, VoteScripts};
use super::wire::{ReadBy, Reply};
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{AcquireReply, Failure, ReleaseReply};

/// The queue of one connection.
#[derive(Default)]
pub(super) struct RequestQueue {
    // A std mutex, not an async one: no call waits while it is held.
    state: Mutex<Waiting>,
    /// Whether the server does not know `release_all.lua`.
    pub(super) release_all_unknown: AtomicBool,
    /// Whether the user lacks a right that `release_all.lua` needs.
    pub(super) release_all_denied: AtomicBool,
    /// What the server thinks of the scripts for several votes.
    pub(super) vote_scripts: VoteScripts,
}

#[derive(Default)]
pub(super) struct Waiting {
    /// How many calls are in flight.
    pub(super) calls: usize,
    pub(super) acquires: VecDeque<AcquireEntry>,
    pub(super) releases: VecDeque<ReleaseEntry>,
    pub(super) votes: VecDeque<VoteEntry>,
    pub(super) vote_releases: VecDeque<VoteReleaseEntry>,
}

/// A request that waits.
pub(super) enum Entry {
    Acquire(AcquireEntry),
    Release(ReleaseEntry),
    Vote(VoteEntry),
    VoteRelease(VoteReleaseEntry),
}

/// One attempt to acquire.
pub(super) struct AcquireEntry {
    pub(super) name: LockName,
    pub(super) id: LeaseId,
    pub(super) counter: FenceCounter,
    pub(super) ttl: Duration,
    /// When the lease ends, by the server's clock.
    pub(super) end_ms: u64,
    pub(super) reply: EntryReply<Result<AcquireReply, Failure>>,
}

/// One release.
pub(super) struct ReleaseEntry {
    pub(super) name: LockName,
    pub(super) id: LeaseId,
    pub(super) counter: FenceCounter,
    pub(super) asked_at: Moment,
    pub(super) reply: EntryReply<Released>,
}

/// What became of one release of several.
pub(super) enum Released {
    Done(ReleaseReply),
    /// Nothing was changed: release.lua decides.
    Undecided,
    Failed(Box<Failure>),
}

/// Where the reply to one request goes.
pub(super) type EntryReply<T> = oneshot::Sender<Reply<T>>;

impl RequestQueue {
    pub(super) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when no batch is between the queue and the connection: a request whose caller has gone
    /// is on its way by then, or will never be sent.
    pub(super) fn settle(&self) {
        drop(self.waiting());
    }

    pub(super) fn take_release_all_unknown(&self) -> bool {
        let unknown = &self.release_all_unknown;
        unknown.load(Ordering::Relaxed) && unknown.swap(false, Ordering::Relaxed)
    }
}

impl Entry {
    /// Who reads the reply, if the caller is alone. One that asks several nodes must not wait for the
    /// first before it asks the next.
    pub(super) fn read_by(&self) -> ReadBy {
        match self {
            Self::Acquire(_) | Self::Release(_) => ReadBy::Caller,
            Self::Vote(_) | Self::VoteRelease(_) => ReadBy::Driver,
        }
    }
}

impl Waiting {
    pub(super) fn push(&mut self, entry: Entry) {
        match entry {
            Entry::Acquire(entry) => self.acquires.push_back(entry),
            Entry::Release(entry) => self.releases.push_back(entry),
            Entry::Vote(entry) => self.votes.push_back(entry),
            Entry::VoteRelease(entry) => self.vote_releases.push_back(entry),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.acquires.is_empty()
            && self.releases.is_empty()
            && self.votes.is_empty()
            && self.vote_releases.is_empty()
    }
}
