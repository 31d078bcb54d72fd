//! Several locks that are acquired together, for programs without an async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::block_on::block_on;
use super::handle::Handle;
use super::multi_guard::MultiGuard;
use crate::error::{Error, Result};
use crate::standing::{LostReason, Released};

/// Several locks that are acquired together. See [`tenure::MultiLock`](crate::MultiLock).
///
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let tenure = tenure::blocking::Tenure::connect("memory://")?;
/// let guard = tenure.locks(["account:1", "account:2"]).acquire()?;
/// assert!(guard.fence("account:1").is_some());
/// guard.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct MultiLock {
    pub(super) locks: crate::MultiLock,
    pub(super) handle: Arc<Handle>,
}

impl MultiLock {
    /// See [`tenure::MultiLock::shared`](crate::MultiLock::shared).
    pub fn shared(self) -> Self {
        self.change(crate::MultiLock::shared)
    }

    /// See [`tenure::MultiLock::ttl`](crate::MultiLock::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|locks| locks.ttl(ttl))
    }

    /// See [`tenure::MultiLock::no_renewal`](crate::MultiLock::no_renewal).
    pub fn no_renewal(self) -> Self {
        self.change(crate::MultiLock::no_renewal)
    }

    /// See [`tenure::MultiLock::max_hold`](crate::MultiLock::max_hold).
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|locks| locks.max_hold(length))
    }

    /// See [`tenure::MultiLock::replicas`](crate::MultiLock::replicas).
    pub fn replicas(self, replicas: u32) -> Self {
        self.change(|locks| locks.replicas(replicas))
    }

    /// See [`tenure::MultiLock::meta`](crate::MultiLock::meta).
    pub fn meta(self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|locks| locks.meta(field, value))
    }

    /// See [`tenure::MultiLock::wait`](crate::MultiLock::wait).
    pub fn wait(self, limit: Duration) -> Self {
        self.change(|locks| locks.wait(limit))
    }

    /// The names, as given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.locks.names()
    }

    /// Waits for all locks. See [`tenure::MultiLock::acquire`](crate::MultiLock::acquire).
    pub fn acquire(&self) -> Result<MultiGuard> {
        block_on(self.locks.acquire()).map(|guard| self.guard(guard))
    }

    /// Acquires the locks if all are free. See
    /// [`tenure::MultiLock::try_acquire`](crate::MultiLock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        let guard = block_on(self.locks.try_acquire())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Runs `work` under the locks. It cannot be stopped if one is lost: check the guard, and use its
    /// fences.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](MultiLock::acquire), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if a
    /// lock was lost before the work finished.
    pub fn with<T>(&self, work: impl FnOnce(&MultiGuard) -> T) -> Result<T> {
        let guard = self.acquire()?;
        let done = work(&guard);
        if !guard.is_valid() {
            return Err(guard.guard.lost_error());
        }
        for (name, released) in guard.release()? {
            if released == Released::AlreadyGone {
                return Err(Error::lost(&name, LostReason::Gone));
            }
        }
        Ok(done)
    }

    /// Like [`with`](MultiLock::with), for work that can fail: the locks are released either way.
    ///
    /// # Errors
    ///
    /// The error of the work, or as for [`with`](MultiLock::with).
    pub fn try_with<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&MultiGuard) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with(work)?
    }

    fn change(mut self, change: impl FnOnce(crate::MultiLock) -> crate::MultiLock) -> Self {
        self.locks = change(self.locks);
        self
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard {
        MultiGuard {
            guard,
            handle: Arc::clone(&self.handle),
        }
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.locks, f)
    }
}
