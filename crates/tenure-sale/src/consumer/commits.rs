//! The commits of this process: one at a time for each item.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Commits of one item wait for its row. They wait here, where waiting takes up no connection: an item
/// on many shelves has a worker for each, and together they would leave none for anybody else.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    // A std mutex, not an async one: nobody waits while it is held.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Commits {
    /// Whose lock is to be held while entries of `item` are committed.
    pub(super) fn turn(&self, item: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(item) {
            return Arc::clone(turn);
        }
        Arc::clone(turns.entry(item.to_owned()).or_default())
    }

    /// Nobody sells this item any more.
    pub(crate) fn forget(&self, item: &str) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.remove(item);
    }
}
