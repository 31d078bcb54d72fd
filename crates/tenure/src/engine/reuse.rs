//! Gives a caller the lease that its process keeps.

use std::sync::Arc;

use super::attempt::AcquireRequest;
use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::Result;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::holds::Holds;

/// How often to look whether the server's clock has reached the next fence: some microseconds.
const LOOKS_MAX: u32 = 200;

/// What a caller found.
pub(crate) enum Reuse {
    Granted(Guard),
    /// The process kept a lease that is not what the caller wants, or may not be used any more. It
    /// must be released first.
    Unfit(Arc<Belief>),
    Nothing,
}

/// Gives a caller the lease that this process keeps, with the next fence.
///
/// # Errors
///
/// If the client was closed.
pub(crate) fn try_reuse(
    client: &Arc<ClientHandle>,
    owner: Option<&Arc<Holds>>,
    request: &AcquireRequest,
) -> Result<Reuse> {
    let core = &client.core;
    // Before checking that the client is open: a shutdown either waits for this or is noticed.
    let _pending = core.pending.begin();
    client.check_open()?;
    if core.queues.is_waited_for(&request.name) {
        return Ok(Reuse::Nothing);
    }
    let Some(kept) = core.kept.take(&request.name) else {
        return Ok(Reuse::Nothing);
    };
    let belief = kept.belief;
    let fits = request.is_met_by(&belief);
    let next = fits.then(|| for_next_use(core, &belief)).flatten();
    let Some(next) = next else {
        return Ok(Reuse::Unfit(belief));
    };
    if !core.watchdog.hand_off(&belief, &next) {
        return Ok(Reuse::Unfit(belief));
    }
    core.stats.acquired();
    core.stats.reused();
    let hold = Hold::tracked(Arc::clone(client), owner.cloned(), next);
    let guard = Guard::new(hold);
    // Dropping the guard releases it.
    client.check_open()?;
    Ok(Reuse::Granted(guard))
}

/// The belief for the next use. A caller that is faster than a microsecond waits for the next fence.
fn for_next_use(core: &Core, belief: &Arc<Belief>) -> Option<Arc<Belief>> {
    // Counted, because a clock may stand still.
    for _ in 0..LOOKS_MAX {
        let now = core.clock.now();
        let next = belief.for_next_use(now);
        if next.is_some() || !belief.is_ahead_of_clock(now) {
            return next;
        }
        std::hint::spin_loop();
    }
    None
}

/// Releases a lease that was kept and is of no use to its process. Returns when the lock is free, or
/// when that is not known in time.
pub(crate) async fn release_unfit(client: &ClientHandle, belief: &Belief) {
    client.core.untrack(belief);
    client.core.kept.forget(belief);
    // If the server refuses, the caller's own request tells.
    let _ = client.release(belief, None).await;
}
