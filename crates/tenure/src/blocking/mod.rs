//! The blocking API, for programs without an async runtime.
//!
//! Each thread is its own owner: acquiring a lock twice on one thread works, and the lock is free
//! when both guards are gone.
//!
//! Two things differ from the async API: settings are passed to [`Tenure::connect_with`], and
//! [`Guard::wait_lost`] replaces `lost`. Everything also works inside an async runtime, but blocks
//! the worker thread.
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

use std::fmt;
use std::time::Duration;

pub use self::block_on::block_on;
pub use self::election::{Client, Election, Leadership, Observer};
pub use self::guard::Guard;
pub use self::latch::Latch;
pub use self::lock::Lock;
pub use self::locks::Locks;
use self::locks::delegate_to_locks;
pub use self::multi_guard::MultiGuard;
pub use self::multi_lock::MultiLock;
pub use self::once::{Once, Run, Start};
pub use self::semaphore::{Permit, Semaphore};
use crate::error::Result;
use crate::holder::{ClientRecord, Listing};
use crate::lease::{ClientId, Lease, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::Released;
use crate::stats::StatsSnapshot;

mod block_on;
mod election;
mod guard;
mod handle;
mod latch;
mod lock;
mod locks;
mod multi_guard;
mod multi_lock;
mod once;
mod semaphore;

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

impl Tenure {
    /// Connects. See [`tenure::Tenure::connect`](crate::Tenure::connect).
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::connect_with(crate::Tenure::builder(url))
    }

    /// Connects with custom settings.
    pub fn connect_with(builder: crate::Builder) -> Result<Self> {
        let tenure = block_on(builder.connect())?;
        Ok(Self {
            locks: Locks::new(tenure.as_locks()),
        })
    }
}

impl Redlock {
    /// Connects. See [`tenure::Redlock::connect`](crate::Redlock::connect).
    pub fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self> {
        Self::connect_with(crate::Redlock::builder(urls))
    }

    /// Connects with custom settings.
    pub fn connect_with(builder: crate::Builder<crate::Redlock>) -> Result<Self> {
        let redlock = block_on(builder.connect())?;
        Ok(Self {
            locks: Locks::new(redlock.as_locks()),
        })
    }
}

delegate_to_locks!(Tenure, crate::Ordered);
delegate_to_locks!(Redlock, crate::Unordered);

impl Tenure {
    /// A semaphore with this name. See [`tenure::Semaphore`](crate::Semaphore).
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        self.locks.semaphore(name.as_ref(), limit)
    }

    /// A latch with this name. See [`tenure::Latch`](crate::Latch).
    pub fn latch(&self, name: impl AsRef<str>, need: u32) -> Latch {
        self.locks.latch(name.as_ref(), need)
    }

    /// One fire time of a schedule. See [`tenure::Once`](crate::Once).
    pub fn once(&self, name: impl AsRef<str>, fire_time: impl fmt::Display) -> Once {
        self.locks.once(name.as_ref(), &fire_time.to_string())
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
