//! The first attempt, made by the caller's own task.
//!
//! Most locks are free. Then the engine is not needed: no other thread wakes up to send the
//! request, and the reply goes straight to the caller. The engine handles everything else: a busy
//! lock, a missing reply, a caller that goes away midway.

use std::sync::Arc;

use super::attempt::{AcquireRequest, Acquisition, AttemptOutcome};
use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::holds::Holds;
use crate::pending::PendingOne;
use crate::store::{Failure, InFlight, RESPONSE_TIMEOUT};

/// The result of the fast path.
pub(crate) enum FastPathOutcome {
    Granted(Guard),
    /// The lock is held.
    Busy(Acquisition),
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
    let pending = client.core.pending.begin();
    client.check_open()?;
    let acquisition = Acquisition::new(&client.core, request);
    let attempt = acquisition.to_attempt(1, false);
    let response = client.core.store.acquire_on_caller(&attempt);
    // A shorter limit needs a timer, and only the engine has timers.
    let patient = client.core.settings.unreachable_after >= RESPONSE_TIMEOUT;
    let Some((in_flight, response)) = response.filter(|_| patient) else {
        return Ok(FastPathOutcome::NotAnswered(acquisition));
    };
    let mut ticket = CancelOnDrop {
        client,
        in_flight,
        acquisition: Some(acquisition),
        _pending: pending,
    };
    let answer = response.await;
    let Some(mut acquisition) = ticket.acquisition.take() else {
        return Err(Error::closed());
    };
    match acquisition.interpret(&client.core, attempt, answer) {
        Ok(AttemptOutcome::Granted(belief)) => {
            make_guard(client, owner, belief).map(FastPathOutcome::Granted)
        }
        Ok(AttemptOutcome::Busy(_)) => Ok(FastPathOutcome::Busy(acquisition)),
        Err(Failure {
            error,
            transient: false,
            in_flight: None,
        }) => Err(error),
        Ok(AttemptOutcome::NotYet(_)) | Err(_) => Ok(FastPathOutcome::NotAnswered(acquisition)),
    }
}

fn make_guard(
    client: &Arc<ClientHandle>,
    owner: Option<&Arc<Holds>>,
    belief: Arc<Belief>,
) -> Result<Guard> {
    if client.core.is_closed() {
        client.core.stats.cancelled();
        let core = Arc::clone(&client.core);
        let pending = core.pending.begin();
        client.engine.spawn(async move {
            core.release_unclaimed(&belief);
            drop(pending);
        });
        return Err(Error::closed());
    }
    let guard = Guard::new(Hold::new(Arc::clone(client), owner.cloned(), belief));
    if client.core.is_closed() {
        // A shutdown that began meanwhile may have missed it. Dropping the guard releases it.
        return Err(Error::closed());
    }
    Ok(guard)
}

/// A request in flight. If its future is dropped, the engine cleans up.
struct CancelOnDrop<'a> {
    client: &'a Arc<ClientHandle>,
    in_flight: Option<InFlight>,
    acquisition: Option<Acquisition>,
    _pending: PendingOne,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(mut acquisition) = self.acquisition.take() else {
            return;
        };
        if let Some(in_flight) = self.in_flight {
            acquisition.may_still_run(in_flight);
        }
        let core = Arc::clone(&self.client.core);
        let pending = core.pending.begin();
        self.client.engine.spawn(async move {
            acquisition.abandon(&core).await;
            drop(pending);
        });
    }
}
