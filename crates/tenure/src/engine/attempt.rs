//! One acquisition: the request, its attempts, and how it is abandoned when its caller goes away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::belief::{Belief, Grant, HeldPermits};
use crate::core::Core;
use crate::error::{Error, ErrorKind};
use crate::leader::is_candidate_meta;
use crate::lease::{LeaseId, believed_until};
use crate::mode::Mode;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{
    AcquireReply, Attempt, Busy, Failure, InFlight, LeaseSpec, NotYet, OfferedGrant, Wish,
    another_kind,
};

/// How long a caller that gives up waits for the cleanup. The cleanup continues in any case.
const ABANDON_WAIT: Duration = Duration::from_millis(100);

/// What a caller asks for: the same for every attempt of one acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcquireRequest {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    /// For how long after the grant the lease may be kept while no caller holds it.
    pub(crate) keep: Option<Duration>,
    pub(crate) replicas: u32,
    pub(crate) meta: Arc<BTreeMap<String, String>>,
    pub(crate) wish: Wish,
}

impl AcquireRequest {
    /// Whether it is for an election: the store writes down the term of each leader, so each lease
    /// comes from the store.
    pub(crate) fn is_candidate(&self) -> bool {
        is_candidate_meta(&self.meta)
    }

    /// Whether it has a place of its own in the store's queue.
    pub(crate) fn is_in_order(&self) -> bool {
        self.wish == Wish::InOrder
    }

    /// Whether a lease is exactly what was requested.
    pub(crate) fn is_met_by(&self, belief: &Belief) -> bool {
        self.mode == belief.held.mode
            && self.ttl == belief.held.ttl
            && self.renewed == belief.renewed
            && self.max_hold == belief.max_hold
            && self.keep == belief.keep
            && self.replicas == belief.held.replicas
            && self.wish.permits() == belief.permits.as_ref().map(|held| held.request)
            && self.meta == belief.meta
            // An adopted lease may have metadata that this client does not know.
            && self.meta.is_empty() != belief.held.has_meta
    }
}

/// An acquisition in progress: a request with its own lease id.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) request: AcquireRequest,
    number: u64,
    id: LeaseId,
    pub(super) started_at: Moment,
    /// Whether it is in the store's queue.
    queued: bool,
    /// Set if an attempt whose reply was lost may still run on the server.
    in_flight: Option<InFlight>,
}

/// The result of an attempt. A grant must become a guard or be released.
pub(crate) enum AttemptOutcome {
    Granted(Arc<Belief>),
    Busy(Busy),
    NotYet(NotYet),
}

impl Acquisition {
    pub(crate) fn new(core: &Core, request: AcquireRequest) -> Self {
        let number = Core::next_lease_number();
        Self {
            id: fresh_id(core, &request, number),
            request,
            number,
            started_at: core.clock.now(),
            queued: false,
            in_flight: None,
        }
    }

    pub(crate) fn id(&self) -> &LeaseId {
        &self.id
    }

    /// Sends one attempt to the store. Safe to repeat: the store recognizes its own grant.
    pub(crate) async fn attempt(
        &mut self,
        core: &Arc<Core>,
        queue: bool,
        limit: Moment,
    ) -> Result<AttemptOutcome, Failure> {
        self.queued |= queue;
        let fences = self.fences(core);
        let attempt = self.to_attempt(fences, queue);
        let answer = core.store.acquire(&attempt, limit).await;
        self.interpret(core, attempt, answer)
    }

    /// How many fences to reserve. Only an exclusive lease that is no candidate's, and of which the store
    /// does not decide who is next, is handed off or kept; the others need one.
    fn fences(&self, core: &Core) -> u32 {
        if self.request.mode != Mode::Exclusive || self.request.is_in_order() {
            return 1;
        }
        if self.request.is_candidate() && !bug(Bug::ElectionHandedOff) {
            return 1;
        }
        let fences = core.fences_for(self.request.renewed);
        fences.max(Core::fences_to_keep(self.request.keep))
    }

    /// The attempt to send to the store.
    pub(super) fn to_attempt(&self, fences: u32, queue: bool) -> Attempt {
        Attempt {
            held: self.held(),
            meta: Arc::clone(&self.request.meta),
            fences,
            queue,
            wish: self.request.wish,
        }
    }

    /// Takes an offer as a grant, without asking the store. `None` if it must ask: the offer has
    /// become old, an earlier attempt may still run, or the lease needs more than an offer grants,
    /// such as fences for the callers behind this one.
    pub(super) fn take_offer(
        &mut self,
        core: &Core,
        grant: OfferedGrant,
        is_followed: bool,
    ) -> Option<Arc<Belief>> {
        let now = core.clock.now();
        let lasts = grant.until.saturating_since(grant.written_at);
        let is_fresh = grant.until.saturating_since(now) >= lasts / 2;
        let needs_fences = is_followed && core.fences_for(self.request.renewed) > 1;
        let fits = can_take_offers(core, &self.request) && !needs_fences;
        if !is_fresh || !fits || self.in_flight.is_some() {
            return None;
        }
        self.queued = false;
        core.stats.acquired();
        let grant_of_offer = Grant {
            number: self.number,
            held: self.held(),
            fence: grant.fence,
            fences: 1,
            answered_at: now,
            sent_at: grant.written_at,
            renewed: self.request.renewed,
            max_hold: self.request.max_hold,
            keep: None,
            uncontended: false,
            meta: Arc::clone(&self.request.meta),
            permits: None,
            in_flight: None,
        };
        Some(Arc::new(Belief::of_offer(grant_of_offer, grant.until)))
    }

    /// Turns the store's reply into an outcome.
    pub(super) fn interpret(
        &mut self,
        core: &Core,
        attempt: Attempt,
        answer: Result<AcquireReply, Failure>,
    ) -> Result<AttemptOutcome, Failure> {
        match answer {
            Ok(AcquireReply::Busy(busy)) => {
                let refused = another_kind(&self.request.name, &busy.holder);
                if let Some(refused) = refused.filter(|_| self.request.mode != Mode::Permit) {
                    return Err(refused);
                }
                core.stats.found_busy();
                Ok(AttemptOutcome::Busy(busy))
            }
            Ok(AcquireReply::NotYet(not_yet)) => Ok(AttemptOutcome::NotYet(not_yet)),
            Ok(AcquireReply::Granted {
                fence,
                sent_at,
                slots,
            }) => {
                let answered_at = core.clock.now();
                let ended = answered_at >= believed_until(sent_at, self.request.ttl);
                if ended && !bug(Bug::EndedGrantTakenUp) {
                    return Err(self.reply_too_late());
                }
                let uncontended = !std::mem::take(&mut self.queued);
                core.stats.acquired();
                let belief = Belief::new(Grant {
                    number: self.number,
                    held: attempt.held,
                    fence,
                    fences: attempt.fences,
                    answered_at,
                    sent_at,
                    renewed: self.request.renewed,
                    max_hold: self.request.max_hold,
                    keep: self.request.keep,
                    uncontended,
                    meta: Arc::clone(&self.request.meta),
                    permits: self
                        .request
                        .wish
                        .permits()
                        .map(|request| Arc::new(HeldPermits { request, slots })),
                    in_flight: self.in_flight.take(),
                });
                Ok(AttemptOutcome::Granted(Arc::new(belief)))
            }
            Err(failure) => {
                if let Some(in_flight) = failure.in_flight {
                    core.stats.outcome_unknown();
                    self.may_still_run(in_flight);
                    if bug(Bug::NaiveRetry) {
                        self.id = fresh_id(core, &self.request, Core::next_lease_number());
                    }
                }
                Err(failure)
            }
        }
    }

    /// Whether it must be abandoned explicitly if nothing continues it.
    pub(super) fn needs_cleanup(&self) -> bool {
        self.queued || self.in_flight.is_some()
    }

    /// Notes that an attempt may still run on the server.
    pub(super) fn may_still_run(&mut self, in_flight: InFlight) {
        self.in_flight = Some(in_flight.and(self.in_flight));
    }

    /// Leaves nothing behind: no place in the queue, no offer, no attempt in flight. Waits only for
    /// the cheap part.
    pub(crate) async fn abandon(&mut self, core: &Arc<Core>) {
        if !self.needs_cleanup() || bug(Bug::GivingUpLeavesAll) {
            return;
        }
        core.stats.cancelled();
        let cleaning = core.release_abandoned(self.held(), self.in_flight.take());
        self.queued = false;
        let _ = tokio::time::timeout(ABANDON_WAIT, cleaning).await;
    }

    /// The store may have a lease for it that must be found again or released.
    pub(super) fn mark_granted_too_late(&mut self) {
        self.queued = true;
    }

    fn held(&self) -> LeaseSpec {
        let AcquireRequest { name, ttl, .. } = &self.request;
        LeaseSpec {
            mode: self.request.mode,
            has_meta: !self.request.meta.is_empty(),
            replicas: self.request.replicas,
            ..LeaseSpec::new(name.clone(), self.id.clone(), *ttl)
        }
    }

    /// The grant expired before its reply arrived, because the process or the network was paused.
    /// The next attempt finds the grant or starts anew; if there is no next attempt, the grant must
    /// be released.
    fn reply_too_late(&mut self) -> Failure {
        self.mark_granted_too_late();
        let name = &self.request.name;
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!("the reply for lock `{name}` arrived after its lease may have expired"),
        ))
    }
}

/// A new lease id. It tells others whether this client may keep the lease, and whether it can take
/// an offer as a grant.
fn fresh_id(core: &Core, request: &AcquireRequest, number: u64) -> LeaseId {
    let (layout, ttl) = (core.settings.layout, request.ttl);
    match request.mode {
        Mode::Exclusive => {}
        Mode::Shared => return LeaseId::fresh_shared(layout, &core.id, number, ttl),
        Mode::Permit => return LeaseId::fresh_of_permit(layout, &core.id, number, ttl),
    }
    match request.keep {
        Some(_) => LeaseId::fresh_to_keep(layout, &core.id, number, ttl),
        None if request.is_candidate() => {
            LeaseId::fresh_of_candidate(layout, &core.id, number, ttl)
        }
        None if can_take_offers(core, request) => {
            LeaseId::fresh_to_be_offered(layout, &core.id, number, ttl)
        }
        None => LeaseId::fresh(layout, &core.id, number, ttl),
    }
}

/// Whether an offer can grant what is requested. It has one fence, no metadata and no
/// acknowledgements of replicas, and must be renewed.
fn can_take_offers(core: &Core, request: &AcquireRequest) -> bool {
    core.store.grants_by_offer()
        && request.mode == Mode::Exclusive
        && request.renewed
        && request.keep.is_none()
        && request.replicas == 0
        && request.meta.is_empty()
}

/// An acquisition with a request in flight.
pub(super) struct CancelOnDrop<'a> {
    client: (&'a Arc<Core>, &'a Engine),
    acquisition: Option<Acquisition>,
    in_flight: Option<InFlight>,
}

/// An acquisition that its caller started and then left to the local queue.
pub(crate) struct StartedAcquisition {
    core: Arc<Core>,
    engine: Engine,
    acquisition: Option<Box<Acquisition>>,
    /// Whether the store reported that the lock is busy.
    pub(super) found_busy: bool,
}

impl<'a> CancelOnDrop<'a> {
    pub(super) fn new(
        client: (&'a Arc<Core>, &'a Engine),
        acquisition: Acquisition,
        in_flight: Option<InFlight>,
    ) -> Self {
        Self {
            client,
            acquisition: Some(acquisition),
            in_flight,
        }
    }

    /// The reply came: the acquisition is the caller's again.
    pub(super) fn disarm(mut self) -> Option<Acquisition> {
        self.acquisition.take()
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(mut acquisition) = self.acquisition.take() else {
            return;
        };
        if let Some(in_flight) = self.in_flight {
            acquisition.may_still_run(in_flight);
        }
        abandon(self.client, acquisition);
    }
}

impl StartedAcquisition {
    pub(crate) fn new(
        (core, engine): (&Arc<Core>, &Engine),
        acquisition: Option<Acquisition>,
        found_busy: bool,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            engine: engine.clone(),
            acquisition: acquisition.map(Box::new),
            found_busy,
        }
    }

    /// Continues the acquisition: it is no longer abandoned when this is dropped.
    pub(super) fn take(&mut self) -> Option<Acquisition> {
        self.acquisition.take().map(|acquisition| *acquisition)
    }
}

impl Drop for StartedAcquisition {
    fn drop(&mut self) {
        if let Some(acquisition) = self.take() {
            abandon((&self.core, &self.engine), acquisition);
        }
    }
}

/// Has the engine abandon an acquisition. A shutdown waits for it.
fn abandon((core, engine): (&Arc<Core>, &Engine), mut acquisition: Acquisition) {
    if !acquisition.needs_cleanup() {
        return;
    }
    let core = Arc::clone(core);
    let pending = core.pending.begin();
    engine.spawn(async move {
        acquisition.abandon(&core).await;
        drop(pending);
    });
}
