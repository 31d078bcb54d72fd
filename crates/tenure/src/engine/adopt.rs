//! Adopts a detached lease: continues it in this client under a new lease id.

use std::sync::Arc;
use std::time::Duration;

use crate::belief::{Belief, Grant};
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::holds::Holds;
use crate::lease::{Lease, LeaseId, believed_until};
use crate::pending::PendingOne;
use crate::standing::LostReason;
use crate::store::{InFlight, LeaseSpec, RenewReply};

/// How long to wait before retrying.
const PAUSE: Duration = Duration::from_millis(50);

/// Adopts a detached lease under an id of our own.
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
    let mut in_flight = None;
    match adopt_with_retry(core, &lease, &held, number, &mut in_flight).await {
        Ok(belief) if core.is_closed() => {
            core.release_unclaimed(&belief);
            Err(Error::closed())
        }
        Ok(belief) => {
            core.detached.remove(&lease.name, &lease.id);
            let hold = Hold::new(Arc::clone(&client), owner, belief);
            Ok(Guard::new(hold))
        }
        Err(error) => {
            if in_flight.is_some() {
                drop(core.release_abandoned(held, in_flight));
            }
            Err(error)
        }
    }
}

/// Retries until there is a useful reply or no time left.
async fn adopt_with_retry(
    core: &Arc<Core>,
    lease: &Lease,
    held: &LeaseSpec,
    number: u64,
    in_flight: &mut Option<InFlight>,
) -> Result<Arc<Belief>> {
    let limit = core.clock.now() + core.settings.unreachable_after;
    // An error that the store itself reported is more useful than a later timeout.
    let mut store_error = None;
    loop {
        let trouble = match core.store.adopt(&lease.id, held, limit).await {
            Ok(RenewReply::NotHeld(not_held)) => {
                return Err(Error::lost(&held.name, not_held.reason()));
            }
            Ok(RenewReply::Until { sent_at })
                if core.clock.now() < believed_until(sent_at, held.ttl) =>
            {
                let (held, in_flight) = (held.clone(), in_flight.take());
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
                    in_flight,
                })));
            }
            // The reply came after the lease could have expired, so it proves nothing. Retry.
            Ok(RenewReply::Until { .. }) => Error::lost(&held.name, LostReason::Expired),
            Ok(RenewReply::Unconfirmed(failure)) => failure.error,
            Err(failure) => {
                *in_flight = failure
                    .in_flight
                    .map(|it| it.and(*in_flight))
                    .or(*in_flight);
                if !failure.transient {
                    return Err(failure.error);
                }
                if failure.in_flight.is_none() {
                    store_error = Some(failure.error.share());
                }
                failure.error
            }
        };
        if core.is_closed() {
            return Err(Error::closed());
        }
        if core.clock.now() + PAUSE >= limit {
            return Err(store_error.unwrap_or(trouble));
        }
        core.clock.sleep_until(core.clock.now() + PAUSE).await;
    }
}
