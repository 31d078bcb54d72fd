//! Acquires a lock without waiting for its holder.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::attempt::{Acquisition, AttemptOutcome};
use super::keep;
use super::retry::Retry;
use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::holds::Holds;
use crate::lease::LeaseId;
use crate::name::LockName;
use crate::pending_work::PendingOne;

/// The first pause before looking again whether a keeper has let the lock go.
const PAUSE_MIN: Duration = Duration::from_millis(1);

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
    let mut keeper = AskedKeeper::default();
    let result = loop {
        let failure = match acquisition.attempt(core, false, retry.limit).await {
            Ok(AttemptOutcome::Granted(belief)) => return Ok(Some(belief)),
            Ok(AttemptOutcome::Busy(busy)) => {
                let name = &acquisition.request.name;
                if is_gone() || !keeper.may_let_go(core, name, busy.holder).await {
                    break Ok(None);
                }
                continue;
            }
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

/// The client that was asked to let the lock go, because perhaps nobody holds it.
#[derive(Default)]
pub(super) struct AskedKeeper {
    lease: Option<LeaseId>,
    /// How long to pause before the next look.
    pause: Duration,
}

impl AskedKeeper {
    /// Asks the keeper of a lease, and waits for a moment. False if there is no keeper, or if the
    /// moment is over: the lock is really held.
    pub(super) async fn may_let_go(
        &mut self,
        core: &Arc<Core>,
        name: &LockName,
        holder: LeaseId,
    ) -> bool {
        match &self.lease {
            None if keep::ask(core, name, &holder) => {
                self.lease = Some(holder);
                self.pause = PAUSE_MIN;
            }
            Some(asked) if *asked == holder && self.pause * 2 <= keep::ASK_WAIT => self.pause *= 2,
            // A keeper would have let it go by now, or another holder came first.
            _ => return false,
        }
        core.clock.sleep_until(core.clock.now() + self.pause).await;
        true
    }
}
