//! A semaphore: a limited number of permits, each in a numbered slot with a fence.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client_handle::ClientHandle;
use crate::engine::resize;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::Lock;
use crate::name::LockName;
use crate::permit::Permit;
use crate::standing::{LostReason, Released};
use crate::store::PermitRequest;

/// The greatest limit of a semaphore.
pub const PERMITS_MAX: u32 = 1_000_000;
/// How many permits one call may acquire: the server gives each its slot, and serves nobody else
/// meanwhile.
const COUNT_MAX: u32 = 1_000;

/// A semaphore: at most so many permits are in use at the same time, over all processes. Creating one is
/// free and sends nothing.
///
/// The permits are numbered *slots*, from 0 up to the limit. No slot has two holders, so there are never
/// more than the limit; and the number itself is useful: it can choose a GPU, a port or a seat. Each
/// permit is a lease like that of a [lock](crate::Lock), with a fence that is greater than those of all
/// permits before it, also of its own slot. It is renewed, lost and released like a lock.
///
/// ```
/// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
/// # let tenure = tenure::Tenure::connect("memory://").await?;
/// let gpus = tenure.semaphore("gpus", 2);
/// let first = gpus.acquire().await?;
/// let second = gpus.acquire().await?;
/// assert_eq!((first.slot(), second.slot()), (0, 1));
/// assert!(gpus.try_acquire().await?.is_none());
/// first.release().await?;
/// assert_eq!(gpus.acquire().await?.slot(), 0);
/// # drop(second);
/// # Ok(()) }) }
/// ```
///
/// Waiters get permits in order of arrival. One that waits for several is not overtaken by those behind it
/// that want fewer, unless they are allowed to [`overtake`](Semaphore::overtake).
///
/// The limit is stored with the semaphore while it is in use, and for a day after that. A program that
/// uses another limit gets an error that names both, so that two versions of a program never allow
/// different numbers. [`resize`](Semaphore::resize) changes it.
///
/// The loss of a permit is noticed at its next renewal. Not available in Redisson's layout, and not with a
/// [`Redlock`](crate::Redlock): its nodes vote on one lease each, and no majority of them can count
/// permits. So that does not compile:
///
/// ```compile_fail,E0599
/// # async fn example(redlock: tenure::Redlock) {
/// redlock.semaphore("gpus", 2).acquire().await;
/// # }
/// ```
///
/// Settings are validated when a permit is acquired, before anything is sent.
#[derive(Clone)]
#[must_use = "a semaphore does nothing until it is used"]
pub struct Semaphore {
    client: Arc<ClientHandle>,
    lock: Lock,
    limit: u32,
    overtakes: bool,
}

impl Semaphore {
    pub(crate) fn new(client: &Arc<ClientHandle>, name: &str, limit: u32) -> Self {
        Self {
            client: Arc::clone(client),
            lock: Lock::new(Arc::clone(client), name, None),
            limit,
            overtakes: false,
        }
    }

    /// The lease duration of a permit. See [`Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|lock| lock.ttl(ttl))
    }

    /// Never renews the lease of a permit. See [`Lock::no_renewal`].
    pub fn no_renewal(self) -> Self {
        self.change(Lock::no_renewal)
    }

    /// The maximum time to hold a permit, renewals included. See [`Lock::max_hold`].
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|lock| lock.max_hold(length))
    }

    /// The maximum time to wait for permits. See [`Lock::wait`].
    pub fn wait(self, limit: Duration) -> Self {
        self.change(|lock| lock.wait(limit))
    }

    /// How many replicas must acknowledge each grant and renewal. See [`Lock::replicas`].
    pub fn replicas(self, replicas: u32) -> Self {
        self.change(|lock| lock.replicas(replicas))
    }

    /// Whether a call may get permits although others wait for more than are free. They may then wait for
    /// as long as there are such calls.
    pub fn overtake(mut self, overtakes: bool) -> Self {
        self.overtakes = overtakes;
        self
    }

    /// The semaphore's name, as given.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// The limit, as given.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// As for [`Lock::acquire`]; [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the semaphore has
    /// another limit, and [`ErrorKind::NotALock`](crate::ErrorKind::NotALock) if the name is that of a
    /// lock.
    ///
    /// # Cancel safety
    ///
    /// As for [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1).await
    }

    /// Waits for so many permits: all of them under one lease, or none. At most the limit, and at most
    /// 1000.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let permit = tenure.semaphore("workers", 8).acquire_many(3).await?;
    /// assert_eq!(permit.slots(), [0, 1, 2]);
    /// # drop(permit);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Semaphore::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Semaphore::acquire).
    pub async fn acquire_many(&self, count: u32) -> Result<Permit> {
        self.lock_for(count)?.acquire().await.map(Permit::new)
    }

    /// A permit, or `None` if none is free or others wait.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Semaphore::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Semaphore::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1).await
    }

    /// So many permits, or `None` if fewer are free or others wait.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Semaphore::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Semaphore::acquire).
    pub async fn try_acquire_many(&self, count: u32) -> Result<Option<Permit>> {
        let acquired = self.lock_for(count)?.try_acquire().await?;
        Ok(acquired.map(Permit::new))
    }

    /// Runs `work` with a permit, and cancels it if the permit is lost. See [`Lock::with`].
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Semaphore::acquire), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the
    /// permit was lost before the work finished.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work at its current await point and releases the permit.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Permit) -> T) -> Result<T> {
        let permit = self.acquire().await?;
        let done = {
            let work = work(&permit);
            tokio::pin!(work);
            let lost = permit.lost();
            tokio::pin!(lost);
            tokio::select! {
                biased;
                _ = &mut lost => None,
                done = &mut work => Some(done),
            }
        };
        let Some(done) = done.filter(|_| permit.is_valid()) else {
            return Err(permit.lost_error());
        };
        let name = permit.name().clone();
        match permit.release().await? {
            Released::AlreadyGone => Err(Error::lost(&name, LostReason::Gone)),
            Released::WasHeld | Released::Unknown => Ok(done),
        }
    }

    /// Changes the limit of the semaphore in the store, whatever it was. Nobody loses a permit: with a
    /// lower limit nobody gets one until enough have been released. Programs that go on with another limit
    /// get an error.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let permit = tenure.semaphore("seats", 1).acquire().await?;
    /// let error = tenure.semaphore("seats", 2).acquire().await.unwrap_err();
    /// assert_eq!(error.kind(), tenure::ErrorKind::Mismatch);
    ///
    /// let seats = tenure.semaphore("seats", 1).resize(2).await?;
    /// let other = seats.acquire().await?;
    /// # drop((permit, other));
    /// # Ok(()) }) }
    /// ```
    ///
    /// Returns the semaphore with the new limit.
    ///
    /// # Errors
    ///
    /// If the limit is out of range, the store cannot be reached or refuses the request, or the name is
    /// that of a lock.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it continues in the background.
    pub async fn resize(mut self, limit: u32) -> Result<Self> {
        self.limit = check_limit(limit)?;
        self.client.core.settings.check_semaphores()?;
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let name = core.settings.allowed(LockName::new(self.name())?)?;
        let resizing = async move { resize::resize(&core, &name, limit).await };
        self.client.engine.run(resizing).await??;
        Ok(self)
    }

    fn change(mut self, change: impl FnOnce(Lock) -> Lock) -> Self {
        self.lock = change(self.lock);
        self
    }

    fn lock_for(&self, count: u32) -> Result<Lock> {
        let limit = check_limit(self.limit)?;
        if count == 0 || count > limit.min(COUNT_MAX) {
            let cause = format!(
                "it must be 1 to {}, the limit of `{}` or at most 1000",
                limit.min(COUNT_MAX),
                self.name()
            );
            return Err(Error::invalid_setting(
                "the number of permits",
                count,
                &cause,
            ));
        }
        let request = PermitRequest {
            limit,
            count,
            overtakes: self.overtakes,
        };
        Ok(self.lock.clone().for_permits(request))
    }
}

fn check_limit(limit: u32) -> Result<u32> {
    if limit == 0 || limit > PERMITS_MAX {
        let text = format!(
            "the limit `{limit}` of a semaphore is out of range: it must be 1 to {PERMITS_MAX}"
        );
        return Err(Error::new(ErrorKind::InvalidSetting, text));
    }
    Ok(limit)
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .field("limit", &self.limit)
            .field("overtakes", &self.overtakes)
            .finish_non_exhaustive()
    }
}
