//! Releases, and the undoing of attempts that nobody waits for any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::core::Core;
use crate::error::Result;
use crate::guard::Released;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::pending::PendingOne;
use crate::store::{InFlight, LeaseSpec, ReleaseReply};

/// How long to wait before trying again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long an attempt may travel before its latest moment has passed, with room to spare.
const LANDING_MAX: Duration = Duration::from_secs(3);

/// A lease to be released.
#[derive(Debug)]
pub(crate) struct ReleaseRequest {
    pub(crate) lease: LeaseSpec,
    /// The line's place in the store's queue, to be given up with it.
    pub(crate) leaving: Option<LeaseId>,
    /// Where an earlier attempt for the same lease may still land.
    pub(crate) landing: Option<InFlight>,
    /// When the lease has ended by itself.
    pub(crate) ends_before: Moment,
    /// Whether an answer to its release was lost already.
    pub(crate) unknown: bool,
}

impl ReleaseRequest {
    pub(crate) fn of(lease: LeaseSpec, ends_before: Moment) -> Self {
        Self {
            lease,
            leaving: None,
            landing: None,
            ends_before,
            unknown: false,
        }
    }
}

/// What became of a lease that was to be released.
pub(crate) enum ReleaseResult {
    Said(Released),
    /// It is not there. Whether that is our doing was in an answer that was lost.
    Gone,
    /// The store said nothing in time.
    Unanswered,
}

/// Releases a lease as [`see_off`] does, and says no more than a holder wants to know.
pub(crate) async fn release(core: &Core, parting: &ReleaseRequest) -> Result<Released> {
    Ok(match see_off(core, parting).await? {
        ReleaseResult::Said(released) => released,
        ReleaseResult::Gone | ReleaseResult::Unanswered => Released::Unknown,
    })
}

/// Releases a lease, and goes on trying until it is known to be gone or must have ended by itself.
///
/// | first answers | then | result |
/// |---|---|---|
/// | released | | was held |
/// | not there | | already gone |
/// | none | released | was held |
/// | none | not there | gone: the lost answer may have been either |
/// | none | none until the lease must have ended | unanswered |
/// | a refusal that will not change | | that error |
pub(crate) async fn see_off(core: &Core, parting: &ReleaseRequest) -> Result<ReleaseResult> {
    let ReleaseRequest {
        lease, ends_before, ..
    } = parting;
    let leaving = parting.leaving.as_ref();
    let (ends_before, mut unknown) = (*ends_before, parting.unknown);
    let mut pause = PAUSE_MIN;
    loop {
        let answer = core.store.release(lease, leaving, ends_before).await;
        if answer.is_ok() && leaving.is_some() {
            core.lines.place_left(&lease.name);
        }
        let failure = match answer {
            Ok(ReleaseReply::NotHeld) if unknown => return Ok(ReleaseResult::Gone),
            Ok(release) => return Ok(ReleaseResult::Said(released(core, lease, release))),
            Err(failure) => failure,
        };
        unknown |= failure.landing.is_some();
        if !failure.transient {
            return Err(failure.error);
        }
        if core.clock.now() >= ends_before {
            return Ok(ReleaseResult::Unanswered);
        }
        let again_at = (core.clock.now() + pause).min(ends_before);
        core.clock.sleep_until(again_at).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Takes note of what the store said, and wakes the waiter whose turn it is.
pub(crate) fn released(core: &Core, lease: &LeaseSpec, release: ReleaseReply) -> Released {
    match release {
        ReleaseReply::WasHeld { offered_to } => {
            core.stats.released();
            // If it is one of ours, the store's message comes later, or not at all.
            if let Some(offered_to) = offered_to {
                core.lines.wake(&lease.name, offered_to);
            }
            Released::WasHeld
        }
        ReleaseReply::NotHeld => {
            if core.stats.timings.is_wanted() {
                core.lines.nothing_released(&lease.name);
            }
            Released::AlreadyGone
        }
    }
}

/// Releases, then sees to it that no earlier attempt of the same lease can still land. Tells what
/// the release said as soon as that is known, or when the listener's time is up.
pub(crate) async fn release_for_good(
    core: Arc<Core>,
    parting: ReleaseRequest,
    answer: Option<(oneshot::Sender<Result<Released>>, Moment)>,
    pending: PendingOne,
) {
    let result = match answer {
        None => release(&core, &parting).await,
        Some((reply, answer_by)) => {
            let releasing = release(&core, &parting);
            tokio::pin!(releasing);
            tokio::select! {
                result = &mut releasing => {
                    let _ = reply.send(result);
                }
                () = core.clock.sleep_until(answer_by) => {
                    let _ = reply.send(Ok(Released::Unknown));
                    let _ = releasing.await;
                }
            }
            Ok(Released::Unknown)
        }
    };
    if let Err(error) = result {
        tracing::warn!(lock = %parting.lease.name, %error, "lock.release_failed");
    }
    if let Some(landing) = parting.landing {
        cancel(&core, &parting.lease, landing).await;
    }
    drop(pending);
}

/// Repeats the release until the attempt can no longer land, or its lease would have ended.
pub(crate) async fn cancel(core: &Core, lease: &LeaseSpec, landing: InFlight) {
    let give_up_at = core.clock.now() + LANDING_MAX + lease.ttl;
    while core.clock.now() < give_up_at {
        let pause = match core.store.cancel(lease, landing, give_up_at).await {
            Ok(None) => return,
            // Not for long at a time: a server's clock that was set back makes it hours, and
            // what lands meanwhile must not stay.
            Ok(Some(early)) => (early + Duration::from_millis(1)).min(PAUSE_MAX),
            // The server will not have it. What landed ends by itself.
            Err(failure) if !failure.transient => return,
            Err(_) => PAUSE_MAX / 5,
        };
        core.clock.sleep_until(core.clock.now() + pause).await;
    }
}
