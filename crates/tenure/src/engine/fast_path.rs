//! The first question, asked by the caller's own task.
//!
//! Most locks are free. Then nothing needs the engine: no thread is woken to send the question, and
//! the answer comes straight to the caller. Whatever else happens is left to the engine: a lock that
//! is busy, an answer that does not come, a caller who goes away in the middle.

use std::sync::Arc;

use super::attempt::{AcquireRequest, Acquisition, AttemptOutcome};
use super::release::{self, ReleaseRequest};
use crate::belief::Belief;
use crate::core::{ClientHandle, Core};
use crate::error::{Error, Result};
use crate::guard::{Guard, Released};
use crate::hold::Hold;
use crate::owner::Holds;
use crate::pending::PendingOne;
use crate::store::{Failure, InFlight, SILENCE_LIMIT};

/// What came of asking here.
pub(crate) enum FastPathOutcome {
    Granted(Guard),
    /// Somebody holds it.
    Busy(Acquisition),
    /// The store was not asked, or did not answer: the engine goes on with this.
    NotAnswered(Acquisition),
}

/// Asks once, if the store can be asked from here.
///
/// # Errors
///
/// What the store refuses for good, and if the client was closed meanwhile.
pub(crate) async fn ask(
    client: &Arc<ClientHandle>,
    owner: Option<&Arc<Holds>>,
    wish: AcquireRequest,
) -> Result<FastPathOutcome> {
    // Before looking whether the client is open: a shutdown either waits for this or is seen.
    let pending = client.core.pending.begin();
    client.check_open()?;
    let acquisition = Acquisition::new(&client.core, wish);
    let attempt = acquisition.question(1, false);
    let asking = client.core.store.acquire_here(&attempt);
    // One with less patience needs a timer, which only the engine has.
    let patient = client.core.settings.unreachable_after >= SILENCE_LIMIT;
    let Some((landing, asking)) = asking.filter(|_| patient) else {
        return Ok(FastPathOutcome::NotAnswered(acquisition));
    };
    let mut ticket = CancelOnDrop {
        client,
        landing,
        acquisition: Some(acquisition),
        _pending: pending,
    };
    let answer = asking.await;
    let Some(mut acquisition) = ticket.acquisition.take() else {
        return Err(Error::closed());
    };
    match acquisition.settle(&client.core, attempt, answer) {
        Ok(AttemptOutcome::Granted(belief)) => {
            take_up(client, owner, belief).map(FastPathOutcome::Granted)
        }
        Ok(AttemptOutcome::Busy(_)) => Ok(FastPathOutcome::Busy(acquisition)),
        Err(Failure {
            error,
            transient: false,
            landing: None,
        }) => Err(error),
        Ok(AttemptOutcome::NotYet(_)) | Err(_) => Ok(FastPathOutcome::NotAnswered(acquisition)),
    }
}

fn take_up(
    client: &Arc<ClientHandle>,
    owner: Option<&Arc<Holds>>,
    belief: Arc<Belief>,
) -> Result<Guard> {
    if client.core.is_closed() {
        client.core.stats.cancelled();
        let core = Arc::clone(&client.core);
        let pending = core.pending.begin();
        client.engine.spawn(async move {
            core.return_grant(&belief);
            drop(pending);
        });
        return Err(Error::closed());
    }
    let name = belief.held.name.clone();
    let guard = Guard::new(Hold::take_up(Arc::clone(client), owner.cloned(), belief));
    if client.core.is_closed() {
        // A shutdown that began meanwhile may have missed it. Dropping it releases.
        return Err(Error::closed());
    }
    if let Some(owner) = owner {
        client.core.lines.share(&name, owner);
    }
    Ok(guard)
}

/// Releases, if the store can be asked from here. An outer `Err` if it was not, or did not answer,
/// with whether it may have been released all the same.
pub(crate) async fn release(
    core: &Core,
    parting: &ReleaseRequest,
) -> Result<Result<Released>, bool> {
    let lease = &parting.lease;
    let asking = core.store.release_here(lease, parting.leaving.as_ref());
    let asking = asking.filter(|_| core.settings.unreachable_after >= SILENCE_LIMIT);
    match asking.ok_or(false)?.await {
        Ok(release) => {
            if parting.leaving.is_some() {
                core.lines.place_left(&lease.name);
            }
            Ok(Ok(release::released(core, lease, release)))
        }
        Err(Failure {
            error,
            transient: false,
            landing: None,
        }) => Ok(Err(error)),
        Err(failure) => Err(failure.landing.is_some()),
    }
}

/// A question under way. If its future is dropped, the engine cleans up behind it.
struct CancelOnDrop<'a> {
    client: &'a Arc<ClientHandle>,
    landing: Option<InFlight>,
    acquisition: Option<Acquisition>,
    _pending: PendingOne,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(mut acquisition) = self.acquisition.take() else {
            return;
        };
        if let Some(landing) = self.landing {
            acquisition.may_land(landing);
        }
        let core = Arc::clone(&self.client.core);
        let pending = core.pending.begin();
        self.client.engine.spawn(async move {
            acquisition.give_up(&core).await;
            drop(pending);
        });
    }
}
