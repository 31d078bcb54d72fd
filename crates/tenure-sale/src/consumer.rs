//! The consumer: commits orders from the queues to the ledger, and maintains the gates.

pub(crate) mod backoff;
mod care;
pub(crate) mod commits;
mod contradiction;
mod keeper;
mod options;
pub(crate) mod settle;
mod takeover;
mod worker;

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::keeper::Keeper;
pub use self::options::ConsumerOptions;
pub(crate) use self::settle::settle;
use crate::core::Core;
use crate::error::Result;
use crate::sale::Sale;

/// Consumes the queues of all items of a sale, until it is stopped or dropped.
///
/// It also sends changes to the gates, expires orders, rebuilds gates whose server was replaced,
/// and deletes data that is no longer needed. Any number of consumers may run at once, in one or
/// many processes; if one dies, another takes over its entries.
///
/// Dropping it aborts it at any point, which is safe: another consumer does the rest, after
/// [`ConsumerOptions::idle`]. Prefer to [`stop`](Consumer::stop) it.
#[must_use = "a consumer stops when it is dropped"]
pub struct Consumer {
    name: String,
    stop: CancellationToken,
    running: AbortOnDropHandle<()>,
    /// Keeps the sale's background tasks alive. Not set for the consumer that the sale itself owns.
    _sale: Option<Sale>,
}

impl Sale {
    /// Starts to consume, with [`ConsumerOptions::default`] or other options. At least one process
    /// of a sale must do so, otherwise orders stay in the queue until the gate answers *busy*.
    ///
    /// Not needed with a gate in memory: the sale then consumes its own queue.
    ///
    /// # Errors
    ///
    /// If an option is out of range.
    pub fn consume(&self, options: ConsumerOptions) -> Result<Consumer> {
        options.check()?;
        let core = Arc::clone(self.core());
        Ok(Consumer::start(core, options, Some(self.clone())))
    }
}

impl Consumer {
    pub(crate) fn start(core: Arc<Core>, options: ConsumerOptions, sale: Option<Sale>) -> Self {
        // Two consumers of one sale need different names.
        let name = format!("{}-{:04x}", core.name, rand::random::<u16>());
        let stop = CancellationToken::new();
        let keeper = Keeper::new(core, name.clone(), options, stop.clone());
        Self {
            name,
            stop,
            running: AbortOnDropHandle::new(tokio::spawn(keeper.run())),
            _sale: sale,
        }
    }

    /// Its unique name at the gates.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops cleanly: reads nothing new, commits and acknowledges what it has. If the ledger is
    /// unavailable for longer than [`ConsumerOptions::stop_within`], the rest is left for another
    /// consumer.
    pub async fn stop(self) {
        self.stop.cancel();
        // Nothing else can abort it; if it panicked, there is nothing left to stop.
        let _ = self.running.await;
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
