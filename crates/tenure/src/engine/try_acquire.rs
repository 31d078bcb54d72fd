//! Acquires a lock without waiting for its holder.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::attempt::{Acquisition, AttemptOutcome};
use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::holds::Holds;
use crate::pending::PendingOne;

/// How long to wait before retrying.
const PAUSE: Duration = Duration::from_millis(50);

/// Acquires the lock if it is free. Releases a grant that the caller no longer wants.
pub(crate) async fn run(
    client: Arc<ClientHandle>,
    owner: Option<Arc<Holds>>,
    acquisition: Acquisition,
    reply: oneshot::Sender<Result<Option<Guard>>>,
    _pending: PendingOne,
) {
    let answer = match attempt(&client.core, acquisition, || reply.is_closed()).await {
        Ok(None) => Ok(None),
        Err(error) => Err(error),
        Ok(Some(belief)) if client.core.is_closed() || reply.is_closed() => {
            client.core.stats.cancelled();
            client.core.release_unclaimed(&belief);
            Err(Error::closed())
        }
        Ok(Some(belief)) => {
            let hold = Hold::new(Arc::clone(&client), owner, belief);
            Ok(Some(Guard::new(hold)))
        }
    };
    // If the caller leaves at this moment, the guard is dropped here and releases.
    let _ = reply.send(answer);
}

/// Tries once, and again only if the server could not reply.
async fn attempt(
    core: &Arc<Core>,
    mut acquisition: Acquisition,
    is_gone: impl Fn() -> bool,
) -> Result<Option<Arc<Belief>>> {
    let limit = acquisition.started_at + core.settings.unreachable_after;
    // An error that the server itself reported is more useful than a later timeout.
    let mut store_error = None;
    let result = loop {
        match acquisition.attempt(core, false, limit).await {
            Ok(AttemptOutcome::Granted(belief)) => return Ok(Some(belief)),
            Ok(AttemptOutcome::Busy(_)) => break Ok(None),
            Ok(AttemptOutcome::NotYet(not_yet)) => break Err(not_yet.error),
            Err(failure) if failure.transient && core.clock.now() + PAUSE < limit => {
                core.clock.sleep_until(core.clock.now() + PAUSE).await;
                store_error = failure
                    .in_flight
                    .is_none()
                    .then_some(failure.error)
                    .or(store_error);
                if core.is_closed() || is_gone() {
                    break Err(Error::closed());
                }
            }
            Err(failure) if failure.in_flight.is_some() => {
                break Err(store_error.unwrap_or(failure.error));
            }
            Err(failure) => break Err(failure.error),
        }
    };
    acquisition.abandon(core).await;
    result
}
