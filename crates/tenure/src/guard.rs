//! The guard: what the caller has while it holds a lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::holds::Holds;
use crate::lease::{Fence, Lease, LeaseId};
use crate::mode::Mode;
use crate::moment::Moment;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::standing::{LostReason, Released, Resigned, Standing};
use crate::unchanged::Unchanged;

/// A held lock.
///
/// The lease is renewed in the background as long as the guard lives, unless the lock was acquired
/// with [`no_renewal`](crate::Lock::no_renewal). Pass the [`fence`](Guard::fence) to the resource that the
/// lock protects, stop the work when [`lost`](Guard::lost) resolves, and finish with
/// [`release`](Guard::release).
///
/// # Release on drop is not immediate
///
/// Dropping a guard hands the release to the client's background thread. It never blocks, never
/// panics and needs no runtime, but it cannot report whether the release succeeded. A program that
/// exits right afterwards may exit before the release; the lease then expires by itself. Use
/// [`release`](Guard::release) or [`Locks::shutdown`](crate::Locks::shutdown) to be sure.
#[must_use = "if unused, the lock is released at once"]
pub struct Guard {
    hold: Arc<Hold>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { hold }
    }

    /// The guard for a grant. If the client was closed meanwhile, the grant is released.
    ///
    /// # Errors
    ///
    /// If the client was closed.
    pub(crate) fn take(
        client: &Arc<ClientHandle>,
        owner: Option<Arc<Holds>>,
        belief: Arc<Belief>,
    ) -> Result<Self> {
        let guard = Self::new(Hold::new(Arc::clone(client), owner, belief));
        // Only now: a shutdown that begins later finds the lease, and dropping the guard releases
        // what an earlier one may have missed.
        client
            .check_open()
            .inspect_err(|_| client.core.stats.cancelled())?;
        Ok(guard)
    }

    pub(crate) fn into_hold(self) -> Arc<Hold> {
        self.hold
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.hold.belief().held.name
    }

    /// The fencing token: pass it to the protected resource, which must refuse a token lower than
    /// the highest it has seen. All guards of a reentrant chain share one fence, and so do all readers
    /// that [share](crate::Lock::shared) the lock at the same time.
    pub fn fence(&self) -> Fence {
        let fence = self.hold.belief().fence;
        if bug(Bug::FenceBumpedOnReentry) {
            return Fence::new(fence.get() + Arc::strong_count(&self.hold) as u64);
        }
        fence
    }

    /// Whether other leases may hold the lock at the same time.
    pub fn mode(&self) -> Mode {
        self.hold.belief().held.mode
    }

    /// The lease's id, as shown by `holder()` and listings.
    pub fn lease_id(&self) -> &LeaseId {
        &self.hold.belief().held.id
    }

    /// The lease duration: from one renewal until it expires.
    pub fn ttl(&self) -> Duration {
        self.hold.belief().held.ttl
    }

    /// The deadline until which the guard can be relied on, by the local clock. Each renewal
    /// extends it, but never beyond [`max_hold`](crate::Lock::max_hold).
    ///
    /// If another process has just released the lock, the first deadline may be half a second away,
    /// and the first renewal follows at once: use [`ensure`](Guard::ensure) if you need more.
    pub fn deadline(&self) -> Moment {
        self.hold.belief().believable_until()
    }

    /// The time until the deadline if no renewal succeeds; zero once the lock is lost.
    pub fn remaining(&self) -> Duration {
        self.hold.belief().remaining(self.hold.now())
    }

    /// Whether the lock is held, as far as is known without asking the store. `true` is not a
    /// promise for the next line: a process may be paused at any point. Only the fence protects
    /// against that.
    pub fn is_valid(&self) -> bool {
        self.standing() != Standing::Lost
    }

    /// Whether the lock is held, suspect or lost at this moment.
    pub fn standing(&self) -> Standing {
        self.hold.belief().standing(self.hold.now())
    }

    /// Makes sure that at least `need` is left, renewing the lease if necessary.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease is lost or cannot be extended that
    /// far, and [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if `need` is longer
    /// than the lease can ever last.
    ///
    /// # Cancel safety
    ///
    /// Safe: once started, a renewal continues in the background.
    pub async fn ensure(&self, need: Duration) -> Result<()> {
        self.hold.ensure(need).await
    }

    /// Resolves with the reason when the lock is no longer held: no later than its deadline, even
    /// if the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: calling it again gives the same result.
    pub async fn lost(&self) -> LostReason {
        let belief = self.hold.belief();
        belief.no_longer_held().cancelled().await;
        belief.lost_reason().unwrap_or(LostReason::Expired)
    }

    /// A token that is cancelled when the lock is no longer held: when it is lost, released, or its
    /// guard is dropped. Pass it to the tasks that do the protected work. Cancelling it yourself
    /// stops those tasks and has no other effect.
    pub fn lost_token(&self) -> CancellationToken {
        self.hold.belief().no_longer_held().child_token()
    }

    /// Releases the lock and reports whether it was still held.
    ///
    /// Within a reentrant chain the lock stays held until its last guard is gone; the result then
    /// depends on the deadline alone.
    ///
    /// # Errors
    ///
    /// If the store refuses the release for good, for example because the user lost a permission. A
    /// missing reply is not an error: the result is [`Released::Unknown`].
    ///
    /// # Cancel safety
    ///
    /// Safe: the release continues in the background.
    pub async fn release(self) -> Result<Released> {
        self.hold.release().await
    }

    /// Goes on as a reader: shares a lock that this guard holds alone, without releasing it in between.
    /// Readers that wait for it ahead of the next writer join at once. The returned guard has a lease of
    /// its own with a new, greater fence, and no metadata; the tokens of this one are cancelled.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let writer = tenure.lock("prices").acquire().await?;
    /// // .. write ..
    /// let reader = writer.downgrade().await.map_err(tenure::Unchanged::into_error)?;
    /// assert!(tenure.lock("prices").try_acquire().await?.is_none());
    /// reader.release().await?;
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unchanged`] has this guard, which holds the lock as before, and the error:
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if other guards of its owner hold the lock too
    /// or it is shared already, [`ErrorKind::Lost`](crate::ErrorKind::Lost), and
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) where leases cannot be shared. If
    /// the store does not say whether it was done, the lock is released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock.
    pub async fn downgrade(self) -> Result<Guard, Unchanged> {
        self.hold.change_mode(Mode::Shared).await
    }

    /// Goes on as a writer: holds alone a lock that this guard shares, if no other reader shares it and
    /// nobody waits for it. Never waits: two readers that waited for each other would wait forever. The
    /// returned guard has a lease of its own with a new, greater fence; the tokens of this one are
    /// cancelled.
    ///
    /// # Errors
    ///
    /// [`Unchanged`] has this guard, which holds the lock as before, and the error:
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) if there are other readers or waiters,
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if other guards of this process have the same
    /// lease or it is exclusive already, and otherwise as for [`downgrade`](Guard::downgrade).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock.
    pub async fn try_upgrade(self) -> Result<Guard, Unchanged> {
        self.hold.change_mode(Mode::Exclusive).await
    }

    /// Detaches the lease from this guard and stops renewing it. Any process that has the lease can
    /// [`adopt`](crate::Locks::adopt) it before it expires.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease is already lost, and
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if other guards of a reentrant chain
    /// still hold it.
    pub fn detach(self) -> Result<Lease> {
        self.hold.detach()
    }

    /// Detaches the lease as [`detach`](Guard::detach) does, and makes it expire after `rest`,
    /// whether that is sooner or later than it otherwise would. This keeps a lock for a fixed time
    /// without a process to release it. 100 ms to 24 h; on a [`Redlock`](crate::Redlock) no longer
    /// than its `longest_ttl`. The returned lease has the new duration.
    ///
    /// # Errors
    ///
    /// As for `detach`; [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if `rest`
    /// is out of range; and if the store cannot be reached or refuses the request. In that case the
    /// lease is still detached, and expires when it otherwise would.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the lease is detached, and the store is updated in the background.
    pub async fn detach_for(self, rest: Duration) -> Result<Lease> {
        self.hold.detach_for(rest).await
    }

    /// Releases the lock, and offers it to this waiter.
    pub(crate) async fn release_to(self, to: LeaseId) -> Result<Resigned> {
        self.hold.release_to(to).await
    }

    pub(crate) fn belief(&self) -> &Arc<Belief> {
        self.hold.belief()
    }

    pub(crate) fn client(&self) -> &Arc<ClientHandle> {
        self.hold.client()
    }

    /// The error of a guard that is no longer valid.
    pub(crate) fn lost_error(&self) -> Error {
        let belief = self.hold.belief();
        let reason = belief.lost_reason().unwrap_or(LostReason::Expired);
        Error::lost(&belief.held.name, reason)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("lease_id", self.lease_id())
            .field("fence", &self.fence())
            .field("standing", &self.standing())
            .field("remaining", &self.remaining())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        fn holds<T: Send + Sync + 'static>() {}
        holds::<Guard>();
        holds::<Error>();
        holds::<crate::Tenure>();
        holds::<crate::Lock>();
        holds::<crate::MultiLock>();
        holds::<crate::MultiGuard>();
        holds::<crate::Owner>();
    }
}
