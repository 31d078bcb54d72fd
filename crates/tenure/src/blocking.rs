//! The same for programs without an async runtime.
//!
//! Each thread is an owner of its own: taking a lock twice on one thread just works, and the lock
//! is free when both guards are gone.
//!
//! Two things differ from the async side: settings go through [`Tenure::connect_with`], and
//! [`Guard::wait_lost`] stands for `lost`. Called inside an async runtime, all of it works and
//! blocks the worker.
//!
//! ```
//! use tenure::blocking::Tenure;
//!
//! # fn main() -> Result<(), tenure::Error> {
//! let tenure = Tenure::connect("memory://")?;
//! let guard = tenure.lock("order:1001").acquire()?;
//! println!("fence {}", guard.fence());
//! guard.release()?;
//! # Ok(()) }
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use crate::block_on::block_on;
use crate::error::{Error, Result};
use crate::holder::{ClientRecord, Holder, Listing};
use crate::holds::Holds;
use crate::lease::{ClientId, Lease, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::{LostReason, Released};
use crate::stats::StatsSnapshot;

/// How long the last handle waits for releases that are on their way.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// This thread as an owner, for each client it has used.
    static OWNERS: RefCell<HashMap<ClientId, ThreadOwner>> = RefCell::default();
}

/// What this thread holds of one client. It does not keep the client alive.
struct ThreadOwner {
    handle: Weak<Handle>,
    holds: Arc<Holds>,
}

/// What [`Tenure`] and [`Redlock`] have in common. See [`tenure::Locks`](crate::Locks).
///
/// Cheap to clone. When the last handle and guard are gone, it waits at most a second for releases
/// that are still on their way, so that a program may drop its guards and end.
#[derive(Clone)]
pub struct Locks {
    handle: Arc<Handle>,
}

/// A client of one store, for programs without an async runtime.
#[derive(Clone)]
pub struct Tenure {
    locks: Locks,
}

/// A client of several independent servers, for programs without an async runtime.
#[derive(Clone)]
pub struct Redlock {
    locks: Locks,
}

/// A lock of some name, as seen from the thread that asked for it.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    lock: crate::Lock,
    handle: Arc<Handle>,
}

/// A held lock. See [`tenure::Guard`](crate::Guard), whose answers it gives too.
#[must_use = "if unused, the lock is released at once"]
pub struct Guard {
    // Before `handle`, so that its release is on its way when the handle waits for it.
    guard: crate::Guard,
    handle: Arc<Handle>,
}

struct Handle {
    locks: crate::Locks,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.locks.core().pending.wait_blocking(FAREWELL_MAX);
    }
}

impl Tenure {
    /// Connects. See [`tenure::Tenure::connect`](crate::Tenure::connect).
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::connect_with(crate::Tenure::builder(url))
    }

    /// Connects with other settings than the default ones.
    pub fn connect_with(builder: crate::Builder) -> Result<Self> {
        let tenure = block_on(builder.connect())?;
        Ok(Self {
            locks: Locks::new(&tenure),
        })
    }
}

impl Redlock {
    /// Connects. See [`tenure::Redlock::connect`](crate::Redlock::connect).
    pub fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self> {
        Self::connect_with(crate::Redlock::builder(urls))
    }

    /// Connects with other settings than the default ones.
    pub fn connect_with(builder: crate::Builder<crate::Redlock>) -> Result<Self> {
        let redlock = block_on(builder.connect())?;
        Ok(Self {
            locks: Locks::new(&redlock),
        })
    }
}

impl Locks {
    fn new(locks: &crate::Locks) -> Self {
        Self {
            handle: Arc::new(Handle {
                locks: locks.clone(),
            }),
        }
    }

    /// A lock of this name. Whichever thread acquires it may re-enter it.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock {
            lock: self.handle.locks.lock(name),
            handle: Arc::clone(&self.handle),
        }
    }

    /// Takes up a detached lease. See [`tenure::Locks::adopt`](crate::Locks::adopt).
    pub fn adopt(&self, lease: Lease) -> Result<Guard> {
        let holds = holds_of_this_thread(&self.handle);
        let guard = block_on(self.handle.locks.adopt_as(Some(holds), lease))?;
        Ok(Guard {
            guard,
            handle: Arc::clone(&self.handle),
        })
    }

    /// Gives a detached lease `ttl` again. See [`tenure::Locks::renew`](crate::Locks::renew).
    pub fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Moment> {
        block_on(self.handle.locks.renew(lease, ttl))
    }

    /// Lets go of a detached lease. See [`tenure::Locks::release`](crate::Locks::release).
    pub fn release(&self, name: impl AsRef<str>, id: &LeaseId) -> Result<Released> {
        block_on(self.handle.locks.release(name, id))
    }

    /// Ends another client's lease. See
    /// [`tenure::Locks::force_release`](crate::Locks::force_release).
    pub fn force_release(&self, name: impl AsRef<str>, id: &LeaseId) -> Result<Released> {
        block_on(self.handle.locks.force_release(name, id))
    }

    /// Lists locks with their holders. See [`tenure::Locks::list`](crate::Locks::list).
    pub fn list(
        &self,
        wanted: impl Fn(&LockName) -> bool + Send + Sync + 'static,
    ) -> Result<Listing> {
        block_on(self.handle.locks.list(wanted))
    }

    /// What the clients of this store say of themselves. See
    /// [`tenure::Locks::clients`](crate::Locks::clients).
    pub fn clients(&self) -> Result<Vec<ClientRecord>> {
        block_on(self.handle.locks.clients())
    }

    /// Releases everything held. See [`tenure::Locks::shutdown`](crate::Locks::shutdown).
    pub fn shutdown(&self, limit: Duration) -> Vec<Lease> {
        block_on(self.handle.locks.shutdown(limit))
    }

    /// What this client has counted.
    pub fn stats(&self) -> StatsSnapshot {
        self.handle.locks.stats()
    }

    /// The identity of this client, which its leases and its record carry.
    pub fn id(&self) -> ClientId {
        self.handle.locks.id()
    }
}

impl Lock {
    /// See [`tenure::Lock::ttl`](crate::Lock::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|lock| lock.ttl(ttl))
    }

    /// See [`tenure::Lock::fixed`](crate::Lock::fixed).
    pub fn fixed(self, length: Duration) -> Self {
        self.change(|lock| lock.fixed(length))
    }

    /// See [`tenure::Lock::max_hold`](crate::Lock::max_hold).
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|lock| lock.max_hold(length))
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

    /// Waits for at most `limit`. See [`tenure::Lock::acquire_within`](crate::Lock::acquire_within).
    pub fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        block_on(self.of_this_thread().acquire_within(limit)).map(|guard| self.guard(guard))
    }

    /// Takes the lock if it is free. See [`tenure::Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        let guard = block_on(self.of_this_thread().try_acquire())?;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Does `work` under the lock. Nothing can stop it when the lock is lost: ask the guard, and
    /// show its fence.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Lock::acquire), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the
    /// lock was lost before the work was done.
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

    /// The name that was given.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Who holds the lock. See [`tenure::Lock::holder`](crate::Lock::holder).
    pub fn holder(&self) -> Result<Option<Holder>> {
        block_on(self.lock.holder())
    }

    /// Who holds the lock, without its client. See [`tenure::Lock::glance`](crate::Lock::glance).
    pub fn glance(&self) -> Result<Option<Holder>> {
        block_on(self.lock.glance())
    }

    /// Whether the lock is held at this moment.
    pub fn is_locked(&self) -> Result<bool> {
        block_on(self.lock.is_locked())
    }

    fn change(mut self, change: impl FnOnce(crate::Lock) -> crate::Lock) -> Self {
        self.lock = change(self.lock);
        self
    }

    /// The lock as this thread may take it: a lock may be shared by threads, a hold may not.
    fn of_this_thread(&self) -> crate::Lock {
        self.lock.clone().of(holds_of_this_thread(&self.handle))
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard {
            guard,
            handle: Arc::clone(&self.handle),
        }
    }
}

impl Guard {
    /// Makes sure that at least `need` is left. See [`tenure::Guard::ensure`](crate::Guard::ensure).
    pub fn ensure(&self, need: Duration) -> Result<()> {
        block_on(self.guard.ensure(need))
    }

    /// Blocks until the lock is no longer held. See [`tenure::Guard::lost`](crate::Guard::lost).
    pub fn wait_lost(&self) -> LostReason {
        block_on(self.guard.lost())
    }

    /// Lets go of the lock. See [`tenure::Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<Released> {
        block_on(self.guard.release())
    }

    /// Gives the lease away, unrenewed. See [`tenure::Guard::detach`](crate::Guard::detach).
    pub fn detach(self) -> Result<Lease> {
        let Self { guard, handle } = self;
        let lease = guard.detach();
        drop(handle);
        lease
    }

    /// Gives the lease away with this much time left. See
    /// [`tenure::Guard::detach_for`](crate::Guard::detach_for).
    pub fn detach_for(self, rest: Duration) -> Result<Lease> {
        let Self { guard, handle } = self;
        let lease = block_on(guard.detach_for(rest));
        drop(handle);
        lease
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}

impl Deref for Tenure {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}

impl Deref for Redlock {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.handle.locks, f)
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tenure").field(&self.locks).finish()
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redlock").field(&self.locks).finish()
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.lock, f)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}

/// What this thread holds of a client.
fn holds_of_this_thread(handle: &Arc<Handle>) -> Arc<Holds> {
    let holds = OWNERS.try_with(|owners| {
        let mut owners = owners.borrow_mut();
        // Of clients that are gone: nothing else would remove them.
        owners.retain(|_, owner| owner.handle.strong_count() > 0);
        let owner = owners.entry(handle.locks.id());
        let owner = owner.or_insert_with(|| ThreadOwner {
            handle: Arc::downgrade(handle),
            holds: Arc::default(),
        });
        Arc::clone(&owner.holds)
    });
    // A thread that is ending has no such memory any more: it is a new owner each time.
    holds.unwrap_or_default()
}
