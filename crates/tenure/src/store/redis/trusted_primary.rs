//! The primary whose grants a client trusts.

use std::sync::{Arc, Mutex, PoisonError};

/// The primary at one address that is known to have been in charge long enough. This stays true
/// while a server has this run id and replication id.
#[derive(Default)]
pub(super) struct TrustedPrimary(Mutex<Option<Arc<str>>>);

impl TrustedPrimary {
    pub(super) fn primary(&self) -> Option<Arc<str>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Another primary replied.
    pub(super) fn forget(&self) {
        self.set(None);
    }

    pub(super) fn set(&self, primary: Option<Arc<str>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = primary;
    }
}
