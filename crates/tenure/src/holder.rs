//! Who holds a lock, and what clients say of themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lease::{ClientId, Fence, LeaseId};
use crate::name::LockName;

/// Who holds a lock, as far as the store tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The lease: what `force_release` needs.
    pub lease: LeaseId,
    /// How long the lease lasts unless it is renewed; `None` if it has no expiry and is perhaps not
    /// a lock at all.
    pub remaining: Option<Duration>,
    /// The greatest fence that was reserved for this lease, where Tenure granted it: the holder has
    /// this one, or a lower one while the lease may still be handed off.
    pub fence: Option<Fence>,
    /// What the holder wrote about this lease.
    pub meta: BTreeMap<String, String>,
    /// The client that holds it, once it has held it for half a second.
    pub client: Option<ClientRecord>,
}

/// What a client says of itself.
///
/// It lists leases that were held for half a second or longer and how many callers wait, and is
/// at most a second old.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientRecord {
    /// The client.
    pub id: ClientId,
    /// The machine it runs on.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The name that its program gave it.
    pub name: Option<String>,
    /// What its program said [about](crate::Builder::about) it.
    pub about: BTreeMap<String, String>,
    /// The version of Tenure it uses.
    pub version: String,
    /// The leases it has held for half a second or longer, and those it detached: the oldest ten
    /// thousand.
    pub leases: Vec<LeaseRecord>,
    /// How many more it holds.
    pub more_leases: u64,
    /// How many callers wait, by lock.
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
    /// The fence it was granted with.
    pub fence: Fence,
    /// How long it had been held when the record was read.
    pub held_for: Duration,
    /// The lease's length.
    pub ttl: Duration,
}

/// Who holds what, as [`Locks::list`](crate::Locks::list) found it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The locks, by name.
    pub locks: Vec<Listed>,
    /// How many leases the clients hold beyond those that they name.
    pub more_leases: u64,
}

/// A lock in a [`Listing`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The lock.
    pub name: LockName,
    /// The lease that holds it: what `force_release` needs. `None` if callers wait and the lock was
    /// free at that moment.
    pub lease: Option<LeaseId>,
    /// The fence of its holder; of one that has held it for less than half a second, the greatest
    /// that was reserved for it.
    pub fence: Option<Fence>,
    /// How long it has been held, once that is half a second.
    pub held_for: Option<Duration>,
    /// The lease's length, where Tenure granted it.
    pub ttl: Option<Duration>,
    /// How long the lease lasts unless it is renewed; `None` if it has no expiry and is perhaps not
    /// a lock at all, or if it is free.
    pub remaining: Option<Duration>,
    /// What the holder wrote about this lease.
    pub meta: BTreeMap<String, String>,
    /// The client that holds it, where it says something of itself.
    pub client: Option<Arc<ClientRecord>>,
    /// The clients in which callers wait for it. How many, each says in its
    /// [`waiting`](ClientRecord::waiting).
    pub waiters: Vec<Arc<ClientRecord>>,
}

impl Listed {
    /// How many callers wait for it, in all clients together.
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
        match &self.client {
            Some(client) => write!(f, "{client} (lease `{}`)", self.lease)?,
            None if self.lease.is_tenure() => write!(f, "lease `{}`", self.lease)?,
            None => write!(f, "`{}`, which another library wrote", self.lease)?,
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
