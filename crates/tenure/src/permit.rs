//! A permit: what the caller has of a semaphore.

use std::fmt;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lease::{Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::{LostReason, Released, Standing};

/// One or several permits of a [semaphore](crate::Semaphore), under one lease.
///
/// The lease is renewed in the background as long as this lives. Stop using the slot when
/// [`lost`](Permit::lost) resolves, and finish with [`release`](Permit::release). Dropping it releases in
/// the background: see [`Guard`](crate::Guard) for what that means.
#[must_use = "if unused, the permit is released at once"]
pub struct Permit {
    guard: Guard,
}

impl Permit {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard }
    }

    /// The semaphore's name.
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// The slot: a number below the limit that nobody else has. The first one if there are several.
    pub fn slot(&self) -> u32 {
        self.slots().first().copied().unwrap_or_default()
    }

    /// All slots of this permit.
    pub fn slots(&self) -> &[u32] {
        let permits = self.guard.belief().permits.as_ref();
        permits.map_or(&[], |held| &held.slots)
    }

    /// The fence: greater than that of every permit before, so also of every earlier holder of these
    /// slots. Pass it to what the slot stands for, and let that refuse a lower one. See
    /// [`Guard::fence`].
    pub fn fence(&self) -> Fence {
        self.guard.fence()
    }

    /// The lease's id, as shown by listings.
    pub fn lease_id(&self) -> &LeaseId {
        self.guard.lease_id()
    }

    /// The lease duration: from one renewal until it expires.
    pub fn ttl(&self) -> Duration {
        self.guard.ttl()
    }

    /// The deadline until which the permit can be relied on. See [`Guard::deadline`].
    pub fn deadline(&self) -> Moment {
        self.guard.deadline()
    }

    /// The time until the deadline if no renewal succeeds; zero once the permit is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether it is held, as far as is known without asking the store. See [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Whether the permit is held, suspect or lost at this moment.
    pub fn standing(&self) -> Standing {
        self.guard.standing()
    }

    /// Makes sure that at least `need` is left. See [`Guard::ensure`].
    ///
    /// # Errors
    ///
    /// As for [`Guard::ensure`].
    ///
    /// # Cancel safety
    ///
    /// Safe: once started, a renewal continues in the background.
    pub async fn ensure(&self, need: Duration) -> Result<()> {
        self.guard.ensure(need).await
    }

    /// Resolves with the reason when the permit is lost: no later than its deadline, even if the server
    /// cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: calling it again gives the same result.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// A token that is cancelled when the permit is lost or released. See [`Guard::lost_token`].
    pub fn lost_token(&self) -> CancellationToken {
        self.guard.lost_token()
    }

    /// Releases all slots of the permit, and reports whether it was held to the end.
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// Safe: it continues in the background.
    pub async fn release(self) -> Result<Released> {
        self.guard.release().await
    }

    pub(crate) fn lost_error(&self) -> Error {
        self.guard.lost_error()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("name", self.name())
            .field("slots", &self.slots())
            .field("fence", &self.fence())
            .field("standing", &self.standing())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
