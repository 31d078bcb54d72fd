//! A gate that accepts what the ledger rejects has forgotten something: it is loaded anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::core::Core;
use crate::rebuild::{self, Need};

/// Orders that were accepted before a rebuild may be rejected after it, so one is enough for a while.
const EVERY: Duration = Duration::from_secs(10);

/// When gates were loaded anew for this reason.
#[derive(Debug, Default)]
pub(crate) struct Contradictions {
    // A std mutex, not an async one: it is never held across an await.
    last: Mutex<HashMap<String, Instant>>,
}

impl Contradictions {
    /// Whether this one counts.
    fn is_new(&self, item: &str) -> bool {
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

/// Rebuilds the gate of an item, in the background, because the ledger rejected what it accepted.
pub(super) fn resolve(core: &Arc<Core>, item: &str) {
    if !core.contradictions.is_new(item) {
        return;
    }
    warn!(
        item,
        "the ledger rejected an accepted order: the gate forgot something and is rebuilt"
    );
    let (core, item) = (Arc::clone(core), item.to_owned());
    // A failure is in the log, and the next rejected order tries again.
    tokio::spawn(async move { rebuild::in_background(&core, &item, Need::Always).await });
}
