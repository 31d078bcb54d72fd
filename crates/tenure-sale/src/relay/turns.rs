//! Which callers the relays of this process have served.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

/// The relays of this process, one per item: callers that arrive while one runs share the next.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    // A std mutex, not an async one: no task waits while it is held.
    turns: Mutex<HashMap<String, Arc<Turn>>>,
}

#[derive(Debug, Default)]
pub(super) struct Turn {
    /// How many callers have asked so far.
    pub(super) asked: AtomicU64,
    pub(super) state: tokio::sync::Mutex<TurnState>,
}

#[derive(Debug, Default)]
pub(super) struct TurnState {
    /// This many of them are served by relays that began after they asked.
    pub(super) served: u64,
    /// The gate's last known position.
    pub(super) place: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) epoch: u64,
    pub(super) change: u64,
}

impl Relays {
    pub(super) fn turn(&self, item: &str) -> Arc<Turn> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(item) {
            return Arc::clone(turn);
        }
        Arc::clone(turns.entry(item.to_owned()).or_default())
    }
}
