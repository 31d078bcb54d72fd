//! Semaphores, for programs without an async runtime.

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

/// A semaphore. See [`tenure::Semaphore`](crate::Semaphore).
///
/// ```
/// use tenure::blocking::Tenure;
///
/// # fn main() -> Result<(), tenure::Error> {
/// let tenure = Tenure::connect("memory://")?;
/// let permit = tenure.semaphore("gpus", 2).acquire()?;
/// println!("may use GPU {}", permit.slot());
/// permit.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a semaphore does nothing until it is used"]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    handle: Arc<Handle>,
}

/// One or several permits. See [`tenure::Permit`](crate::Permit).
#[must_use = "if unused, the permit is released at once"]
pub struct Permit {
    // Before `handle`, so that its release is under way when the handle waits for it.
    permit: crate::Permit,
    handle: Arc<Handle>,
}

impl Semaphore {
    pub(super) fn new(handle: &Arc<Handle>, name: &str, limit: u32) -> Self {
        Self {
            semaphore: handle.locks.semaphore(name, limit),
            handle: Arc::clone(handle),
        }
    }

    /// See [`tenure::Semaphore::ttl`](crate::Semaphore::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|semaphore| semaphore.ttl(ttl))
    }

    /// See [`tenure::Semaphore::no_renewal`](crate::Semaphore::no_renewal).
    pub fn no_renewal(self) -> Self {
        self.change(crate::Semaphore::no_renewal)
    }

    /// See [`tenure::Semaphore::max_hold`](crate::Semaphore::max_hold).
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|semaphore| semaphore.max_hold(length))
    }

    /// See [`tenure::Semaphore::wait`](crate::Semaphore::wait).
    pub fn wait(self, limit: Duration) -> Self {
        self.change(|semaphore| semaphore.wait(limit))
    }

    /// See [`tenure::Semaphore::replicas`](crate::Semaphore::replicas).
    pub fn replicas(self, replicas: u32) -> Self {
        self.change(|semaphore| semaphore.replicas(replicas))
    }

    /// See [`tenure::Semaphore::overtake`](crate::Semaphore::overtake).
    pub fn overtake(self, overtakes: bool) -> Self {
        self.change(|semaphore| semaphore.overtake(overtakes))
    }

    /// The semaphore's name, as given.
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    /// The limit, as given.
    pub fn limit(&self) -> u32 {
        self.semaphore.limit()
    }

    /// Waits for a permit. See [`tenure::Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1)
    }

    /// Waits for several permits. See
    /// [`tenure::Semaphore::acquire_many`](crate::Semaphore::acquire_many).
    pub fn acquire_many(&self, count: u32) -> Result<Permit> {
        block_on(self.semaphore.acquire_many(count)).map(|permit| self.permit(permit))
    }

    /// A permit, if one is free. See [`tenure::Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1)
    }

    /// Several permits, if so many are free. See
    /// [`tenure::Semaphore::try_acquire_many`](crate::Semaphore::try_acquire_many).
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<Permit>> {
        let acquired = block_on(self.semaphore.try_acquire_many(count))?;
        Ok(acquired.map(|permit| self.permit(permit)))
    }

    /// Changes the limit. See [`tenure::Semaphore::resize`](crate::Semaphore::resize).
    pub fn resize(self, limit: u32) -> Result<Self> {
        Ok(Self {
            semaphore: block_on(self.semaphore.resize(limit))?,
            handle: self.handle,
        })
    }

    fn change(mut self, change: impl FnOnce(crate::Semaphore) -> crate::Semaphore) -> Self {
        self.semaphore = change(self.semaphore);
        self
    }

    fn permit(&self, permit: crate::Permit) -> Permit {
        Permit {
            permit,
            handle: Arc::clone(&self.handle),
        }
    }
}

impl Permit {
    /// The semaphore's name.
    pub fn name(&self) -> &LockName {
        self.permit.name()
    }

    /// The slot. See [`tenure::Permit::slot`](crate::Permit::slot).
    pub fn slot(&self) -> u32 {
        self.permit.slot()
    }

    /// All slots of this permit.
    pub fn slots(&self) -> &[u32] {
        self.permit.slots()
    }

    /// The fence. See [`tenure::Permit::fence`](crate::Permit::fence).
    pub fn fence(&self) -> Fence {
        self.permit.fence()
    }

    /// The lease's id, as shown by listings.
    pub fn lease_id(&self) -> &LeaseId {
        self.permit.lease_id()
    }

    /// The lease duration: from one renewal until it expires.
    pub fn ttl(&self) -> Duration {
        self.permit.ttl()
    }

    /// The deadline until which the permit can be relied on.
    pub fn deadline(&self) -> Moment {
        self.permit.deadline()
    }

    /// The time until the deadline if no renewal succeeds; zero once the permit is lost.
    pub fn remaining(&self) -> Duration {
        self.permit.remaining()
    }

    /// Whether it is held, as far as is known without asking the store.
    pub fn is_valid(&self) -> bool {
        self.permit.is_valid()
    }

    /// Whether the permit is held, suspect or lost at this moment.
    pub fn standing(&self) -> Standing {
        self.permit.standing()
    }

    /// Makes sure that at least `need` is left. See [`tenure::Guard::ensure`](crate::Guard::ensure).
    pub fn ensure(&self, need: Duration) -> Result<()> {
        block_on(self.permit.ensure(need))
    }

    /// Waits until the permit is lost, and returns why.
    pub fn lost(&self) -> LostReason {
        block_on(self.permit.lost())
    }

    /// A token that is cancelled when the permit is lost or released.
    pub fn lost_token(&self) -> CancellationToken {
        self.permit.lost_token()
    }

    /// Releases the permit. See [`tenure::Permit::release`](crate::Permit::release).
    pub fn release(self) -> Result<Released> {
        let Self { permit, handle } = self;
        let released = block_on(permit.release());
        drop(handle);
        released
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.semaphore, f)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.permit, f)
    }
}
