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
const IN_FLIGHT_MAX: Duration = Duration::from_secs(3);

/// A lease to be released.
#[derive(Debug)]
pub(crate) struct ReleaseRequest {
    pub(crate) lease: LeaseSpec,
    /// The line's place in the store's queue, to be given up with it.
    pub(crate) dequeue: Option<LeaseId>,
    /// Where an earlier attempt for the same lease may still land.
    pub(crate) in_flight: Option<InFlight>,
    /// When the lease has ended by itself.
    pub(crate) ends_before: Moment,
    /// Whether an answer to its release was lost already.
    pub(crate) unknown: bool,
}

impl ReleaseRequest {
    pub(crate) fn of(lease: LeaseSpec, ends_before: Moment) -> Self {
        Self {
            lease,
            dequeue: None,
            in_flight: None,
            ends_before,
            unknown: false,
        }
    }
}

/// What became of a lease that was to be released.
pub(crate) enum ReleaseResult {
    Answered(Released),
    /// It is not there. Whether that is our doing was in an answer that was lost.
    Gone,
    /// The store said nothing in time.
    Unanswered,
}

/// Releases a lease as [`release_until_gone`] does, and says no more than a holder wants to know.
pub(crate) async fn release(core: &Core, request: &ReleaseRequest) -> Result<Released> {
    Ok(match release_until_gone(core, request).await? {
        ReleaseResult::Answered(released) => released,
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
pub(crate) async fn release_until_gone(
    core: &Core,
    request: &ReleaseRequest,
) -> Result<ReleaseResult> {
    let ReleaseRequest {
        lease, ends_before, ..
    } = request;
    let dequeue = request.dequeue.as_ref();
    let (ends_before, mut unknown) = (*ends_before, request.unknown);
    let mut pause = PAUSE_MIN;
    loop {
        let answer = core.store.release(lease, dequeue, ends_before).await;
        if answer.is_ok() && dequeue.is_some() {
            core.queues.left_store_queue(&lease.name);
        }
        let failure = match answer {
            Ok(ReleaseReply::NotHeld) if unknown => return Ok(ReleaseResult::Gone),
            Ok(release) => return Ok(ReleaseResult::Answered(note_released(core, lease, release))),
            Err(failure) => failure,
        };
        unknown |= failure.in_flight.is_some();
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
pub(crate) fn note_released(core: &Core, lease: &LeaseSpec, release: ReleaseReply) -> Released {
    match release {
        ReleaseReply::WasHeld { offered_to } => {
            core.stats.released();
            // If it is one of ours, the store's message comes later, or not at all.
            if let Some(offered_to) = offered_to {
                core.queues.offered(&lease.name, offered_to);
            }
            Released::WasHeld
        }
        ReleaseReply::NotHeld => {
            if core.stats.timings.is_wanted() {
                core.queues.release_found_nothing(&lease.name);
            }
            Released::AlreadyGone
        }
    }
}

/// Releases, then sees to it that no earlier attempt of the same lease can still land. Tells what
/// the release said as soon as that is known, or when the listener's time is up.
pub(crate) async fn release_and_cancel(
    core: Arc<Core>,
    request: ReleaseRequest,
    answer: Option<(oneshot::Sender<Result<Released>>, Moment)>,
    pending: PendingOne,
) {
    let result = match answer {
        None => release(&core, &request).await,
        Some((reply, answer_by)) => {
            let releasing = release(&core, &request);
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
        tracing::warn!(lock = %request.lease.name, %error, "lock.release_failed");
    }
    if let Some(in_flight) = request.in_flight {
        cancel(&core, &request.lease, in_flight).await;
    }
    drop(pending);
}

/// Repeats the release until the attempt can no longer land, or its lease would have ended.
pub(crate) async fn cancel(core: &Core, lease: &LeaseSpec, in_flight: InFlight) {
    let give_up_at = core.clock.now() + IN_FLIGHT_MAX + lease.ttl;
    while core.clock.now() < give_up_at {
        let pause = match core.store.cancel(lease, in_flight, give_up_at).await {
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
