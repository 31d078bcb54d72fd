//! Renews a detached lease once.

use std::time::Duration;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::lease::{Lease, believed_until};
use crate::moment::Moment;
use crate::standing::LostReason;
use crate::store::{LeaseSpec, RenewReply};

/// How long to wait before retrying.
const PAUSE: Duration = Duration::from_millis(50);

/// Retries until there is a useful reply or no time left. Repeating is harmless.
pub(crate) async fn renew(core: &Core, lease: Lease, ttl: Duration) -> Result<Moment> {
    let held = LeaseSpec {
        id: lease.id.clone(),
        name: lease.name.clone(),
        ttl,
        // Not known here; touching metadata that does not exist changes nothing.
        has_meta: true,
        replicas: core.settings.replicas,
        last_fence: None,
    };
    let until = extend(core, &held).await?;
    core.detached.renewed(&lease, ttl, until, core.clock.now());
    core.record_changed.notify_one();
    Ok(until)
}

/// The same for a lease of which more is known. Its ttl is the new one.
pub(crate) async fn extend(core: &Core, held: &LeaseSpec) -> Result<Moment> {
    let limit = core.clock.now() + core.settings.unreachable_after;
    loop {
        let trouble = match core.store.renew(held, false, limit).await {
            Ok(RenewReply::NotHeld(not_held)) => {
                return Err(Error::lost(&held.name, not_held.reason()));
            }
            Ok(RenewReply::Until { sent_at }) => {
                let until = believed_until(sent_at, held.ttl);
                if core.clock.now() < until {
                    return Ok(until);
                }
                // The reply came after the lease could have expired, so it proves nothing.
                Error::lost(&held.name, LostReason::Expired)
            }
            Ok(RenewReply::Unconfirmed(failure)) => failure.error,
            Err(failure) if failure.transient => failure.error,
            Err(failure) => return Err(failure.error),
        };
        if core.is_closed() {
            return Err(Error::closed());
        }
        if core.clock.now() + PAUSE >= limit {
            return Err(trouble);
        }
        core.clock.sleep_until(core.clock.now() + PAUSE).await;
    }
}
