//! Adopts a detached lease: continues it in this client under a new lease id.

use std::sync::Arc;

use super::renew_detached::read_renewal;
use super::retry::Retry;
use crate::belief::{Belief, Grant};
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::holds::Holds;
use crate::lease::{Lease, LeaseId};
use crate::mode::Mode;
use crate::pending_work::PendingOne;
use crate::store::{InFlight, LeaseSpec};

/// Adopts a detached lease under an id of our own.
pub(crate) async fn adopt(
    client: Arc<ClientHandle>,
    owner: Option<Arc<Holds>>,
    lease: Lease,
    _pending: PendingOne,
) -> Result<Guard> {
    let core = &client.core;
    let number = Core::next_lease_number();
    let fresh = match lease.id.mode() {
        Mode::Exclusive => LeaseId::fresh,
        Mode::Shared => LeaseId::fresh_shared,
        Mode::Permit => {
            let text = format!(
                "cannot adopt lease `{}` of semaphore `{}`: permits cannot be adopted; release it",
                lease.id, lease.name
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    };
    let id = fresh(core.settings.layout, &core.id, number, lease.ttl);
    let held = LeaseSpec {
        replicas: core.settings.replicas_of(&lease)?,
        ..LeaseSpec::new(lease.name.clone(), id, lease.ttl)
    };
    let mut in_flight = None;
    match adopt_with_retry(core, &lease, &held, number, &mut in_flight).await {
        Ok(belief) => {
            let guard = Guard::take(&client, owner, belief)?;
            core.detached.remove(&lease.name, &lease.id);
            Ok(guard)
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
    let mut retry = Retry::new(core);
    let sent_at = loop {
        let reply = core.store.adopt(&lease.id, held, retry.limit).await;
        let failure = match reply.and_then(|reply| read_renewal(core, held, reply)) {
            Ok(sent_at) => break sent_at,
            Err(failure) => failure,
        };
        let lost = failure.in_flight.map(|it| it.and(*in_flight));
        *in_flight = lost.or(*in_flight);
        retry.after(failure).await?;
    };
    Ok(Arc::new(Belief::new(Grant {
        number,
        held: held.clone(),
        fence: lease.fence,
        fences: 1,
        answered_at: sent_at,
        sent_at,
        renewed: true,
        max_hold: None,
        keep: None,
        uncontended: false,
        meta: Arc::default(),
        permits: None,
        in_flight: in_flight.take(),
    })))
}
