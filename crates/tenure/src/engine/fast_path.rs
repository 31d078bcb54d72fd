//! The first attempt, made by the caller's own task.
//!
//! Most locks are free. Then the engine is not needed: no other thread wakes up to send the
//! request, and the reply goes straight to the caller. The engine handles everything else: a busy
//! lock, a missing reply, a caller that goes away midway.

use std::sync::Arc;

use super::attempt::{AcquireRequest, Acquisition, AttemptOutcome, CancelOnDrop};
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::holds::Holds;
use crate::lease::LeaseId;
use crate::store::Failure;

/// The result of the fast path.
pub(crate) enum FastPathOutcome {
    Granted(Guard),
    /// The lock is held by this lease.
    Busy(Acquisition, LeaseId),
    /// The store could not be asked or did not reply: the engine continues with this.
    NotAnswered(Acquisition),
}

/// Tries once, if the store can be used from the caller's task.
///
/// # Errors
///
/// Permanent errors of the store, or if the client was closed meanwhile.
pub(crate) async fn try_acquire(
    client: &Arc<ClientHandle>,
    owner: Option<&Arc<Holds>>,
    request: AcquireRequest,
) -> Result<FastPathOutcome> {
    // Before checking whether the client is open: a shutdown either waits for this or is seen here.
    let _pending = client.core.pending.begin();
    client.check_open()?;
    let acquisition = Acquisition::new(&client.core, request);
    let fences = Core::fences_to_keep(acquisition.request.keep);
    let attempt = acquisition.to_attempt(fences, false);
    let response = client.core.store.acquire_on_caller(&attempt);
    // A shorter limit needs a timer, and only the engine has timers.
    let patient = client.core.settings.is_patient();
    let Some((in_flight, response)) = response.filter(|_| patient) else {
        return Ok(FastPathOutcome::NotAnswered(acquisition));
    };
    let cancel = CancelOnDrop::new((&client.core, &client.engine), acquisition, in_flight);
    let answer = response.await;
    let Some(mut acquisition) = cancel.disarm() else {
        return Err(Error::closed());
    };
    match acquisition.interpret(&client.core, attempt, answer) {
        Ok(AttemptOutcome::Granted(belief)) => {
            Guard::take(client, owner.cloned(), belief).map(FastPathOutcome::Granted)
        }
        Ok(AttemptOutcome::Busy(busy)) => Ok(FastPathOutcome::Busy(acquisition, busy.holder)),
        Err(Failure {
            error,
            transient: false,
            in_flight: None,
        }) => Err(error),
        Ok(AttemptOutcome::NotYet(_)) | Err(_) => Ok(FastPathOutcome::NotAnswered(acquisition)),
    }
}
