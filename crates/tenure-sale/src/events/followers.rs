//! The followers of this process, and what they know.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use crate::change::Change;
use crate::order::Request;

/// The followers of this process, by item.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    // A std mutex, not an async one: no task waits while it is held.
    running: Mutex<HashMap<String, Arc<Follower>>>,
}

#[derive(Debug)]
pub(super) struct Follower {
    pub(super) item: String,
    pub(super) live: broadcast::Sender<Live>,
    pub(super) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Accepted orders not yet seen in the ledger, by epoch and number, with what was asked for.
    pub(super) awaited: BTreeMap<(u64, u64), Request>,
    /// The last reported number of units left.
    pub(super) left: Option<Left>,
}

/// What watchers receive.
#[derive(Clone, Debug)]
pub(super) enum Live {
    Change(Arc<Change>),
    Left(Left),
}

/// Units left at the gate; `None` if unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left(pub(super) Option<u64>);

impl Followers {
    pub(super) fn running(&self) -> MutexGuard<'_, HashMap<String, Arc<Follower>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
