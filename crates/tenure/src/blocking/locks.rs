//! What clients of every deployment can do, for programs without an async runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::block_on::block_on;
use super::election::{Client, Election};
use super::guard::Guard;
use super::handle::{Handle, holds_of_this_thread};
use super::latch::Latch;
use super::lock::Lock;
use super::multi_lock::MultiLock;
use super::once::Once;
use super::semaphore::Semaphore;
use crate::error::Result;
use crate::holder::{ClientRecord, Listing};
use crate::lease::{ClientId, Lease, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::order::Unordered;
use crate::standing::Released;
use crate::stats::StatsSnapshot;

/// The common interface of [`Tenure`](super::Tenure) and [`Redlock`](super::Redlock). See [`tenure::Locks`](crate::Locks).
///
/// Cheap to clone. When the last handle and guard are dropped, the drop waits at most a second for
/// releases in flight, so that a program can drop its guards and exit.
#[derive(Clone)]
pub struct Locks {
    handle: Arc<Handle>,
}

impl Locks {
    pub(super) fn new(locks: &crate::Locks) -> Self {
        Self {
            handle: Arc::new(Handle {
                locks: locks.clone(),
            }),
        }
    }

    /// A lock with this name. Any thread that acquires it can re-enter it.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock<Unordered> {
        self.lock_of(name.as_ref())
    }

    pub(super) fn lock_of<D>(&self, name: &str) -> Lock<D> {
        Lock::new(&self.handle, name)
    }

    /// Several locks that are acquired together. They have no owner: a thread that already holds one
    /// of them waits for itself. See [`tenure::Locks::locks`](crate::Locks::locks).
    pub fn locks<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock {
            locks: self.handle.locks.locks(names),
            handle: Arc::clone(&self.handle),
        }
    }

    /// An election with this name. See [`tenure::Election`](crate::Election).
    pub fn election(&self, name: impl AsRef<str>) -> Election<Self> {
        self.election_of(name.as_ref())
    }

    pub(super) fn election_of<T: Client>(&self, name: &str) -> Election<T> {
        Election::new(&self.handle, name)
    }

    pub(super) fn semaphore(&self, name: &str, limit: u32) -> Semaphore {
        Semaphore::new(&self.handle, name, limit)
    }

    pub(super) fn latch(&self, name: &str, need: u32) -> Latch {
        Latch::new(&self.handle, name, need)
    }

    pub(super) fn once(&self, schedule: &str, fire_time: &str) -> Once {
        Once::new(&self.handle, schedule, fire_time)
    }

    /// Adopts a detached lease. See [`tenure::Locks::adopt`](crate::Locks::adopt).
    pub fn adopt(&self, lease: &Lease) -> Result<Guard> {
        let holds = holds_of_this_thread(&self.handle);
        let guard = block_on(self.handle.locks.adopt_as(Some(holds), lease))?;
        Ok(Guard {
            guard,
            handle: Arc::clone(&self.handle),
        })
    }

    /// Renews a detached lease. See [`tenure::Locks::renew`](crate::Locks::renew).
    pub fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Moment> {
        block_on(self.handle.locks.renew(lease, ttl))
    }

    /// Releases a detached lease. See [`tenure::Locks::release`](crate::Locks::release).
    pub fn release(&self, lease: &Lease) -> Result<Released> {
        block_on(self.handle.locks.release(lease))
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

    /// The records of all clients of this store. See
    /// [`tenure::Locks::clients`](crate::Locks::clients).
    pub fn clients(&self) -> Result<Vec<ClientRecord>> {
        block_on(self.handle.locks.clients())
    }

    /// Releases everything held. See [`tenure::Locks::shutdown`](crate::Locks::shutdown).
    pub fn shutdown(&self, limit: Duration) -> Vec<Lease> {
        block_on(self.handle.locks.shutdown(limit))
    }

    /// Counters of this client.
    pub fn stats(&self) -> StatsSnapshot {
        self.handle.locks.stats()
    }

    /// The client's identity, which is part of its lease ids and its record.
    pub fn id(&self) -> ClientId {
        self.handle.locks.id()
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.handle.locks, f)
    }
}

/// Gives a client the methods of the [`Locks`] in its field `locks`.
macro_rules! delegate_to_locks {
    ($client:ty, $order:ty) => {
        impl $client {
            /// The part of this client that is the same for every deployment.
            pub fn as_locks(&self) -> &Locks {
                &self.locks
            }

            /// A lock with this name. Any thread that acquires it can re-enter it.
            pub fn lock(&self, name: impl AsRef<str>) -> Lock<$order> {
                self.locks.lock_of(name.as_ref())
            }

            /// Several locks that are acquired together. See
            /// [`tenure::Locks::locks`](crate::Locks::locks).
            pub fn locks<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
                self.locks.locks(names)
            }

            /// An election with this name. See [`tenure::Election`](crate::Election).
            pub fn election(&self, name: impl AsRef<str>) -> Election<$client> {
                self.locks.election_of(name.as_ref())
            }

            /// Turns a detached lease into a guard. See
            /// [`tenure::Locks::adopt`](crate::Locks::adopt).
            pub fn adopt(&self, lease: &Lease) -> Result<Guard> {
                self.locks.adopt(lease)
            }

            /// Renews a detached lease. See [`tenure::Locks::renew`](crate::Locks::renew).
            pub fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Moment> {
                self.locks.renew(lease, ttl)
            }

            /// Releases a detached lease. See [`tenure::Locks::release`](crate::Locks::release).
            pub fn release(&self, lease: &Lease) -> Result<Released> {
                self.locks.release(lease)
            }

            /// Ends another client's lease. See
            /// [`tenure::Locks::force_release`](crate::Locks::force_release).
            pub fn force_release(&self, name: impl AsRef<str>, id: &LeaseId) -> Result<Released> {
                self.locks.force_release(name, id)
            }

            /// Lists locks with their holders. See [`tenure::Locks::list`](crate::Locks::list).
            pub fn list(
                &self,
                wanted: impl Fn(&LockName) -> bool + Send + Sync + 'static,
            ) -> Result<Listing> {
                self.locks.list(wanted)
            }

            /// The records of all clients. See [`tenure::Locks::clients`](crate::Locks::clients).
            pub fn clients(&self) -> Result<Vec<ClientRecord>> {
                self.locks.clients()
            }

            /// Releases everything held. See [`tenure::Locks::shutdown`](crate::Locks::shutdown).
            pub fn shutdown(&self, limit: Duration) -> Vec<Lease> {
                self.locks.shutdown(limit)
            }

            /// Counters of this client.
            pub fn stats(&self) -> StatsSnapshot {
                self.locks.stats()
            }

            /// The client's identity, which is part of its lease ids and its record.
            pub fn id(&self) -> ClientId {
                self.locks.id()
            }
        }

        impl AsRef<Locks> for $client {
            fn as_ref(&self) -> &Locks {
                &self.locks
            }
        }
    };
}
pub(super) use delegate_to_locks;
