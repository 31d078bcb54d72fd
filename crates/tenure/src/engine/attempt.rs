//! One attempt to take a lock, and what becomes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::belief::Belief;
use crate::core::Core;
use crate::error::{Error, ErrorKind};
use crate::lease::{LeaseId, believed_until};
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{Attempt, Attempted, Busy, Failure, Held, Landing};

/// How long a caller whose time is over waits for what it leaves behind to be cleaned up. It is
/// cleaned up in any case.
const GIVE_UP_PATIENCE: Duration = Duration::from_millis(100);

/// What a caller wants: the same for every attempt of one acquisition.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) name: LockName,
    pub(crate) ttl: Duration,
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) meta: Arc<BTreeMap<String, String>>,
}

/// An acquisition under way: a wish with a lease id of its own.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) wish: Wish,
    number: u64,
    id: LeaseId,
    /// Whether it stands in the store's queue.
    queued: bool,
    /// Where an attempt whose reply was lost may still land.
    landing: Option<Landing>,
}

/// What an attempt came to. A grant must be taken up or given back.
pub(crate) enum Outcome {
    Granted(Arc<Belief>),
    Busy(Busy),
}

impl Acquisition {
    pub(crate) fn new(core: &Core, wish: Wish) -> Self {
        let number = core.next_lease_number();
        Self {
            id: LeaseId::fresh(core.settings.layout, &core.id, number, wish.ttl),
            wish,
            number,
            queued: false,
            landing: None,
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
    ) -> Result<Outcome, Failure> {
        self.queued |= queue;
        let attempt = Attempt {
            held: self.held(),
            meta: Arc::clone(&self.wish.meta),
            fences: 1,
            queue,
        };
        match core.store.acquire(&attempt, limit).await {
            Ok(Attempted::Busy(busy)) => {
                core.stats.found_busy();
                Ok(Outcome::Busy(busy))
            }
            Ok(Attempted::Granted { fence, sent_at }) => {
                if core.clock.now() >= believed_until(sent_at, self.wish.ttl) {
                    return Err(self.came_too_late());
                }
                self.queued = false;
                core.stats.acquired();
                let belief = Belief::new(
                    self.number,
                    attempt.held,
                    fence,
                    sent_at,
                    self.wish.renewed,
                    self.wish.max_hold,
                    self.landing.take(),
                );
                Ok(Outcome::Granted(Arc::new(belief)))
            }
            Err(failure) => {
                if let Some(landing) = failure.landing {
                    core.stats.outcome_unknown();
                    self.landing = Some(landing.and(self.landing));
                }
                Err(failure)
            }
        }
    }

    /// Leaves nothing behind: no place in the queue, no offer, no attempt that may still land.
    /// Only what is cheap is waited for.
    pub(crate) async fn give_up(&mut self, core: &Arc<Core>) {
        if !self.queued && self.landing.is_none() {
            return;
        }
        core.stats.cancelled();
        let cleaning = core.clean_up(self.held(), self.landing.take());
        self.queued = false;
        let _ = tokio::time::timeout(GIVE_UP_PATIENCE, cleaning).await;
    }

    fn held(&self) -> Held {
        Held {
            name: self.wish.name.clone(),
            id: self.id.clone(),
            ttl: self.wish.ttl,
            has_meta: !self.wish.meta.is_empty(),
        }
    }

    /// The grant had ended before its reply arrived: the process or the network slept. The next
    /// attempt finds it or begins anew; should there be none, it must be given back.
    fn came_too_late(&mut self) -> Failure {
        self.queued = true;
        let name = &self.wish.name;
        Failure::not_sent(Error::new(
            ErrorKind::Unavailable,
            format!("the answer for lock `{name}` came after its lease could have ended"),
        ))
    }
}
