//! The holder of a lock, and the records that clients keep about themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::{ClientId, Fence, LeaseId};
use crate::name::LockName;

/// The holder of a lock, as far as the store knows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The lease id, which `force_release` needs. If readers [share](crate::Lock::shared) the lock, this
    /// is in place of their ids: see [`reader_leases`](Holder::reader_leases).
    pub lease: LeaseId,
    /// The time until the lease expires unless it is renewed; `None` if the key has no expiry, in
    /// which case it may not be a lock at all.
    pub remaining: Option<Duration>,
    /// The fence of this lease, if Tenure granted it: known once its client has held it for half a
    /// second. If the lock has a fence counter of its own, the greatest fence reserved for the lease
    /// is known before: the holder has that one, or a lower one while the lease can still be handed
    /// off.
    pub fence: Option<Fence>,
    /// The metadata of the lease.
    pub meta: BTreeMap<String, String>,
    /// Whether nobody holds the lock: its client [keeps](crate::Lock::keep) the lease, and lets it go
    /// if asked. Known once it was kept for half a second, and only to [`Lock::holder`](crate::Lock::holder).
    pub kept: bool,
    /// The client that holds it, once it has held it for half a second. If readers share the lock, the
    /// client of one of them.
    pub client: Option<ClientRecord>,
    /// How many leases share the lock; 0 if one lease holds it alone, or if the number is not known.
    pub readers: u64,
    /// The leases that share the lock, or have permits of the [semaphore](crate::Semaphore): those that
    /// end last, at most a hundred.
    pub reader_leases: Vec<LeaseId>,
    /// The slots of each of these, if this is a semaphore.
    pub slots: BTreeMap<LeaseId, Slots>,
}

/// The numbers of the slots that a lease has; none for the lease of a lock.
pub type Slots = Box<[u32]>;

impl Holder {
    /// The fence that its client tells.
    pub(crate) fn recorded_fence(&self) -> Option<Fence> {
        let leases = self.client.iter().flat_map(|client| &client.leases);
        let mut told = leases.filter(|told| told.lease == self.lease);
        told.next().map(|told| told.fence)
    }
}

/// A client's record.
///
/// It lists the leases held for at least half a second and how many callers wait. It is at most a
/// second old.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientRecord {
    /// The client's id.
    pub id: ClientId,
    /// The host it runs on.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// The name that its program set.
    pub name: Option<String>,
    /// What its program [added](crate::Builder::about).
    pub about: BTreeMap<String, String>,
    /// The Tenure version it uses.
    pub version: String,
    /// The leases it has held for at least half a second, and those it detached: the oldest ten
    /// thousand.
    pub leases: Vec<LeaseRecord>,
    /// How many leases it holds beyond those.
    pub more_leases: u64,
    /// The number of waiting callers, by lock.
    pub waiting: BTreeMap<String, u64>,
}

/// A lease in a [`ClientRecord`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseRecord {
    /// The lock.
    pub name: LockName,
    /// The lease.
    pub lease: LeaseId,
    /// The fence of the grant.
    pub fence: Fence,
    /// How long it had been held when the record was read.
    pub held_for: Duration,
    /// The lease duration.
    pub ttl: Duration,
    /// Whether the client [keeps](crate::Lock::keep) it while none of its callers holds the lock.
    pub kept: bool,
}

/// Holders and waiters, as found by [`Locks::list`](crate::Locks::list).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The locks, by name.
    pub locks: Vec<Listed>,
    /// How many leases the clients hold beyond those they list.
    pub more_leases: u64,
}

/// A lock in a [`Listing`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The lock.
    pub name: LockName,
    /// The lease that holds it, which `force_release` needs. `None` if the lock was free at that
    /// moment but has waiters.
    pub lease: Option<LeaseId>,
    /// The fence of the holder. For a holder of less than half a second, the greatest fence
    /// reserved for it.
    pub fence: Option<Fence>,
    /// How long it has been held, once that is at least half a second.
    pub held_for: Option<Duration>,
    /// The lease duration, if Tenure granted it.
    pub ttl: Option<Duration>,
    /// The time until the lease expires unless it is renewed; `None` if the lock is free, or if the
    /// key has no expiry, in which case it may not be a lock at all.
    pub remaining: Option<Duration>,
    /// Whether nobody holds the lock: its client [keeps](crate::Lock::keep) the lease, and lets it go
    /// if asked. Known once it was kept for half a second.
    pub kept: bool,
    /// The metadata of the lease.
    pub meta: BTreeMap<String, String>,
    /// The record of the client that holds it, if there is one. If readers share the lock, the client of
    /// the one that has held it longest.
    pub client: Option<Arc<ClientRecord>>,
    /// How many leases [share](crate::Lock::shared) the lock, or have permits of the semaphore; 0 if one
    /// lease holds it alone.
    pub readers: u64,
    /// The slots of the leases of a [semaphore](crate::Semaphore): of those that end last, at most a
    /// hundred leases.
    pub slots: BTreeMap<LeaseId, Slots>,
    /// The records of the clients that have waiters for it. [`waiting`](ClientRecord::waiting) has
    /// the number for each.
    pub waiters: Vec<Arc<ClientRecord>>,
}

impl Listed {
    /// The number of callers that wait for it, over all clients.
    pub fn waiting(&self) -> u64 {
        let of_client =
            |client: &Arc<ClientRecord>| client.waiting.get(self.name.as_str()).copied();
        let counts = self.waiters.iter().filter_map(of_client);
        // A record can contain anything.
        counts.fold(0, u64::saturating_add)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((need, is_open)) = self.lease.latch() {
            let open = if is_open { "an open" } else { "a closed" };
            return write!(f, "{open} latch of `{need}` parties");
        }
        let stands_for_several = self.lease.is_phase() || self.lease.semaphore_limit().is_some();
        match (self.lease.semaphore_limit(), self.readers) {
            (Some(limit), 0) => write!(f, "all permits of `{limit}`")?,
            (Some(limit), count) => write!(f, "{count} leases of its `{limit}` permits")?,
            (None, _) if !stands_for_several => {}
            (None, 0) => f.write_str("readers")?,
            (None, 1) => f.write_str("one reader")?,
            (None, count) => write!(f, "{count} readers")?,
        }
        match &self.client {
            Some(client) if stands_for_several => write!(f, ", among them {client}")?,
            None if stands_for_several => {}
            Some(client) => write!(f, "{client} (lease `{}`)", self.lease)?,
            None if self.lease.is_tenure() => write!(f, "lease `{}`", self.lease)?,
            None => write!(f, "`{}` (written by another library)", self.lease)?,
        }
        if self.kept {
            f.write_str(", kept and not in use")?;
        }
        match self.remaining {
            Some(left) => write!(f, ", for {left:.1?} more unless renewed"),
            None => f.write_str(", held without expiry, perhaps not a lock"),
        }
    }
}

impl fmt::Display for ClientRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} at ")?;
        }
        write!(f, "{}, process {}", self.host, self.pid)
    }
}
