//! One rebuild in the background for all callers that need it at once.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Need, rebuild};
use crate::core::Core;

/// Starts a rebuild of `item` unless one is running. It does nothing if the gate is up to date. The
/// receiver ends with the rebuild, whether or not that succeeded: check the gate again.
pub(crate) fn begin(core: &Arc<Core>, item: &str) -> watch::Receiver<()> {
    let mut running = core.rebuilds.by_item();
    if let Some(rebuild) = running.get(item) {
        return rebuild.clone();
    }
    let (ends, running_rebuild) = watch::channel(());
    running.insert(item.to_owned(), running_rebuild.clone());
    let (core, item) = (Arc::clone(core), item.to_owned());
    tokio::spawn(async move {
        // Also if the rebuild panics.
        let ended = Ended {
            core,
            item,
            _ends: ends,
        };
        let rebuilding = rebuild(&ended.core, &ended.item, Need::Current);
        // The error is in the log, and every waiting caller checks the gate again.
        let _ = ended.core.gone.run_until_cancelled(rebuilding).await;
    });
    running_rebuild
}

/// As [`begin`], and waits for its end.
pub(crate) async fn join(core: &Arc<Core>, item: &str) {
    let mut running = begin(core, item);
    // Nothing is ever sent: this ends with the sender.
    let _ = running.changed().await;
}

struct Ended {
    core: Arc<Core>,
    item: String,
    _ends: watch::Sender<()>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.core.rebuilds.by_item().remove(&self.item);
    }
}
