//! Retries requests while the store does not reply.

use crate::backoff::RETRY_PAUSE;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::store::Failure;

/// A request that is repeated until it has a result, or no time is left. It must be safe to repeat.
pub(crate) struct Retry<'a> {
    core: &'a Core,
    /// When to give up.
    pub(crate) limit: Moment,
    /// An error that the store itself reported is more useful than a later timeout.
    store_error: Option<Error>,
}

impl<'a> Retry<'a> {
    pub(crate) fn new(core: &'a Core) -> Self {
        Self::since(core, core.clock.now())
    }

    /// For a request that began before.
    pub(crate) fn since(core: &'a Core, started_at: Moment) -> Self {
        Self {
            core,
            limit: started_at + core.settings.unreachable_after,
            store_error: None,
        }
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    ///
    /// If there should be none: the client was closed, a retry would not help, or no time is left.
    pub(crate) async fn after(&mut self, failure: Failure) -> Result<()> {
        let clock = &self.core.clock;
        if !failure.transient {
            return Err(failure.error);
        }
        if self.core.is_closed() {
            return Err(Error::closed());
        }
        if failure.in_flight.is_none() {
            self.store_error = Some(failure.error.share());
        }
        if clock.now() + RETRY_PAUSE >= self.limit {
            return Err(self.store_error.take().unwrap_or(failure.error));
        }
        clock.sleep_until(clock.now() + RETRY_PAUSE).await;
        Ok(())
    }
}

/// Repeats a call that changes nothing.
pub(crate) async fn read<T, F>(core: &Core, read: impl Fn(Moment) -> F) -> Result<T>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut retry = Retry::new(core);
    loop {
        match read(retry.limit).await {
            Ok(seen) => return Ok(seen),
            Err(failure) => retry.after(failure).await?,
        }
    }
}
