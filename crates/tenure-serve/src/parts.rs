//! What a program passes to the service.

use std::fmt;

use tenure::Locks;
use tenure_demo::broken_locks::BrokenLocks;
use tenure_sale::Sale;

/// What the service is made of.
pub struct Parts {
    /// The locks. Their client should not hand leases off inside the process: two callers who know the
    /// same lease id could release each other.
    pub locks: Locks,
    /// Where the locks are, with passwords: never shown.
    pub urls: Vec<String>,
    /// The sale, if there is a ledger.
    pub sale: Option<Sale>,
    /// Home-made locks to try, in demo mode.
    pub broken_locks: Option<BrokenLocks>,
}

impl Parts {
    /// Locks, and where they are: without a sale and without home-made locks.
    pub fn new<U: Into<String>>(locks: Locks, urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            locks,
            urls: urls.into_iter().map(Into::into).collect(),
            sale: None,
            broken_locks: None,
        }
    }
}

/// Without the passwords.
impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}
