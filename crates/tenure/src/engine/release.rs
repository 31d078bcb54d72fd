//! Releases leases, and cancels abandoned attempts.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::retry::Retry;
use crate::backoff::Backoff;
use crate::belief::Belief;
use crate::core::Core;
use crate::error::Result;
use crate::lease::LeaseId;
use crate::moment::Moment;
use crate::pending_work::PendingOne;
use crate::seeded::{Bug, bug};
use crate::standing::{Released, Resigned};
use crate::store::{Failure, InFlight, LeaseSpec, OFFER, ReleaseReply};

/// How many response timeouts an attempt may stay in flight before its latest moment has passed, with
/// some margin.
const IN_FLIGHT_MAX: u32 = 3;

/// For how long at least an abandoned acquisition is cleaned up: its place in the queue does not expire
/// with its lease.
const ABANDONED: Duration = Duration::from_secs(15);

/// A lease to release.
#[derive(Debug)]
pub(crate) struct ReleaseRequest {
    pub(crate) lease: LeaseSpec,
    /// Our place in the store's queue, to give up with it.
    pub(crate) dequeue: Option<LeaseId>,
    /// Set if an earlier attempt for the same lease may still run on the server.
    pub(crate) in_flight: Option<InFlight>,
    /// When the lease has expired by itself.
    pub(crate) ends_before: Moment,
    /// Whether the reply to an earlier release was lost.
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

impl Core {
    /// Releases a lease that has no guard, in the background; resolves when it is done.
    pub(crate) fn release_abandoned(
        self: &Arc<Self>,
        lease: LeaseSpec,
        in_flight: Option<InFlight>,
    ) -> impl Future<Output = ()> + use<> {
        let pending = self.pending.begin();
        let core = Arc::clone(self);
        // Whatever the store has for this lease is an offer or a grant of this moment, or a place in the
        // queue.
        let ends_before = core.clock.now() + lease.ttl.max(OFFER).max(ABANDONED);
        let (done, cleaned) = oneshot::channel::<()>();
        let request = ReleaseRequest {
            in_flight,
            ..ReleaseRequest::of(lease, ends_before)
        };
        tokio::spawn(async move {
            release_and_cancel(core, request, None, pending).await;
            drop(done);
        });
        async move {
            let _ = cleaned.await;
        }
    }

    /// Releases a grant that got no guard.
    pub(crate) fn release_unclaimed(self: &Arc<Self>, belief: &Belief) {
        if !bug(Bug::UnwantedGrantKept) {
            drop(self.release_abandoned(belief.held.clone(), belief.in_flight));
        }
    }

    /// The request to release a lease that had a guard.
    pub(crate) fn release_request(
        &self,
        belief: &Belief,
        dequeue: Option<LeaseId>,
    ) -> ReleaseRequest {
        let ends_before = belief.ends_before(self.clock.now());
        ReleaseRequest {
            dequeue,
            in_flight: belief.in_flight,
            ..ReleaseRequest::of(belief.held.clone(), ends_before)
        }
    }

    pub(crate) fn release_task(
        self: &Arc<Self>,
        request: ReleaseRequest,
        answer: Option<(oneshot::Sender<Result<Released>>, Moment)>,
    ) -> impl Future<Output = ()> + Send + use<> {
        // Counted before the caller continues, so that a wait for pending work does not miss it.
        let pending = self.pending.begin();
        release_and_cancel(Arc::clone(self), request, answer, pending)
    }
}

/// The result of a release.
pub(crate) enum ReleaseResult {
    Answered(Released),
    /// The lease is gone. Whether we released it was in a reply that got lost.
    Gone,
    /// The store did not reply in time.
    Unanswered,
}

/// Releases, if the store can be used from the caller's task. The outer `Err` means it could not or
/// did not reply, and tells whether the lease may have been released anyway.
pub(crate) async fn try_on_caller(
    core: &Core,
    request: &ReleaseRequest,
) -> Result<Result<Released>, bool> {
    let lease = &request.lease;
    let response = core
        .store
        .release_on_caller(lease, request.dequeue.as_ref());
    let response = response.filter(|_| core.settings.is_patient());
    match response.ok_or(false)?.await {
        Ok(release) => {
            if request.dequeue.is_some() {
                core.queues.left_store_queue(&lease.name);
            }
            Ok(Ok(note_released(core, lease, release)))
        }
        Err(Failure {
            error,
            transient: false,
            in_flight: None,
        }) => Ok(Err(error)),
        Err(failure) => Err(failure.in_flight.is_some()),
    }
}

/// Releases a lease as [`release_until_gone`] does, and returns what a holder needs to know.
pub(crate) async fn release(core: &Core, request: &ReleaseRequest) -> Result<Released> {
    Ok(match release_until_gone(core, request).await? {
        ReleaseResult::Answered(released) => released,
        ReleaseResult::Gone | ReleaseResult::Unanswered => Released::Unknown,
    })
}

/// Releases a lease, and retries until it is known to be gone or must have expired.
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
    let mut backoff = Backoff::RELEASE;
    loop {
        let answer = core.store.release(lease, dequeue, ends_before).await;
        if answer.is_ok() && dequeue.is_some() {
            core.queues.left_store_queue(&lease.name);
        }
        let failure = match answer {
            Ok(ReleaseReply::NotHeld) if unknown => {
                // The lost reply may have passed it to one of our waiters, and no message tells
                // that.
                core.queues.retry(&lease.name);
                return Ok(ReleaseResult::Gone);
            }
            Ok(release) => return Ok(ReleaseResult::Answered(note_released(core, lease, release))),
            Err(failure) => failure,
        };
        unknown |= failure.in_flight.is_some();
        if !failure.transient {
            return Err(failure.error);
        }
        if core.clock.now() >= ends_before {
            core.queues.retry(&lease.name);
            return Ok(ReleaseResult::Unanswered);
        }
        let again_at = (core.clock.now() + backoff.next()).min(ends_before);
        core.clock.sleep_until(again_at).await;
    }
}

/// Releases a lease that its holder passes on to this waiter. If the reply is lost, the lease is
/// released in the background, as ever.
pub(crate) async fn release_to(
    core: &Arc<Core>,
    mut request: ReleaseRequest,
    to: LeaseId,
    pending: PendingOne,
) -> Result<Resigned> {
    core.release_started(&request.lease.name);
    let mut retry = Retry::new(core);
    let release = loop {
        let (lease, dequeue) = (&request.lease, request.dequeue.as_ref());
        let released = core.store.release_to(lease, dequeue, &to, retry.limit);
        let failure = match released.await {
            Ok(release) => break release,
            Err(failure) => failure,
        };
        let is_unknown = failure.in_flight.is_some();
        if !failure.transient && !is_unknown {
            return Err(failure.error);
        }
        if is_unknown || retry.after(failure).await.is_err() {
            request.unknown = is_unknown;
            let core = Arc::clone(core);
            tokio::spawn(release_and_cancel(core, request, None, pending));
            return Ok(Resigned::Unknown);
        }
    };
    if request.dequeue.is_some() {
        core.queues.left_store_queue(&request.lease.name);
    }
    let resigned = match &release {
        ReleaseReply::NotHeld => Resigned::AlreadyGone,
        ReleaseReply::WasHeld {
            offered_to: Some(waiter),
        }
        | ReleaseReply::Passed { to: waiter, .. }
            if *waiter == to =>
        {
            Resigned::ToCandidate
        }
        ReleaseReply::WasHeld { .. } | ReleaseReply::Passed { .. } => Resigned::ToOther,
    };
    note_released(core, &request.lease, release);
    if let Some(in_flight) = request.in_flight {
        cancel(core, &request.lease, in_flight).await;
    }
    drop(pending);
    Ok(resigned)
}

/// Updates the counters, and wakes the waiter whose turn it is.
pub(crate) fn note_released(core: &Core, lease: &LeaseSpec, release: ReleaseReply) -> Released {
    match release {
        ReleaseReply::WasHeld { offered_to } => {
            core.stats.released();
            // If it is one of ours, the store's message comes later or not at all.
            if let Some(offered_to) = offered_to {
                core.queues.offered(core.id, &lease.name, offered_to, None);
            }
            Released::WasHeld
        }
        ReleaseReply::Passed { to, grant } => {
            core.stats.released();
            core.queues.offered(core.id, &lease.name, to, Some(grant));
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

/// Releases, then makes sure that no earlier attempt for the same lease can still run. Reports the
/// result of the release as soon as it is known, or when the caller's time is up.
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

/// Repeats the release until the attempt can no longer run, or its lease would have expired.
pub(crate) async fn cancel(core: &Core, lease: &LeaseSpec, in_flight: InFlight) {
    let pause_max = Backoff::RELEASE.max();
    let give_up_at = core.clock.now() + core.settings.response_timeout * IN_FLIGHT_MAX + lease.ttl;
    while core.clock.now() < give_up_at {
        let pause = match core.store.cancel(lease, in_flight, give_up_at).await {
            Ok(None) => return,
            // Wait only briefly: a server clock that was set back would make this hours, and an
            // attempt that runs meanwhile must not leave its lease there.
            Ok(Some(early)) => (early + Duration::from_millis(1)).min(pause_max),
            // The server refuses. A lease that was granted late expires by itself.
            Err(failure) if !failure.transient => return,
            Err(_) => pause_max / 5,
        };
        core.clock.sleep_until(core.clock.now() + pause).await;
    }
}
