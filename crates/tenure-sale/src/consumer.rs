//! The consumer: brings orders from the queues into the ledger, and looks after the gates.

mod backoff;
pub(crate) mod commits;
mod keeper;
mod options;
pub(crate) mod settle;
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
/// It also tells gates what changed, lets orders expire, rebuilds gates whose server was replaced, and
/// forgets what is no longer needed. Any number of consumers may run at once, in one or many processes;
/// what one leaves behind when it dies, another takes over.
///
/// Dropping it aborts it at any point, which does no harm: what it did not finish is done by another
/// consumer, after [`ConsumerOptions::idle`]. Better [`stop`](Consumer::stop) it.
#[must_use = "a consumer ends when it is dropped"]
pub struct Consumer {
    name: String,
    stop: CancellationToken,
    running: AbortOnDropHandle<()>,
    /// Keeps what the sale runs in the background alive. Not for the one that the sale itself owns.
    _sale: Option<Sale>,
}

impl Sale {
    /// Begins to consume, with [`ConsumerOptions::default`] or others. Some process of a sale must do
    /// so, else orders stay in the queue until the gate answers *busy*.
    ///
    /// With a gate in memory it is not needed: the sale consumes its own queue.
    ///
    /// # Errors
    ///
    /// If an option is out of bounds.
    pub fn consume(&self, options: ConsumerOptions) -> Result<Consumer> {
        options.check()?;
        let core = Arc::clone(self.core());
        Ok(Consumer::start(core, options, Some(self.clone())))
    }
}

impl Consumer {
    pub(crate) fn start(core: Arc<Core>, options: ConsumerOptions, sale: Option<Sale>) -> Self {
        // Several consumers of one sale are not one.
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

    /// Its name at the gates, unlike any other's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends it cleanly: takes nothing new, commits and acknowledges what it has. If the ledger is away
    /// for longer than [`ConsumerOptions::stop_within`], the rest is left for another consumer.
    pub async fn stop(self) {
        self.stop.cancel();
        // It cannot be aborted by anybody else; if it panicked, there is nothing left to stop.
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
