//! Acquires several locks in one step of the store, all of them or none.
//!
//! Each lock has an acquisition and a lease of its own, with its own id: what is granted is renewed,
//! lost and released like any other lease. Only the attempt is common to all.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::attempt::{AcquireRequest, Acquisition, AttemptOutcome};
use super::retry::Retry;
use super::try_acquire::AskedKeeper;
use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::moment::Moment;
use crate::name::LockName;
use crate::store::{AcquireReply, Attempt, Busy, Failure, SeveralReply, Slots, another_kind};

/// The result of an attempt for several locks.
pub(crate) enum SeveralOutcome {
    /// All are held, in the order of the requests.
    Granted(Vec<Guard>),
    /// None is held, because at least this one is busy.
    Busy(usize, Busy),
    /// The store cannot acquire these locks in one step. None is held.
    NotTogether,
}

/// Acquires the locks if all of them are free. The requests differ in their names only.
///
/// # Errors
///
/// As for a single lock, without waiting. None is held then.
pub(crate) async fn try_acquire(
    client: &Arc<ClientHandle>,
    requests: Vec<AcquireRequest>,
) -> Result<SeveralOutcome> {
    // Before checking that the client is open: a shutdown either waits for this or is noticed.
    let pending = client.core.pending.begin();
    client.check_open()?;
    let (reply, answer) = oneshot::channel();
    let for_engine = Arc::clone(client);
    client.engine.spawn(async move {
        let attempted = attempt(&for_engine.core, requests, || reply.is_closed()).await;
        let outcome = attempted.and_then(|attempted| attempted.into_outcome(&for_engine));
        // If the caller leaves at this moment, the guards are dropped here and release.
        let _ = reply.send(outcome);
        drop(pending);
    });
    answer.await.map_err(|_| Error::closed())?
}

/// The same before it has guards.
enum Attempted {
    Granted(Vec<Arc<Belief>>),
    Busy(usize, Busy),
    NotTogether,
}

impl Attempted {
    fn into_outcome(self, client: &Arc<ClientHandle>) -> Result<SeveralOutcome> {
        Ok(match self {
            Self::Granted(beliefs) => {
                // All of them first: what has a guard is released if another one has none.
                let take = |belief| Guard::take(client, None, belief);
                let guards: Vec<Result<Guard>> = beliefs.into_iter().map(take).collect();
                SeveralOutcome::Granted(guards.into_iter().collect::<Result<_>>()?)
            }
            Self::Busy(at, busy) => SeveralOutcome::Busy(at, busy),
            Self::NotTogether => SeveralOutcome::NotTogether,
        })
    }
}

/// Tries once, and again only if the server could not reply.
async fn attempt(
    core: &Arc<Core>,
    requests: Vec<AcquireRequest>,
    is_gone: impl Fn() -> bool,
) -> Result<Attempted> {
    let requests = requests.into_iter();
    let mut several = Acquisitions(requests.map(|it| Acquisition::new(core, it)).collect());
    let mut retry = Retry::new(core);
    let mut keepers: HashMap<usize, AskedKeeper> = HashMap::new();
    let result = loop {
        // The store may learn from an error that it cannot.
        if !core.store.acquires_together(&several.names()) {
            break Ok(Attempted::NotTogether);
        }
        let failure = match several.attempt(core, retry.limit).await {
            Ok(Ok(SeveralGrant::Granted(beliefs))) => return Ok(Attempted::Granted(beliefs)),
            Ok(Ok(SeveralGrant::Busy(at, busy))) => {
                let keeper = keepers.entry(at).or_default();
                let (name, holder) = (several.name(at), busy.holder.clone());
                if is_gone() || !keeper.may_let_go(core, name, holder).await {
                    break Ok(Attempted::Busy(at, busy));
                }
                continue;
            }
            Ok(Err(error)) => break Err(error),
            Err(_) if is_gone() => break Err(Error::closed()),
            Err(failure) => failure,
        };
        if let Err(error) = retry.after(failure).await {
            break Err(error);
        }
    };
    several.abandon(core).await;
    result
}

/// The acquisitions of all locks. At least one.
struct Acquisitions(Vec<Acquisition>);

enum SeveralGrant {
    Granted(Vec<Arc<Belief>>),
    Busy(usize, Busy),
}

impl Acquisitions {
    fn names(&self) -> Vec<&LockName> {
        self.0.iter().map(|it| &it.request.name).collect()
    }

    fn name(&self, at: usize) -> &LockName {
        &self.0[at].request.name
    }

    /// Sends one attempt for all. The inner error is that of a store that may not grant yet.
    async fn attempt(
        &mut self,
        core: &Core,
        limit: Moment,
    ) -> Result<Result<SeveralGrant>, Failure> {
        let attempts: Vec<Attempt> = self.0.iter().map(|it| it.to_attempt(1, false)).collect();
        match core.store.acquire_several(&attempts, limit).await {
            Ok(SeveralReply::Granted { fences, sent_at }) => {
                let replies = fences.into_iter().map(|fence| AcquireReply::Granted {
                    fence,
                    sent_at,
                    slots: Slots::default(),
                });
                let replies = attempts.into_iter().zip(replies);
                let granted = self.interpret(core, replies)?;
                Ok(Ok(SeveralGrant::Granted(granted)))
            }
            Ok(SeveralReply::Busy { at, busy }) => {
                if let Some(refused) = another_kind(self.name(at), &busy.holder) {
                    return Err(refused);
                }
                core.stats.found_busy();
                Ok(Ok(SeveralGrant::Busy(at, busy)))
            }
            Ok(SeveralReply::NotYet(not_yet)) => Ok(Err(not_yet.error)),
            Err(failure) => {
                for (acquisition, attempt) in self.0.iter_mut().zip(attempts) {
                    let _ = acquisition.interpret(core, attempt, Err(failure.share()));
                }
                Err(failure)
            }
        }
    }

    /// The beliefs in what was granted. If the reply came too late for one, it does not count for any:
    /// the next attempt finds all leases again, or they are released.
    fn interpret(
        &mut self,
        core: &Core,
        replies: impl Iterator<Item = (Attempt, AcquireReply)>,
    ) -> Result<Vec<Arc<Belief>>, Failure> {
        let mut beliefs = Vec::with_capacity(self.0.len());
        let mut too_late = None;
        for (acquisition, (attempt, reply)) in self.0.iter_mut().zip(replies) {
            match acquisition.interpret(core, attempt, Ok(reply)) {
                Ok(AttemptOutcome::Granted(belief)) => beliefs.push(belief),
                Ok(AttemptOutcome::Busy(_) | AttemptOutcome::NotYet(_)) => {}
                Err(failure) => too_late = Some(failure),
            }
        }
        if let Some(failure) = too_late {
            for acquisition in &mut self.0 {
                acquisition.mark_granted_too_late();
            }
            return Err(failure);
        }
        Ok(beliefs)
    }

    /// Leaves nothing behind.
    async fn abandon(self, core: &Arc<Core>) {
        let mut cleaning = JoinSet::new();
        for mut acquisition in self.0 {
            let core = Arc::clone(core);
            cleaning.spawn(async move { acquisition.abandon(&core).await });
        }
        cleaning.join_all().await;
    }
}
