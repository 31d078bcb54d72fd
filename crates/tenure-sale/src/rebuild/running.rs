//! The rebuilds under way in this process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The rebuilds under way in this process, by item. Each receiver ends with its rebuild.
#[derive(Debug, Default)]
pub(crate) struct RunningRebuilds {
    // A std mutex, not an async one: no task waits while it is held.
    by_item: Mutex<HashMap<String, watch::Receiver<()>>>,
}

impl RunningRebuilds {
    pub(super) fn by_item(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<()>>> {
        self.by_item.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
