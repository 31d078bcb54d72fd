//! Latches: arrives at them, and waits until they open.

use std::sync::Arc;
use std::time::Duration;

use super::retry::Retry;
use crate::core::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::store::{Arrival, LatchReply};

/// How long a waiter sleeps at most, because a message may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Arrives, or looks. Returns how many parties have arrived.
///
/// # Errors
///
/// If the latch waits for another number of parties, or the name is not that of a latch.
pub(crate) async fn arrive(core: &Core, arrival: &Arrival) -> Result<u32> {
    let mut retry = Retry::new(core);
    loop {
        match core.store.arrive(arrival, retry.limit).await {
            Ok(reply) => {
                // The server does not tell a client of what it changed itself.
                core.observers.changed(&arrival.name);
                return arrived(arrival, reply);
            }
            Err(failure) => retry.after(failure).await?,
        }
    }
}

/// Waits until the latch is open. Returns how many parties have arrived if that is too few at the limit.
pub(crate) async fn wait(
    core: Arc<Core>,
    look: Arrival,
    limit: Option<Moment>,
) -> Result<Result<(), u32>> {
    let changed = if bug(Bug::LatchNotTold) {
        Arc::default()
    } else {
        core.observers.add(&look.name)
    };
    let clock = core.clock.clone();
    let mut retry = Retry::new(&core);
    loop {
        // Asked before the look, so that no change after it is missed.
        let observed = core.store.observe(core.id, &look.name, retry.limit).await;
        let seen = match observed {
            Ok(_) => core.store.arrive(&look, retry.limit).await,
            Err(failure) => Err(failure),
        };
        let arrived = match seen {
            Ok(reply) => arrived(&look, reply)?,
            Err(failure) => {
                retry.after(failure).await?;
                continue;
            }
        };
        if arrived >= look.need {
            return Ok(Ok(()));
        }
        let now = clock.now();
        if limit.is_some_and(|limit| now >= limit) {
            return Ok(Err(arrived));
        }
        let look_again_at = now + LOOK_EVERY;
        let look_again_at = limit.map_or(look_again_at, |limit| limit.min(look_again_at));
        tokio::select! {
            () = changed.notified() => {}
            () = clock.sleep_until(look_again_at) => {}
        }
        if core.is_closed() {
            return Err(Error::closed());
        }
        retry = Retry::new(&core);
    }
}

fn arrived(arrival: &Arrival, reply: LatchReply) -> Result<u32> {
    let (name, need) = (&arrival.name, arrival.need);
    let (kind, text) = match reply {
        LatchReply::Closed { arrived } => return Ok(arrived.min(need.saturating_sub(1))),
        LatchReply::Open => return Ok(need),
        LatchReply::OtherNeed(other) => (
            ErrorKind::Mismatch,
            format!(
                "cannot use the latch `{name}` for `{need}` parties: it waits for `{other}`; use the \
                 same number in every program, or another name"
            ),
        ),
        LatchReply::Lock(holder) => (
            ErrorKind::NotALock,
            format!(
                "cannot use `{name}` as a latch: it is a lock or a semaphore, held by `{holder}`; use \
                 another name"
            ),
        ),
    };
    Err(Error::new(kind, text))
}
