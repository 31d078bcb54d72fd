//! The locks that one owner holds, shared by all its callers.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::engine::attempt::AcquireRequest;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::mode::Mode;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::LeaseSpec;

/// What one owner holds, by name and mode; or the shared leases that any caller of this process may
/// join.
#[derive(Default)]
pub(crate) struct Holds {
    is_of_readers: bool,
    by_name: Mutex<HashMap<(LockName, Mode), Weak<Hold>>>,
    added: Notify,
}

impl Holds {
    /// Shared leases that any caller of this process may join.
    pub(crate) fn of_readers() -> Self {
        Self {
            is_of_readers: true,
            ..Self::default()
        }
    }

    /// Another guard, if this owner already holds the lock, or if the caller may join a shared lease.
    pub(crate) fn reenter(&self, request: &AcquireRequest) -> Result<Option<Guard>> {
        if self.is_of_readers {
            return Ok(self.join(request));
        }
        let hold = self.held(request);
        if hold.is_none() {
            self.check_other_mode(request)?;
        }
        hold.map(|hold| hold.reenter(request)).transpose()
    }

    /// Another guard for the waiter with this number, if another caller's lease can be shared. Must not
    /// keep a lease that cannot: nobody would release it.
    fn share_with_waiter(&self, request: &AcquireRequest, number: u64) -> Result<Option<Guard>> {
        let hold = self.held(request);
        let Some(hold) = hold.filter(|hold| !hold.is_for_waiter(number)) else {
            return Ok(None);
        };
        if self.is_of_readers {
            let joins = hold.can_be_joined(request, Some(number));
            return Ok(joins.then(|| Guard::new(hold)));
        }
        hold.reenter(request).map(Some)
    }

    /// A guard of a shared lease of this process, if a new caller may join it.
    fn join(&self, request: &AcquireRequest) -> Option<Guard> {
        let hold = self.held(request)?;
        hold.can_be_joined(request, None).then(|| Guard::new(hold))
    }

    /// An owner that waits for its own lease would wait forever.
    fn check_other_mode(&self, request: &AcquireRequest) -> Result<()> {
        let other = match request.mode {
            Mode::Exclusive => Mode::Shared,
            // A semaphore has no owner.
            Mode::Shared | Mode::Permit => Mode::Exclusive,
        };
        let key = (request.name.clone(), other);
        // Never upgraded here: the last reference must not be dropped under the mutex that its drop locks.
        let is_held = (self.holds().get(&key)).is_some_and(|hold| hold.strong_count() > 0);
        if !is_held {
            return Ok(());
        }
        let (name, mode) = (&request.name, request.mode);
        let text = format!(
            "cannot acquire lock `{name}` as {mode}: its owner already holds it as {other}, and \
             would wait for itself; release it first"
        );
        Err(Error::new(ErrorKind::Mismatch, text))
    }

    /// Another guard for the waiter with this number, as soon as another caller of this owner gets the
    /// lock. A grant to this waiter itself is delivered through its own channel.
    pub(crate) async fn wait_to_reenter(
        &self,
        request: &AcquireRequest,
        number: u64,
    ) -> Result<Guard> {
        loop {
            let mut added = pin!(self.added.notified());
            // Before the check, so that a hold added meanwhile is not missed.
            added.as_mut().enable();
            if let Some(guard) = self.share_with_waiter(request, number)? {
                return Ok(guard);
            }
            added.await;
        }
    }

    /// Adds a hold of this owner. Its other callers that wait for the lock share it.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        let held = &hold.belief().held;
        let key = (held.name.clone(), held.mode);
        self.holds().insert(key, Arc::downgrade(hold));
        self.added.notify_waiters();
    }

    /// Removes a hold that has ended, unless a new one has replaced it.
    pub(crate) fn remove(&self, held: &LeaseSpec) {
        let key = (held.name.clone(), held.mode);
        let mut holds = self.holds();
        if holds.get(&key).is_some_and(|hold| hold.strong_count() == 0) {
            holds.remove(&key);
        }
    }

    pub(crate) fn names(&self) -> Vec<LockName> {
        let holds = self.holds();
        holds.keys().map(|(name, _)| name.clone()).collect()
    }

    fn held(&self, request: &AcquireRequest) -> Option<Arc<Hold>> {
        let key = (request.name.clone(), request.mode);
        let hold = self.holds().get(&key).and_then(Weak::upgrade);
        hold.filter(|_| !bug(Bug::ReentryForgotten))
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<(LockName, Mode), Weak<Hold>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
