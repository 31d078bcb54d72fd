//! Acquires a lock without waiting for its holder.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::attempt::{Acquisition, AttemptOutcome};
use super::retry::Retry;
use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::holds::Holds;
use crate::pending_work::PendingOne;

/// Acquires the lock if it is free. Releases a grant that the caller no longer wants.
pub(crate) async fn run(
    client: Arc<ClientHandle>,
    owner: Option<Arc<Holds>>,
    acquisition: Acquisition,
    reply: oneshot::Sender<Result<Option<Guard>>>,
    _pending: PendingOne,
) {
    let answer = attempt(&client.core, acquisition, || reply.is_closed()).await;
    let answer = answer.and_then(|granted| {
        let guard = granted.map(|belief| Guard::take(&client, owner, belief));
        guard.transpose()
    });
    // If the caller leaves at this moment, the guard is dropped here and releases.
    let _ = reply.send(answer);
}

/// Tries once, and again only if the server could not reply.
async fn attempt(
    core: &Arc<Core>,
    mut acquisition: Acquisition,
    is_gone: impl Fn() -> bool,
) -> Result<Option<Arc<Belief>>> {
    let mut retry = Retry::since(core, acquisition.started_at);
    let result = loop {
        let failure = match acquisition.attempt(core, false, retry.limit).await {
            Ok(AttemptOutcome::Granted(belief)) => return Ok(Some(belief)),
            Ok(AttemptOutcome::Busy(_)) => break Ok(None),
            Ok(AttemptOutcome::NotYet(not_yet)) => break Err(not_yet.error),
            Err(_) if is_gone() => break Err(Error::closed()),
            Err(failure) => failure,
        };
        if let Err(error) = retry.after(failure).await {
            break Err(error);
        }
    };
    acquisition.abandon(core).await;
    result
}
