//! A gate that accepts what the ledger rejects has forgotten something: it is loaded anew.

use std::sync::Arc;

use tracing::warn;

use crate::core::Core;
use crate::failpoint::bug;
use crate::rebuild::{self, Need};

/// Rebuilds the gate of an item, in the background, because the ledger rejected what it accepted.
pub(super) fn resolve(core: &Arc<Core>, item: &str) {
    if bug("contradiction-unseen") || !core.contradictions.is_new(item) {
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
