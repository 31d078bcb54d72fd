//! What one owner holds, and how its other callers share that.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::engine::attempt::AcquireRequest;
use crate::error::Result;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::name::LockName;
use crate::seeded::{Bug, bug};

/// What one owner holds, by name.
#[derive(Default)]
pub(crate) struct Holds {
    by_name: Mutex<HashMap<LockName, Weak<Hold>>>,
    added: Notify,
}

impl Holds {
    /// Another guard, if this owner already holds the lock.
    pub(crate) fn reenter(&self, request: &AcquireRequest) -> Result<Option<Guard>> {
        self.held(&request.name)
            .map(|hold| hold.reenter(request))
            .transpose()
    }

    /// Another guard for the waiter with this number, as soon as another caller of this owner gets the
    /// lock. What is granted to the waiter itself reaches it by its own reply.
    pub(crate) async fn wait_to_reenter(
        &self,
        request: &AcquireRequest,
        number: u64,
    ) -> Result<Guard> {
        loop {
            let mut added = pin!(self.added.notified());
            // Before the check, so that a hold added meanwhile is not missed.
            added.as_mut().enable();
            let hold = self.held(&request.name);
            if let Some(hold) = hold.filter(|hold| !hold.is_for_waiter(number)) {
                return hold.reenter(request);
            }
            added.await;
        }
    }

    /// Adds a hold of this owner. Its other callers that wait for the lock share it.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        let name = hold.belief().held.name.clone();
        self.by_name().insert(name, Arc::downgrade(hold));
        self.added.notify_waiters();
    }

    /// Removes a hold that has ended, unless a new one has replaced it.
    pub(crate) fn remove(&self, name: &LockName) {
        let mut by_name = self.by_name();
        if by_name
            .get(name)
            .is_some_and(|hold| hold.strong_count() == 0)
        {
            by_name.remove(name);
        }
    }

    pub(crate) fn names(&self) -> Vec<LockName> {
        self.by_name().keys().cloned().collect()
    }

    fn held(&self, name: &LockName) -> Option<Arc<Hold>> {
        let hold = self.by_name().get(name).and_then(Weak::upgrade);
        hold.filter(|_| !bug(Bug::ReentryForgotten))
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<LockName, Weak<Hold>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
