//! The guard of several locks, for programs without an async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::block_on::block_on;
use super::handle::Handle;
use crate::error::Result;
use crate::lease::{Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::{LostReason, Released, Standing};

/// Several held locks. See [`tenure::MultiGuard`](crate::MultiGuard).
#[must_use = "if unused, the locks are released at once"]
pub struct MultiGuard {
    // Before `handle`, so that the releases are under way when the handle waits for them.
    pub(super) guard: crate::MultiGuard,
    #[expect(dead_code, reason = "kept until the guard is gone")]
    pub(super) handle: Arc<Handle>,
}

impl MultiGuard {
    /// The names of the locks, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.guard.names()
    }

    /// The fencing token of one lock. See [`tenure::MultiGuard::fence`](crate::MultiGuard::fence).
    pub fn fence(&self, name: impl AsRef<str>) -> Option<Fence> {
        self.guard.fence(name)
    }

    /// The fencing token of each lock. See
    /// [`tenure::MultiGuard::fences`](crate::MultiGuard::fences).
    pub fn fences(&self) -> impl Iterator<Item = (&LockName, Fence)> {
        self.guard.fences()
    }

    /// The id of each lease, as shown by `holder()` and listings.
    pub fn lease_ids(&self) -> impl Iterator<Item = (&LockName, &LeaseId)> {
        self.guard.lease_ids()
    }

    /// The lease duration: from one renewal until it expires.
    pub fn ttl(&self) -> Duration {
        self.guard.ttl()
    }

    /// The deadline until which all locks can be relied on. See
    /// [`tenure::MultiGuard::deadline`](crate::MultiGuard::deadline).
    pub fn deadline(&self) -> Moment {
        self.guard.deadline()
    }

    /// The time left until the deadline.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether all locks can be relied on. See
    /// [`tenure::MultiGuard::is_valid`](crate::MultiGuard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// How sure this client is that it holds all locks.
    pub fn standing(&self) -> Standing {
        self.guard.standing()
    }

    /// A token that is cancelled when a lock is lost. See
    /// [`tenure::MultiGuard::lost_token`](crate::MultiGuard::lost_token).
    pub fn lost_token(&self) -> CancellationToken {
        self.guard.lost_token()
    }

    /// Makes sure that at least `need` is left. See
    /// [`tenure::MultiGuard::ensure`](crate::MultiGuard::ensure).
    pub fn ensure(&self, need: Duration) -> Result<()> {
        block_on(self.guard.ensure(need))
    }

    /// Blocks until a lock is no longer held. See
    /// [`tenure::MultiGuard::lost`](crate::MultiGuard::lost).
    pub fn wait_lost(&self) -> (LockName, LostReason) {
        block_on(self.guard.lost())
    }

    /// Releases all locks. See [`tenure::MultiGuard::release`](crate::MultiGuard::release).
    pub fn release(self) -> Result<Vec<(LockName, Released)>> {
        block_on(self.guard.release())
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}
