//! One attempt to take a lock, and what becomes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::belief::{Belief, Grant};
use crate::core::Core;
use crate::error::{Error, ErrorKind};
use crate::lease::{LeaseId, believed_until};
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::{AcquireReply, Attempt, Busy, Failure, InFlight, LeaseSpec, NotYet};

/// How long a caller whose time is over waits for what it leaves behind to be cleaned up. It is
/// cleaned up in any case.
const ABANDON_WAIT: Duration = Duration::from_millis(100);

/// What a caller wants: the same for every attempt of one acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcquireRequest {
    pub(crate) name: LockName,
    pub(crate) ttl: Duration,
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) replicas: u32,
    pub(crate) meta: Arc<BTreeMap<String, String>>,
}

impl AcquireRequest {
    /// Whether a lease is just what is wished for.
    pub(crate) fn is_met_by(&self, belief: &Belief) -> bool {
        self.ttl == belief.held.ttl
            && self.renewed == belief.renewed
            && self.max_hold == belief.max_hold
            && self.replicas == belief.held.replicas
            && self.meta == belief.meta
            // An adopted lease may have metadata that nobody here knows.
            && self.meta.is_empty() != belief.held.has_meta
    }
}

/// An acquisition under way: a wish with a lease id of its own.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) request: AcquireRequest,
    number: u64,
    id: LeaseId,
    pub(super) started_at: Moment,
    /// Whether it stands in the store's queue.
    queued: bool,
    /// Where an attempt whose reply was lost may still land.
    in_flight: Option<InFlight>,
}

/// What an attempt came to. A grant must be taken up or given back.
pub(crate) enum AttemptOutcome {
    Granted(Arc<Belief>),
    Busy(Busy),
    NotYet(NotYet),
}

impl Acquisition {
    pub(crate) fn new(core: &Core, request: AcquireRequest) -> Self {
        let number = Core::next_lease_number();
        Self {
            id: LeaseId::fresh(core.settings.layout, &core.id, number, request.ttl),
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

    /// Asks the store once. Can be repeated: the store finds its own grant.
    pub(crate) async fn attempt(
        &mut self,
        core: &Arc<Core>,
        queue: bool,
        limit: Moment,
    ) -> Result<AttemptOutcome, Failure> {
        self.queued |= queue;
        let attempt = self.to_attempt(core.fences_for(self.request.renewed), queue);
        let answer = core.store.acquire(&attempt, limit).await;
        self.interpret(core, attempt, answer)
    }

    /// What to ask the store.
    pub(super) fn to_attempt(&self, fences: u32, queue: bool) -> Attempt {
        Attempt {
            held: self.held(),
            meta: Arc::clone(&self.request.meta),
            fences,
            queue,
        }
    }

    /// Makes of an answer what it means.
    pub(super) fn interpret(
        &mut self,
        core: &Core,
        attempt: Attempt,
        answer: Result<AcquireReply, Failure>,
    ) -> Result<AttemptOutcome, Failure> {
        match answer {
            Ok(AcquireReply::Busy(busy)) => {
                core.stats.found_busy();
                Ok(AttemptOutcome::Busy(busy))
            }
            Ok(AcquireReply::NotYet(not_yet)) => Ok(AttemptOutcome::NotYet(not_yet)),
            Ok(AcquireReply::Granted { fence, sent_at }) => {
                let answered_at = core.clock.now();
                let ended = answered_at >= believed_until(sent_at, self.request.ttl);
                if ended && !bug(Bug::EndedGrantTakenUp) {
                    return Err(self.reply_too_late());
                }
                self.queued = false;
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
                    meta: Arc::clone(&self.request.meta),
                    in_flight: self.in_flight.take(),
                });
                Ok(AttemptOutcome::Granted(Arc::new(belief)))
            }
            Err(failure) => {
                if let Some(in_flight) = failure.in_flight {
                    core.stats.outcome_unknown();
                    self.may_still_run(in_flight);
                    if bug(Bug::NaiveRetry) {
                        let (layout, number) = (core.settings.layout, Core::next_lease_number());
                        self.id = LeaseId::fresh(layout, &core.id, number, self.request.ttl);
                    }
                }
                Err(failure)
            }
        }
    }

    /// Whether it must be given up, should nobody go on with it.
    pub(super) fn needs_cleanup(&self) -> bool {
        self.queued || self.in_flight.is_some()
    }

    /// Takes note that an attempt may still be carried out.
    pub(super) fn may_still_run(&mut self, in_flight: InFlight) {
        self.in_flight = Some(in_flight.and(self.in_flight));
    }

    /// Leaves nothing behind: no place in the queue, no offer, no attempt that may still land.
    /// Only what is cheap is waited for.
    pub(crate) async fn abandon(&mut self, core: &Arc<Core>) {
        if !self.needs_cleanup() || bug(Bug::GivingUpLeavesAll) {
            return;
        }
        core.stats.cancelled();
        let cleaning = core.release_abandoned(self.held(), self.in_flight.take());
        self.queued = false;
        let _ = tokio::time::timeout(ABANDON_WAIT, cleaning).await;
    }

    fn held(&self) -> LeaseSpec {
        LeaseSpec {
            name: self.request.name.clone(),
            id: self.id.clone(),
            ttl: self.request.ttl,
            has_meta: !self.request.meta.is_empty(),
            replicas: self.request.replicas,
            last_fence: None,
        }
    }

    /// The grant had ended before its reply arrived: the process or the network slept. The next
    /// attempt finds it or begins anew; should there be none, it must be given back.
    fn reply_too_late(&mut self) -> Failure {
        self.queued = true;
        let name = &self.request.name;
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!("the answer for lock `{name}` came after its lease could have ended"),
        ))
    }
}
