//! The locks that one owner holds, shared by all its callers.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::engine::attempt::AcquireRequest;
use crate::error::Result;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::mode::Mode;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::store::LeaseSpec;

/// What one owner holds, by name and mode.
#[derive(Default)]
pub(crate) struct Holds {
    holds: Mutex<HashMap<(LockName, Mode), Weak<Hold>>>,
    added: Notify,
}

impl Holds {
    /// Another guard, if this owner already holds the lock.
    pub(crate) fn reenter(&self, request: &AcquireRequest) -> Result<Option<Guard>> {
        self.held(request)
            .map(|hold| hold.reenter(request))
            .transpose()
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
            let hold = self.held(request);
            if let Some(hold) = hold.filter(|hold| !hold.is_for_waiter(number)) {
                return hold.reenter(request);
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
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
