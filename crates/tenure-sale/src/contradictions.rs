//! When gates were loaded anew because they accepted what the ledger rejected.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Orders that were accepted before a rebuild may be rejected after it, so one is enough for a while.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Contradictions {
    // A std mutex, not an async one: it is never held across an await.
    last: Mutex<HashMap<String, Instant>>,
}

impl Contradictions {
    /// Whether this one counts.
    pub(crate) fn is_new(&self, item: &str) -> bool {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, at| now < *at + EVERY);
        if last.contains_key(item) {
            return false;
        }
        last.insert(item.to_owned(), now);
        true
    }
}
