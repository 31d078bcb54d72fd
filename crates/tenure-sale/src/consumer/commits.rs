//! The commits of this process: one at a time for each item.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Commits of one item wait for its row lock. They wait here, where waiting does not occupy a
/// connection: an item on many shelves has a worker for each, and together they would use up all
/// connections.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    // A std mutex, not an async one: it is never held across an await.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Commits {
    /// The lock to hold while entries of `item` are committed.
    pub(super) fn turn(&self, item: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(item) {
            return Arc::clone(turn);
        }
        Arc::clone(turns.entry(item.to_owned()).or_default())
    }

    /// This item is no longer sold.
    pub(crate) fn forget(&self, item: &str) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.remove(item);
    }
}
