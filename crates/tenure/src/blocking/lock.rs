//! A named lock, for programs without an async runtime.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::block_on::block_on;
use super::guard::Guard;
use super::handle::{Handle, holds_of_this_thread};
use crate::error::{Error, Result};
use crate::holder::Holder;
use crate::order::Ordered;
use crate::standing::{LostReason, Released};

/// A named lock, as seen by the thread that uses it.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock<D = Ordered> {
    unowned: crate::Lock,
    handle: Arc<Handle>,
    of: PhantomData<fn() -> D>,
}

impl<D> Lock<D> {
    pub(super) fn new(handle: &Arc<Handle>, name: &str) -> Self {
        Self {
            unowned: handle.locks.lock_of(name),
            handle: Arc::clone(handle),
            of: PhantomData,
        }
    }

    /// See [`tenure::Lock::shared`](crate::Lock::shared). Each thread has its own lease.
    pub fn shared(self) -> Self {
        self.change(crate::Lock::shared)
    }

    /// See [`tenure::Lock::ttl`](crate::Lock::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|lock| lock.ttl(ttl))
    }

    /// See [`tenure::Lock::no_renewal`](crate::Lock::no_renewal).
    pub fn no_renewal(self) -> Self {
        self.change(crate::Lock::no_renewal)
    }

    /// See [`tenure::Lock::max_hold`](crate::Lock::max_hold).
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|lock| lock.max_hold(length))
    }

    /// See [`tenure::Lock::keep`](crate::Lock::keep).
    pub fn keep(self, time: Duration) -> Self {
        self.change(|lock| lock.keep(time))
    }

    /// See [`tenure::Lock::wait`](crate::Lock::wait).
    pub fn wait(self, limit: Duration) -> Self {
        self.change(|lock| lock.wait(limit))
    }

    /// See [`tenure::Lock::replicas`](crate::Lock::replicas).
    pub fn replicas(self, replicas: u32) -> Self {
        self.change(|lock| lock.replicas(replicas))
    }

    /// See [`tenure::Lock::meta`](crate::Lock::meta).
    pub fn meta(self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|lock| lock.meta(field, value))
    }

    /// Waits for the lock. See [`tenure::Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self) -> Result<Guard> {
        block_on(self.of_this_thread().acquire()).map(|guard| self.guard(guard))
    }

    /// Acquires the lock if it is free. See
    /// [`tenure::Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        let guard = block_on(self.of_this_thread().try_acquire())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Runs `work` under the lock. It cannot be stopped if the lock is lost: check the guard, and
    /// use its fence.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Lock::acquire), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the
    /// lock was lost before the work finished.
    pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.acquire()?;
        let done = work(&guard);
        if !guard.is_valid() {
            return Err(guard.guard.lost_error());
        }
        let name = guard.name().clone();
        match guard.release()? {
            Released::AlreadyGone => Err(Error::lost(&name, LostReason::Gone)),
            Released::WasHeld | Released::Unknown => Ok(done),
        }
    }

    /// Like [`with`](Lock::with), for work that can fail: the lock is released either way.
    ///
    /// # Errors
    ///
    /// The error of the work, or as for [`with`](Lock::with).
    pub fn try_with<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with(work)?
    }

    /// The lock's name, as given.
    pub fn name(&self) -> &str {
        self.unowned.name()
    }

    /// Returns the current holder. See [`tenure::Lock::holder`](crate::Lock::holder).
    pub fn holder(&self) -> Result<Option<Holder>> {
        block_on(self.unowned.holder())
    }

    /// Returns the current holder without its client's record. See
    /// [`tenure::Lock::holder_brief`](crate::Lock::holder_brief).
    pub fn holder_brief(&self) -> Result<Option<Holder>> {
        block_on(self.unowned.holder_brief())
    }

    /// Whether the lock is held at this moment.
    pub fn is_locked(&self) -> Result<bool> {
        block_on(self.unowned.is_locked())
    }

    fn change(mut self, change: impl FnOnce(crate::Lock) -> crate::Lock) -> Self {
        self.unowned = change(self.unowned);
        self
    }

    /// The lock as this thread may acquire it: a lock may be shared between threads, a hold may
    /// not.
    fn of_this_thread(&self) -> crate::Lock {
        self.unowned.clone().of(holds_of_this_thread(&self.handle))
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard {
            guard,
            handle: Arc::clone(&self.handle),
        }
    }
}

impl Lock {
    /// See [`tenure::Lock::fair`](crate::Lock::fair).
    pub fn fair(self) -> Self {
        self.change(crate::Lock::fair)
    }
}

impl<D> fmt::Debug for Lock<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.unowned, f)
    }
}
