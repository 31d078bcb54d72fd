//! A run for one fire time of a schedule: what the caller has while the job runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::once;
use crate::error::Result;
use crate::guard::Guard;
use crate::lease::Fence;
use crate::name::LockName;
use crate::standing::LostReason;

/// A run for one fire time of a [schedule](crate::Once).
///
/// Its lease is renewed in the background as long as this lives. Stop the job when
/// [`lost`](Run::lost) resolves, and finish with [`complete`](Run::complete). Dropping it ends the run
/// without completing it.
#[must_use = "if unused, the run ends at once, without completing"]
pub struct Run {
    guard: Guard,
    remember: Duration,
}

impl Run {
    pub(crate) fn new(guard: Guard, remember: Duration) -> Self {
        Self { guard, remember }
    }

    /// The guard of the run's lock, for code that works with guards.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The name of the run's lock: `<name>@<fire time>`.
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// The fence: greater than those of all runs for this fire time before. Pass it to what the job
    /// writes to, and let that refuse a lower one. See [`Guard::fence`].
    pub fn fence(&self) -> Fence {
        self.guard.fence()
    }

    /// Whether the lease is held, as far as is known without asking the store. See [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
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

    /// Resolves with the reason when the lease is lost: no later than its deadline, even if the server
    /// cannot be reached. With [`retry`](crate::Once::retry) another run may begin then.
    ///
    /// # Cancel safety
    ///
    /// Safe: calling it again gives the same result.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// A token that is cancelled when the lease is lost or released. See [`Guard::lost_token`].
    pub fn lost_token(&self) -> CancellationToken {
        self.guard.lost_token()
    }

    /// Records that the job is done, so that no other run begins, and releases the lock.
    ///
    /// Succeeds also if the lease was lost meanwhile, as long as no other run has begun since.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if another run has begun since, or if the lease was
    /// lost and the run is no longer [remembered](crate::Once::remember). After
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) it may or may not be recorded.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it continues in the background.
    pub async fn complete(self) -> Result<()> {
        let Self { guard, remember } = self;
        let client = Arc::clone(guard.client());
        client.engine.run(once::complete(guard, remember)).await?
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("name", self.name())
            .field("fence", &self.fence())
            .field("standing", &self.guard.standing())
            .field("remaining", &self.guard.remaining())
            .finish_non_exhaustive()
    }
}
