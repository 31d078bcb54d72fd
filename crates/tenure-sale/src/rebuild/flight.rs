//! One rebuild for all who notice at once that one is needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{Need, rebuild};
use crate::sale::Core;

/// The rebuilds under way in this process, by item.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    // A std mutex, not an async one: nobody waits while it is held.
    running: Mutex<HashMap<String, watch::Receiver<()>>>,
}

impl Flights {
    /// Sees to it that a rebuild of `item` is under way, unless the gate is in order. The receiver ends
    /// with it, however it ends: look again.
    pub(crate) fn begin(core: &Arc<Core>, item: &str) -> watch::Receiver<()> {
        let mut running = core.flights.running();
        if let Some(flight) = running.get(item) {
            return flight.clone();
        }
        let (ends, flight) = watch::channel(());
        running.insert(item.to_owned(), flight.clone());
        let (core, item) = (Arc::clone(core), item.to_owned());
        tokio::spawn(async move {
            // Also if the rebuild panics.
            let ended = Ended {
                core,
                item,
                _ends: ends,
            };
            let rebuilding = rebuild(&ended.core, &ended.item, Need::Current);
            // The error is in the log, and whoever waits looks again.
            let _ = ended.core.gone.run_until_cancelled(rebuilding).await;
        });
        flight
    }

    /// As [`begin`](Self::begin), and waits for its end.
    pub(crate) async fn join(core: &Arc<Core>, item: &str) {
        let mut flight = Self::begin(core, item);
        // Nothing is ever sent: this ends with the sender.
        let _ = flight.changed().await;
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<()>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Ended {
    core: Arc<Core>,
    item: String,
    _ends: watch::Sender<()>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.core.flights.running().remove(&self.item);
    }
}
