//! Who may re-enter a lock.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::client_handle::ClientHandle;
use crate::engine::attempt::AcquireRequest;
use crate::error::Result;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lock::Lock;
use crate::name::LockName;
use crate::seeded::{Bug, bug};

/// Someone who may take the same lock again while holding it: pass it to the functions you call.
///
/// A nested acquire by the same owner shares the lease and its fence and asks nobody. The lock is
/// free when the last guard of the chain is gone, in any order. Clones are the same owner.
///
/// ```
/// # async fn example() -> Result<(), tenure::Error> {
/// # let tenure = tenure::Tenure::connect("memory://").await?;
/// let owner = tenure.owner();
/// let outer = owner.lock("account:7").acquire().await?;
/// let inner = owner.lock("account:7").acquire().await?;
/// assert_eq!(outer.fence(), inner.fence());
/// drop(outer);
/// assert!(tenure.lock("account:7").try_acquire().await?.is_none());
/// # Ok(()) }
/// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
/// ```
#[derive(Clone)]
pub struct Owner {
    client: Arc<ClientHandle>,
    holds: Arc<Holds>,
}

/// What one owner holds, by name.
#[derive(Default)]
pub(crate) struct Holds {
    by_name: Mutex<HashMap<LockName, Weak<Hold>>>,
}

impl Owner {
    pub(crate) fn new(client: Arc<ClientHandle>) -> Self {
        Self {
            client,
            holds: Arc::default(),
        }
    }

    /// A lock that this owner may re-enter.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(
            Arc::clone(&self.client),
            name.as_ref(),
            Some(Arc::clone(&self.holds)),
        )
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<LockName> = self.holds.by_name().keys().cloned().collect();
        f.debug_struct("Owner")
            .field("holds", &names)
            .finish_non_exhaustive()
    }
}

impl Holds {
    /// Another guard, if this owner holds the lock already.
    pub(crate) fn reenter(&self, request: &AcquireRequest) -> Result<Option<Guard>> {
        self.held(&request.name)
            .map(|hold| hold.reenter(request))
            .transpose()
    }

    /// What this owner holds under a name. The returned reference may be the last one, whose drop
    /// releases it.
    pub(crate) fn held(&self, name: &LockName) -> Option<Arc<Hold>> {
        let hold = self.by_name().get(name).and_then(Weak::upgrade);
        hold.filter(|_| !bug(Bug::ReentryForgotten))
    }

    /// Remembers a hold of this owner.
    pub(crate) fn remember(&self, hold: &Arc<Hold>) {
        let name = hold.belief().held.name.clone();
        self.by_name().insert(name, Arc::downgrade(hold));
    }

    /// Forgets a hold that has ended, unless a new one has taken its place.
    pub(crate) fn forget(&self, name: &LockName) {
        let mut by_name = self.by_name();
        if by_name
            .get(name)
            .is_some_and(|hold| hold.strong_count() == 0)
        {
            by_name.remove(name);
        }
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<LockName, Weak<Hold>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
