//! Continues a lease in the other mode: a writer goes on as a reader, a reader as a writer.

use std::sync::Arc;

use super::retry::Retry;
use crate::belief::{Belief, Grant};
use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lease::{Fence, LeaseId};
use crate::mode::Mode;
use crate::moment::Moment;
use crate::pending_work::PendingOne;
use crate::standing::{LostReason, Standing};
use crate::store::{InFlight, LeaseSpec, ModeReply, NotHeld};
use crate::unchanged::Unchanged;

/// Changes the mode of a lease that one guard holds. Runs on the engine: if its caller goes away, the
/// guard that it returns is dropped, and the lock is released.
pub(crate) async fn change_mode(
    hold: Hold,
    to: Mode,
    _pending: PendingOne,
) -> Result<Guard, Unchanged> {
    let client = Arc::clone(hold.client());
    let (core, belief) = (&client.core, Arc::clone(hold.belief()));
    // A renewal under the old id would find that the lease is gone.
    core.watchdog.wait_for_renewal(belief.number).await;
    core.untrack(&belief);
    let number = Core::next_lease_number();
    let held = continued(core, &belief, number, to);
    let mut in_flight = None;
    let changed = match ask(core, &belief, &held, &mut in_flight).await {
        Ok(changed) => changed,
        Err(error) if in_flight.is_some() => {
            // An attempt may still change the mode, so nobody knows which lease there is: both end.
            let before = core.release_request(&belief, None);
            drop(hold.end_without_release());
            client.engine.spawn(core.release_task(before, None));
            drop(core.release_abandoned(held, in_flight));
            return Err(Unchanged::no_longer_held(error));
        }
        Err(error) => return Err(hold.go_on(error)),
    };
    if belief.in_flight.is_some() {
        // An attempt to acquire the lease from before may still land.
        drop(core.release_abandoned(belief.held.clone(), belief.in_flight));
    }
    match changed {
        Ok((fence, sent_at)) => {
            let owner = hold.end_without_release();
            let grant = Grant {
                number,
                held,
                fence,
                fences: 1,
                answered_at: core.clock.now(),
                sent_at,
                renewed: belief.renewed,
                max_hold: (belief.max_hold_at()).map(|at| at.saturating_since(core.clock.now())),
                keep: None,
                uncontended: false,
                meta: Arc::default(),
                permits: None,
                in_flight,
            };
            Guard::take(&client, owner, Arc::new(Belief::new(grant)))
                .map_err(Unchanged::no_longer_held)
        }
        Err(found) => {
            drop(hold.end_without_release());
            let error = Error::lost(&held.name, found.reason());
            Err(Unchanged::no_longer_held(error))
        }
    }
}

/// The same lease in the other mode.
fn continued(core: &Core, belief: &Belief, number: u64, to: Mode) -> LeaseSpec {
    let before = &belief.held;
    let fresh = match to {
        Mode::Exclusive => LeaseId::fresh,
        Mode::Shared | Mode::Permit => LeaseId::fresh_shared,
    };
    let id = fresh(core.settings.layout, &core.id, number, before.ttl);
    LeaseSpec {
        replicas: before.replicas,
        has_meta: false,
        ..LeaseSpec::new(before.name.clone(), id, before.ttl)
    }
}

/// Retries until there is a useful reply, or the lease from before can be believed no longer: nobody
/// else tells its holder meanwhile. Returns the new fence and when the request was sent, or why there is
/// no lease.
async fn ask(
    core: &Core,
    before: &Belief,
    held: &LeaseSpec,
    in_flight: &mut Option<InFlight>,
) -> Result<Result<(Fence, Moment), NotHeld>> {
    let mut retry = Retry::new(core);
    retry.limit = retry.limit.min(before.believable_until());
    let from = &before.held.id;
    loop {
        let failure = match core.store.change_mode(from, held, retry.limit).await {
            Ok(ModeReply::Changed { fence, sent_at }) => return Ok(Ok((fence, sent_at))),
            Ok(ModeReply::NotHeld(found)) => return Ok(Err(found)),
            Ok(ModeReply::Shared { readers, waiters }) => {
                return Err(shared_error(held, readers, waiters));
            }
            Err(failure) => failure,
        };
        let lost = failure.in_flight.map(|it| it.and(*in_flight));
        *in_flight = lost.or(*in_flight);
        retry.after(failure).await?;
    }
}

fn shared_error(held: &LeaseSpec, readers: u64, waiters: u64) -> Error {
    let name = &held.name;
    let text = format!(
        "cannot upgrade lock `{name}` while others read it (`{readers}`) or wait for it (`{waiters}`): \
         two readers that wait for each other would wait forever; release it and acquire it exclusively"
    );
    Error::new(ErrorKind::Busy, text)
}

/// What must be so before the store is asked.
pub(crate) fn check(core: &Core, belief: &Belief, to: Mode) -> Result<()> {
    let name = &belief.held.name;
    core.settings.check_shared()?;
    if belief.held.mode == to {
        let text = format!("lock `{name}` is {to} already");
        return Err(Error::new(ErrorKind::Mismatch, text));
    }
    if belief.standing(core.clock.now()) == Standing::Lost {
        let reason = belief.lost_reason().unwrap_or(LostReason::Expired);
        return Err(Error::lost(name, reason));
    }
    Ok(())
}
