//! Renews a detached lease once.

use std::time::Duration;

use super::retry::Retry;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::lease::{Lease, believed_until};
use crate::moment::Moment;
use crate::standing::LostReason;
use crate::store::{Failure, LeaseSpec, RenewReply};

/// Retries until there is a useful reply or no time left. Repeating is harmless.
pub(crate) async fn renew(core: &Core, lease: Lease, ttl: Duration) -> Result<Moment> {
    let held = LeaseSpec {
        replicas: core.settings.replicas_of(&lease)?,
        ..LeaseSpec::new(lease.name.clone(), lease.id.clone(), ttl)
    };
    let until = extend(core, &held).await?;
    core.detached.renewed(&lease, ttl, until, core.clock.now());
    core.record_changed.notify_one();
    Ok(until)
}

/// The same for a lease of which more is known. Its ttl is the new one.
pub(crate) async fn extend(core: &Core, held: &LeaseSpec) -> Result<Moment> {
    let mut retry = Retry::new(core);
    loop {
        let reply = core.store.renew(held, false, retry.limit).await;
        match reply.and_then(|reply| read_renewal(core, held, reply)) {
            Ok(sent_at) => return Ok(believed_until(sent_at, held.ttl)),
            Err(failure) => retry.after(failure).await?,
        }
    }
}

/// When the renewal was sent, if it counts.
pub(super) fn read_renewal(
    core: &Core,
    held: &LeaseSpec,
    reply: RenewReply,
) -> Result<Moment, Failure> {
    match reply {
        RenewReply::Until { sent_at } if core.clock.now() < believed_until(sent_at, held.ttl) => {
            Ok(sent_at)
        }
        // The reply came after the lease could have expired, so it proves nothing. Retry.
        RenewReply::Until { .. } => {
            let expired = Error::lost(&held.name, LostReason::Expired);
            Err(Failure::not_sent(expired))
        }
        RenewReply::Unconfirmed(failure) => Err(failure),
        RenewReply::NotHeld(not_held) => {
            let lost = Error::lost(&held.name, not_held.reason());
            Err(Failure::refused(lost))
        }
    }
}
