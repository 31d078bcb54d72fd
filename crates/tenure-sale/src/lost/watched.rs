//! Up to where the queues of items were checked for entries that are gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Watched {
    // A std mutex, not an async one: it is never held across an await.
    by_item: Mutex<HashMap<String, Checked>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Checked {
    epoch: u64,
    /// For each shelf, the place before which all entries are accounted for.
    pub(super) until: Vec<u64>,
}

impl Watched {
    pub(super) fn of(&self, item: &str, epoch: u64) -> Checked {
        let known = self.by_item().get(item).cloned();
        let known = known.filter(|checked| checked.epoch == epoch);
        known.unwrap_or_else(|| Checked {
            epoch,
            until: Vec::new(),
        })
    }

    pub(super) fn store(&self, item: &str, checked: Checked) {
        self.by_item().insert(item.to_owned(), checked);
    }

    pub(crate) fn forget(&self, item: &str) {
        self.by_item().remove(item);
    }

    fn by_item(&self) -> MutexGuard<'_, HashMap<String, Checked>> {
        self.by_item.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
