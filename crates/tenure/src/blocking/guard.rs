//! The guard, for programs without an async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::block_on::block_on;
use super::handle::Handle;
use crate::error::{Error, Result};
use crate::lease::{Fence, Lease, LeaseId};
use crate::mode::Mode;
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::{LostReason, Released, Standing};
use crate::unchanged::Unchanged;

/// A held lock. See [`tenure::Guard`](crate::Guard).
#[must_use = "if unused, the lock is released at once"]
pub struct Guard {
    // Before `handle`, so that its release is under way when the handle waits for it.
    pub(super) guard: crate::Guard,
    pub(super) handle: Arc<Handle>,
}

impl Guard {
    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// The fencing token. See [`tenure::Guard::fence`](crate::Guard::fence).
    pub fn fence(&self) -> Fence {
        self.guard.fence()
    }

    /// The lease's id, as shown by `holder()` and listings.
    pub fn lease_id(&self) -> &LeaseId {
        self.guard.lease_id()
    }

    /// The lease duration: from one renewal until it expires.
    pub fn ttl(&self) -> Duration {
        self.guard.ttl()
    }

    /// The deadline until which the guard can be relied on. See
    /// [`tenure::Guard::deadline`](crate::Guard::deadline).
    pub fn deadline(&self) -> Moment {
        self.guard.deadline()
    }

    /// The time left until the deadline.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether the guard can be relied on. See [`tenure::Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// How sure this client is that it holds the lock.
    pub fn standing(&self) -> Standing {
        self.guard.standing()
    }

    /// A token that is cancelled when the lock is lost. See
    /// [`tenure::Guard::lost_token`](crate::Guard::lost_token).
    pub fn lost_token(&self) -> CancellationToken {
        self.guard.lost_token()
    }

    /// Makes sure that at least `need` is left. See [`tenure::Guard::ensure`](crate::Guard::ensure).
    pub fn ensure(&self, need: Duration) -> Result<()> {
        block_on(self.guard.ensure(need))
    }

    /// Blocks until the lock is no longer held. See [`tenure::Guard::lost`](crate::Guard::lost).
    pub fn wait_lost(&self) -> LostReason {
        block_on(self.guard.lost())
    }

    /// Releases the lock. See [`tenure::Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<Released> {
        block_on(self.guard.release())
    }

    /// Whether other leases may hold the lock at the same time.
    pub fn mode(&self) -> Mode {
        self.guard.mode()
    }

    /// Goes on as a reader. See [`tenure::Guard::downgrade`](crate::Guard::downgrade).
    ///
    /// # Errors
    ///
    /// As for that: the error, and this guard if it still holds the lock.
    pub fn downgrade(self) -> Result<Self, (Option<Self>, Error)> {
        Self::changed(block_on(self.guard.downgrade()), &self.handle)
    }

    /// Goes on as a writer. See [`tenure::Guard::try_upgrade`](crate::Guard::try_upgrade).
    ///
    /// # Errors
    ///
    /// As for that: the error, and this guard if it still holds the lock.
    pub fn try_upgrade(self) -> Result<Self, (Option<Self>, Error)> {
        Self::changed(block_on(self.guard.try_upgrade()), &self.handle)
    }

    fn changed(
        changed: Result<crate::Guard, Unchanged>,
        handle: &Arc<Handle>,
    ) -> Result<Self, (Option<Self>, Error)> {
        let of = |guard| Self {
            guard,
            handle: Arc::clone(handle),
        };
        match changed {
            Ok(guard) => Ok(of(guard)),
            Err(Unchanged { guard, error }) => Err((guard.map(of), error)),
        }
    }

    /// Detaches the lease and stops renewing it. See
    /// [`tenure::Guard::detach`](crate::Guard::detach).
    pub fn detach(self) -> Result<Lease> {
        let Self { guard, handle } = self;
        let lease = guard.detach();
        drop(handle);
        lease
    }

    /// Detaches the lease with this much time left. See
    /// [`tenure::Guard::detach_for`](crate::Guard::detach_for).
    pub fn detach_for(self, rest: Duration) -> Result<Lease> {
        let Self { guard, handle } = self;
        let lease = block_on(guard.detach_for(rest));
        drop(handle);
        lease
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}
