//! One grant, shared by the guards of a chain. The last of them releases it.

use std::sync::Arc;
use std::time::Duration;

use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::engine::attempt::AcquireRequest;
use crate::engine::hand_off::{self, HandOffOutcome};
use crate::engine::release::{self, ReleaseRequest};
use crate::engine::{change_mode, release_several, renew_detached};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::holds::Holds;
use crate::lease::{Lease, LeaseId, believed_until, check_ttl};
use crate::mode::Mode;
use crate::moment::Moment;
use crate::seeded::{Bug, bug};
use crate::standing::{LostReason, Released, Resigned, Standing};
use crate::store::LeaseSpec;
use crate::unchanged::Unchanged;

pub(crate) struct Hold {
    client: Arc<ClientHandle>,
    belief: Arc<Belief>,
    /// The owner that may re-enter it, and forgets it when it ends.
    owner: Option<Arc<Holds>>,
    /// The number of the waiter that it was granted to, if it was not granted at once.
    waiter: Option<u64>,
}

impl Hold {
    /// Takes ownership of a grant and tracks it: from here on, dropping releases it.
    pub(crate) fn new(
        client: Arc<ClientHandle>,
        owner: Option<Arc<Holds>>,
        belief: Arc<Belief>,
    ) -> Arc<Self> {
        client.core.track(&belief);
        Self::build(client, owner, belief, None)
    }

    /// The same for a lease that is tracked already.
    pub(crate) fn tracked(
        client: Arc<ClientHandle>,
        owner: Option<Arc<Holds>>,
        belief: Arc<Belief>,
    ) -> Arc<Self> {
        Self::build(client, owner, belief, None)
    }

    /// The same for the waiter with this number.
    pub(crate) fn for_waiter(
        client: Arc<ClientHandle>,
        owner: Option<Arc<Holds>>,
        belief: Arc<Belief>,
        number: u64,
    ) -> Arc<Self> {
        Self::build(client, owner, belief, Some(number))
    }

    fn build(
        client: Arc<ClientHandle>,
        owner: Option<Arc<Holds>>,
        belief: Arc<Belief>,
        waiter: Option<u64>,
    ) -> Arc<Self> {
        let hold = Arc::new(Self {
            client,
            belief,
            owner,
            waiter,
        });
        if let Some(owner) = &hold.owner {
            owner.add(&hold);
        }
        hold
    }

    /// Whether it was granted to the waiter with this number.
    pub(crate) fn is_for_waiter(&self, number: u64) -> bool {
        self.waiter == Some(number)
    }

    pub(crate) fn belief(&self) -> &Arc<Belief> {
        &self.belief
    }

    pub(crate) fn client(&self) -> &Arc<ClientHandle> {
        &self.client
    }

    pub(crate) fn now(&self) -> Moment {
        self.client.core.clock.now()
    }

    /// Another guard, for a nested acquire.
    ///
    /// # Errors
    ///
    /// If the lease is lost, which a fresh lease in the middle of the outer section must not hide,
    /// or if the request differs from what the lock is held with.
    pub(crate) fn reenter(self: Arc<Self>, request: &AcquireRequest) -> Result<Guard> {
        self.check_reentry(request)?;
        Ok(Guard::new(self))
    }

    /// Whether a caller may join this shared lease: it wants the same, the lease was granted a moment
    /// ago, so that readers do not keep others from the lock for long, and no caller of this process
    /// that came before waits to hold the lock alone. `number` is that of a caller that waits.
    pub(crate) fn can_be_joined(&self, request: &AcquireRequest, number: Option<u64>) -> bool {
        let (core, belief) = (&self.client.core, &self.belief);
        let (now, bounds) = (core.clock.now(), &core.settings.hand_off);
        bounds.on
            && request.is_met_by(belief)
            && belief.standing(now) == Standing::Held
            && now < belief.granted_at() + bounds.time
            && (!core.queues.is_behind_writer(&request.name, number) || bug(Bug::WriterOvertaken))
    }

    fn check_reentry(&self, request: &AcquireRequest) -> Result<()> {
        let belief = &self.belief;
        let name = &belief.held.name;
        if belief.standing(self.now()) == Standing::Lost && !bug(Bug::ReentryIntoLost) {
            let reason = belief.lost_reason().unwrap_or(LostReason::Expired);
            return Err(Error::lost(name, reason));
        }
        let differs = |what: &str| {
            let cause = "its owner already holds it, and a nested acquire shares that lease";
            Err(Error::new(
                ErrorKind::Mismatch,
                format!("cannot re-enter lock `{name}` with a different {what}: {cause}"),
            ))
        };
        if request.ttl != belief.held.ttl {
            return differs("ttl");
        }
        if request.renewed != belief.renewed {
            return differs("choice of renewal");
        }
        if request.max_hold != belief.max_hold {
            return differs("`max_hold`");
        }
        if request.replicas != belief.held.replicas {
            return differs("number of `replicas`");
        }
        Ok(())
    }

    pub(crate) async fn ensure(&self, need: Duration) -> Result<()> {
        let belief = &self.belief;
        let name = &belief.held.name;
        let longest = believed_until(belief.acquired_at, belief.held.ttl)
            .saturating_since(belief.acquired_at);
        if need > longest {
            return Err(Error::invalid_setting(
                "the time to ensure",
                format!("{need:?}"),
                "it is longer than the lease can last: acquire the lock with a longer ttl",
            ));
        }
        if belief.remaining(self.now()) >= need {
            return Ok(());
        }
        if belief.renewed && belief.standing(self.now()) != Standing::Lost {
            self.client.core.watchdog.renew_now(belief.number).await;
            if belief.remaining(self.now()) >= need {
                return Ok(());
            }
        }
        Err(match belief.lost_reason() {
            Some(reason) => Error::lost(name, reason),
            None => Error::new(
                ErrorKind::Lost,
                format!(
                    "lock `{name}` cannot be kept for {need:?}: only {:?} left",
                    belief.remaining(self.now())
                ),
            ),
        })
    }

    /// Releases, if this is the last guard of its chain.
    pub(crate) async fn release(self: Arc<Self>) -> Result<Released> {
        let was_held = self.belief.standing(self.now()) != Standing::Lost;
        if bug(Bug::InnerReleaseFrees) && self.belief.end() {
            return self.client.release(&self.belief, None).await;
        }
        let client = Arc::clone(&self.client);
        match self.let_go(was_held) {
            LetGo::Done(released) => Ok(released),
            LetGo::Release(request) => {
                let released = client.release_lease(*request).await?;
                Ok(if_relied_on(released, was_held))
            }
        }
    }

    /// The same for several leases, in one call to the store if possible. Begins at once, and continues
    /// in the background if nobody waits for the results.
    pub(crate) fn release_several(
        client: &Arc<ClientHandle>,
        holds: Vec<Arc<Self>>,
    ) -> impl Future<Output = Vec<Result<Released>>> + Send + use<> {
        let mut requests = Vec::new();
        let let_go = |hold: Arc<Self>| {
            let was_held = hold.belief.standing(hold.now()) != Standing::Lost;
            match hold.let_go(was_held) {
                LetGo::Done(released) => (Some(released), was_held),
                LetGo::Release(request) => {
                    requests.push(*request);
                    (None, was_held)
                }
            }
        };
        let let_go: Vec<(Option<Released>, bool)> = holds.into_iter().map(let_go).collect();
        let answers = release_several::begin(client, requests);
        async move {
            let mut answers = answers.await.into_iter();
            let read = |(released, was_held): (Option<Released>, bool)| {
                if let Some(released) = released {
                    return Ok(released);
                }
                let answer = answers.next().unwrap_or(Ok(Released::Unknown));
                answer.map(|released| if_relied_on(released, was_held))
            };
            let_go.into_iter().map(read).collect()
        }
    }

    /// Ends the belief and hands the lease off, if this is the last guard of its chain.
    fn let_go(self: Arc<Self>, was_held: bool) -> LetGo {
        // By the deadline alone.
        let done = LetGo::Done(if was_held {
            Released::WasHeld
        } else {
            Released::AlreadyGone
        });
        let Some(hold) = Arc::into_inner(self) else {
            return done;
        };
        if !hold.belief.end() {
            return LetGo::Done(Released::AlreadyGone);
        }
        match hand_off::try_hand_off(&hold.client, &hold.belief) {
            HandOffOutcome::HandedOff => done,
            HandOffOutcome::Release { dequeue } => {
                let core = &hold.client.core;
                LetGo::Release(Box::new(core.release_request(&hold.belief, dequeue)))
            }
        }
    }

    /// Releases, and offers the lock to this waiter if it still waits. Only for a hold without chain.
    pub(crate) async fn release_to(self: Arc<Self>, to: LeaseId) -> Result<Resigned> {
        let was_held = self.belief.standing(self.now()) != Standing::Lost;
        if !self.belief.end() {
            return Ok(Resigned::AlreadyGone);
        }
        let dequeue = match hand_off::try_hand_off(&self.client, &self.belief) {
            HandOffOutcome::HandedOff => return Ok(Resigned::ToOther),
            HandOffOutcome::Release { dequeue } => dequeue,
        };
        let core = Arc::clone(&self.client.core);
        let request = core.release_request(&self.belief, dequeue);
        let pending = core.pending.begin();
        let releasing = async move { release::release_to(&core, request, to, pending).await };
        let resigned = self.client.engine.run(releasing).await??;
        Ok(if was_held {
            resigned
        } else {
            Resigned::AlreadyGone
        })
    }

    /// Continues the lease in the other mode, if this is its only guard.
    pub(crate) async fn change_mode(self: Arc<Self>, to: Mode) -> Result<Guard, Unchanged> {
        let client = Arc::clone(&self.client);
        if let Err(error) = change_mode::check(&client.core, &self.belief, to) {
            return Err(Unchanged::held(Guard::new(self), error));
        }
        let hold = match Arc::try_unwrap(self) {
            Ok(hold) => hold,
            Err(shared) => {
                let name = &shared.belief.held.name;
                let text = format!(
                    "cannot make lock `{name}` {to}: other guards of this process hold it by the same \
                     lease; release them first"
                );
                let error = Error::new(ErrorKind::Mismatch, text);
                return Err(Unchanged::held(Guard::new(shared), error));
            }
        };
        let pending = client.core.pending.begin();
        let changing = change_mode::change_mode(hold, to, pending);
        match client.engine.run(changing).await {
            Ok(changed) => changed,
            Err(error) => Err(Unchanged::no_longer_held(error)),
        }
    }

    /// The guard of a lease whose mode was not changed. It was not tracked meanwhile.
    pub(crate) fn go_on(self, error: Error) -> Unchanged {
        let hold = Arc::new(self);
        hold.client.core.track(&hold.belief);
        if let Some(owner) = &hold.owner {
            owner.add(&hold);
        }
        let guard = Guard::new(hold);
        // A shutdown that began meanwhile did not find the lease: dropping the guard releases it.
        match guard.client().check_open() {
            Ok(()) => Unchanged::held(guard, error),
            Err(closed) => Unchanged::no_longer_held(closed),
        }
    }

    /// Ends the belief in a lease that the store no longer has. Returns its owner.
    pub(crate) fn end_without_release(self) -> Option<Arc<Holds>> {
        self.belief.end();
        self.owner.clone()
    }

    pub(crate) fn detach(self: Arc<Self>) -> Result<Lease> {
        let name = self.belief.held.name.clone();
        if self.belief.standing(self.now()) == Standing::Lost {
            let reason = self.belief.lost_reason().unwrap_or(LostReason::Expired);
            return Err(Error::lost(&name, reason));
        }
        let Some(hold) = Arc::into_inner(self) else {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!("cannot detach lock `{name}`: other guards of its owner still hold it"),
            ));
        };
        if !hold.belief.end() {
            // A shutdown came first.
            let reason = hold.belief.lost_reason().unwrap_or(LostReason::Shutdown);
            return Err(Error::lost(&name, reason));
        }
        // Added first, so that every reader of the record finds it there.
        hold.client.core.detached.add(&hold.belief, hold.now());
        hold.client.core.untrack(&hold.belief);
        let lease = hold.belief.lease();
        if hold.belief.needs_confirmation() {
            hold.confirm_detached(lease.clone());
        }
        Ok(lease)
    }

    /// Only an offer was granted so far, which would end too soon: makes it a whole lease, in the
    /// background.
    fn confirm_detached(&self, lease: Lease) {
        let core = Arc::clone(&self.client.core);
        let pending = core.pending.begin();
        self.client.engine.spawn(async move {
            let ttl = lease.ttl;
            // If it fails, the lease ends when its deadline says.
            let _ = renew_detached::renew(&core, lease, ttl).await;
            drop(pending);
        });
    }

    pub(crate) async fn detach_for(self: Arc<Self>, rest: Duration) -> Result<Lease> {
        let longest = self.client.core.settings.longest_ttl;
        let rest = check_ttl("the time to keep a lock", rest)?;
        let rest = longest.map_or(rest, |longest| rest.min(longest));
        let client = Arc::clone(&self.client);
        let core = Arc::clone(&client.core);
        let pending = core.pending.begin();
        // On the engine from here on: a caller that goes away has detached the lease all the same.
        let giving = async move {
            let _pending = pending;
            let held = LeaseSpec {
                ttl: rest,
                ..self.belief.held.clone()
            };
            // A later renewal would set the lease back to its usual ttl.
            core.watchdog.wait_for_renewal(self.belief.number).await;
            let detached = self.detach()?;
            let until = renew_detached::extend(&core, &held).await?;
            core.detached
                .renewed(&detached, rest, until, core.clock.now());
            Ok(Lease {
                ttl: rest,
                deadline: Some(until),
                ..detached
            })
        };
        client.engine.run(giving).await?
    }
}

/// What is left to do for a lease whose holder has let it go.
enum LetGo {
    Done(Released),
    Release(Box<ReleaseRequest>),
}

/// The store may still have had the lease, but the holder could no longer rely on it.
fn if_relied_on(released: Released, was_held: bool) -> Released {
    match released {
        Released::WasHeld if !was_held => Released::AlreadyGone,
        released => released,
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner.remove(&self.belief.held);
        }
        let first = self.belief.end();
        if !first || bug(Bug::DroppedGuardKept) {
            return;
        }
        if let HandOffOutcome::Release { dequeue } =
            hand_off::try_hand_off(&self.client, &self.belief)
        {
            if bug(Bug::DropBlocks) {
                #[cfg(feature = "blocking")]
                let _ = crate::blocking::block_on(self.client.release(&self.belief, None));
            }
            self.client.release_in_background(&self.belief, dequeue);
        }
    }
}
