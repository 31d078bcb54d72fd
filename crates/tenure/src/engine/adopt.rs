//! Taking up a lease that somebody gave away, and how long one that is given away lasts.

use std::sync::Arc;
use std::time::Duration;

use crate::belief::{Belief, Grant};
use crate::core::{ClientHandle, Core};
use crate::error::{Error, Result};
use crate::guard::{Guard, LostReason};
use crate::hold::Hold;
use crate::lease::{Lease, LeaseId, believed_until};
use crate::owner::Holds;
use crate::pending::PendingOne;
use crate::store::{InFlight, LeaseSpec, RenewReply};

/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes up a detached lease under an id of our own.
pub(crate) async fn adopt(
    client: Arc<ClientHandle>,
    owner: Option<Arc<Holds>>,
    lease: Lease,
    _pending: PendingOne,
) -> Result<Guard> {
    let core = &client.core;
    let number = Core::next_lease_number();
    let held = LeaseSpec {
        id: LeaseId::fresh(core.settings.layout, &core.id, number, lease.ttl),
        name: lease.name.clone(),
        ttl: lease.ttl,
        // Not known here; touching metadata that does not exist changes nothing.
        has_meta: true,
        replicas: core.settings.replicas,
        last_fence: None,
    };
    let mut landing = None;
    match pursue(core, &lease, &held, number, &mut landing).await {
        Ok(belief) if core.is_closed() => {
            core.return_grant(&belief);
            Err(Error::closed())
        }
        Ok(belief) => {
            core.given.forget(&lease.name, &lease.id);
            let hold = Hold::take_up(Arc::clone(&client), owner.clone(), belief);
            if let Some(owner) = owner {
                core.lines.share(&lease.name, &owner);
            }
            Ok(Guard::new(hold))
        }
        Err(error) => {
            if landing.is_some() {
                drop(core.clean_up(held, landing));
            }
            Err(error)
        }
    }
}

/// Asks until there is a useful answer, or no time left.
async fn pursue(
    core: &Arc<Core>,
    lease: &Lease,
    held: &LeaseSpec,
    number: u64,
    landing: &mut Option<InFlight>,
) -> Result<Arc<Belief>> {
    let limit = core.clock.now() + core.settings.unreachable_after;
    // What the store said says more than its silence afterwards.
    let mut said = None;
    loop {
        let trouble = match core.store.adopt(&lease.id, held, limit).await {
            Ok(RenewReply::NotHeld(not_held)) => {
                return Err(Error::lost(&held.name, not_held.reason()));
            }
            Ok(RenewReply::Until { sent_at })
                if core.clock.now() < believed_until(sent_at, held.ttl) =>
            {
                let (held, landing) = (held.clone(), landing.take());
                return Ok(Arc::new(Belief::new(Grant {
                    number,
                    held,
                    fence: lease.fence,
                    fences: 1,
                    answered_at: sent_at,
                    sent_at,
                    renewed: true,
                    max_hold: None,
                    meta: Arc::default(),
                    landing,
                })));
            }
            // The answer came after the lease could have ended: that proves nothing. Ask again.
            Ok(RenewReply::Until { .. }) => Error::lost(&held.name, LostReason::Expired),
            Ok(RenewReply::Unconfirmed(failure)) => failure.error,
            Err(failure) => {
                *landing = failure.landing.map(|it| it.and(*landing)).or(*landing);
                if !failure.transient {
                    return Err(failure.error);
                }
                if failure.landing.is_none() {
                    said = Some(failure.error.share());
                }
                failure.error
            }
        };
        if core.is_closed() {
            return Err(Error::closed());
        }
        if core.clock.now() + PAUSE >= limit {
            return Err(said.unwrap_or(trouble));
        }
        core.clock.sleep_until(core.clock.now() + PAUSE).await;
    }
}
