//! What clients of every deployment can do: locks, owners, and listings of holders.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client_handle::ClientHandle;
use crate::election::Election;
use crate::engine::release::{self, ReleaseRequest};
use crate::engine::{adopt, list, renew_detached, retry};
use crate::error::Result;
use crate::guard::Guard;
use crate::holder::{ClientRecord, Listing};
use crate::holds::Holds;
use crate::latch::Latch;
use crate::lease::{ClientId, Lease, LeaseId, check_ttl};
use crate::lock::Lock;
use crate::moment::Moment;
use crate::multi_lock::MultiLock;
use crate::name::LockName;
use crate::once::Once;
use crate::order::Unordered;
use crate::owner::Owner;
use crate::semaphore::Semaphore;
use crate::standing::Released;
use crate::stats::StatsSnapshot;
use crate::store::LeaseSpec;
use crate::timings::TimingsSnapshot;

/// The common interface of [`Tenure`](crate::Tenure) and [`Redlock`](crate::Redlock), for code that
/// works with either: [`Tenure::as_locks`](crate::Tenure::as_locks) returns it. Cheap to clone; all clones share one client.
///
/// ```
/// use tenure::{Locks, Tenure};
///
/// async fn nightly(locks: &Locks) -> Result<(), tenure::Error> {
///     let guard = locks.lock("nightly").acquire().await?;
///     guard.release().await?;
///     Ok(())
/// }
///
/// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
/// let tenure = Tenure::connect("memory://").await?;
/// nightly(tenure.as_locks()).await
/// # }) }
/// ```
#[derive(Clone)]
pub struct Locks {
    client: Arc<ClientHandle>,
    /// The shared leases that callers of this process can join.
    readers: Arc<Holds>,
}

impl Locks {
    pub(crate) fn new(client: Arc<ClientHandle>) -> Self {
        Self {
            client,
            readers: Arc::new(Holds::of_readers()),
        }
    }

    /// A lock with this name. Each acquisition is independent: acquiring a lock that this program
    /// already holds waits for that guard, forever if the waiting task is the one that holds it. To
    /// re-enter a lock, acquire it through an [`owner`](Locks::owner).
    pub fn lock(&self, name: impl AsRef<str>) -> Lock<Unordered> {
        self.lock_of(name.as_ref())
    }

    /// The same as a client of this kind offers it.
    pub(crate) fn lock_of<D>(&self, name: &str) -> Lock<D> {
        let readers = Some(Arc::clone(&self.readers));
        Lock::new(Arc::clone(&self.client), name, None).joining(readers)
    }

    /// An election with this name: a lock with a value, a term and observers.
    ///
    /// [`Tenure::election`](crate::Tenure::election) knows the candidates too, which not every
    /// deployment does.
    pub fn election(&self, name: impl AsRef<str>) -> Election<Self> {
        self.election_of(name.as_ref())
    }

    /// The same as a client of this kind offers it.
    pub(crate) fn election_of<T>(&self, name: &str) -> Election<T> {
        Election::new(Arc::clone(&self.client), name)
    }

    /// A semaphore with this name. Not every deployment has semaphores, so this is offered by
    /// [`Tenure::semaphore`](crate::Tenure::semaphore).
    pub(crate) fn semaphore(&self, name: &str, limit: u32) -> Semaphore {
        Semaphore::new(&self.client, name, limit)
    }

    /// A latch with this name. Not every deployment has latches, so this is offered by
    /// [`Tenure::latch`](crate::Tenure::latch).
    pub(crate) fn latch(&self, name: &str, need: u32) -> Latch {
        Latch::new(&self.client, name, need)
    }

    /// One fire time of a schedule. Not every deployment remembers runs, so this is offered by
    /// [`Tenure::once`](crate::Tenure::once).
    pub(crate) fn once(&self, schedule: &str, fire_time: &str) -> Once {
        Once::new(&self.client, schedule, fire_time)
    }

    /// Several locks that are acquired together, all of them or none: at most
    /// [`NAMES_MAX`](crate::NAMES_MAX) names, each given once, in any order.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let guard = tenure.locks(["account:1", "account:2"]).acquire().await?;
    /// for (name, fence) in guard.fences() {
    ///     println!("{name}: {fence}");
    /// }
    /// assert!(tenure.lock("account:2").try_acquire().await?.is_none());
    /// guard.release().await?;
    /// # Ok(()) }) }
    /// ```
    ///
    /// On one server all names are acquired in one step and one round trip, so no client ever finds
    /// only some of them held by a call that did not have to wait. In a cluster that is so for names in
    /// the same slot. Over several slots, in Redisson's layout and with a
    /// [`Redlock`](crate::Redlock), they are acquired one by one, in an order that is the same for all
    /// clients.
    pub fn locks<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::new(Arc::clone(&self.client), names)
    }

    /// A new owner, which can re-enter the locks it holds.
    pub fn owner(&self) -> Owner<Unordered> {
        self.owner_of()
    }

    /// The same as a client of this kind offers it.
    pub(crate) fn owner_of<D>(&self) -> Owner<D> {
        Owner::new(Arc::clone(&self.client))
    }

    /// Adopts a [detached](Guard::detach) lease, from this or another process. From then on it is
    /// renewed, even if it was not before, and has a new id, so that it cannot be adopted twice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease has expired or has already been
    /// adopted.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the lease: if it was already adopted, it is released.
    pub async fn adopt(&self, lease: &Lease) -> Result<Guard> {
        self.adopt_as(None, lease).await
    }

    pub(crate) async fn adopt_as(&self, owner: Option<Arc<Holds>>, lease: &Lease) -> Result<Guard> {
        let lease = lease.clone();
        // Before checking that the client is open: a shutdown either waits for this or is
        // noticed.
        let pending = self.client.core.pending.begin();
        self.client.check_open()?;
        let client = Arc::clone(&self.client);
        let adopting = async move { adopt::adopt(client, owner, lease, pending).await };
        self.client.engine.run(adopting).await?
    }

    /// Renews a [detached](Guard::detach) lease once: it lasts for `ttl` from now. It keeps its id,
    /// so any other process that has the lease can still renew or adopt it. Returns the new
    /// deadline: the moment until which the lease can be relied on.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure::{Lease, Tenure};
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = Tenure::connect("memory://").await?;
    /// let lease: Lease = tenure.lock("report").acquire().await?.detach()?;
    /// // Later, perhaps in another process:
    /// let until = tenure.renew(&lease, Duration::from_secs(60)).await?;
    /// # let _ = until;
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease has expired or has been adopted.
    /// After [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) it may or may not have been
    /// renewed: rely on the earlier deadline.
    ///
    /// # Cancel safety
    ///
    /// Once started, a renewal continues in the background.
    pub async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Moment> {
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let ttl = check_ttl("ttl", ttl)?;
        core.settings.check_longest(ttl)?;
        core.settings.check_pause(ttl)?;
        let lease = lease.clone();
        let renewing = async move { renew_detached::renew(&core, lease, ttl).await };
        self.client.engine.run(renewing).await?
    }

    /// Releases a [detached](Guard::detach) lease, from this or another process, and reports
    /// whether it was still held. It does for a detached lease what [`Guard::release`] does for a
    /// guard.
    ///
    /// ```
    /// # use tenure::{Lease, Released, Tenure};
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = Tenure::connect("memory://").await?;
    /// let lease: Lease = tenure.lock("report").acquire().await?.detach()?;
    /// // Later, perhaps in another process:
    /// assert_eq!(tenure.release(&lease).await?, Released::WasHeld);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`]. It is not an error if the lease had already ended or another
    /// lease holds the lock: the result is [`Released::AlreadyGone`].
    ///
    /// # Cancel safety
    ///
    /// The release continues in the background.
    pub async fn release(&self, lease: &Lease) -> Result<Released> {
        self.client.check_open()?;
        let core = &self.client.core;
        let known = core.detached.remove(&lease.name, &lease.id);
        core.record_changed.notify_one();
        let ttl = lease.ttl;
        let ends_before = core.clock.now() + ttl + ttl / 10;
        let held = LeaseSpec {
            has_meta: known.as_ref().is_none_or(|lease| lease.has_meta),
            ..LeaseSpec::new(lease.name.clone(), lease.id.clone(), ttl)
        };
        let ends_before = known.map_or(ends_before, |lease| lease.ends_at.max(ends_before));
        self.client
            .release_lease(ReleaseRequest::of(held, ends_before))
            .await
    }

    /// Ends another client's lease, for administrators. The holder is notified at once if it has
    /// held the lock for at least a second, and otherwise at its next renewal.
    ///
    /// It takes the lease's id, as shown by [`Lock::holder`], so that it cannot end the lease of a
    /// later holder.
    ///
    /// # Errors
    ///
    /// If the store refuses the request. It is not an error if another lease holds the lock: the
    /// result is [`Released::AlreadyGone`], and nothing is changed. Nor is it an error if the
    /// server cannot be reached: the result is [`Released::Unknown`], and there is no retry.
    ///
    /// # Cancel safety
    ///
    /// The release continues in the background.
    pub async fn force_release(&self, name: impl AsRef<str>, id: &LeaseId) -> Result<Released> {
        let ttl = id.ttl().unwrap_or(self.client.core.settings.ttl);
        let name = self.client.core.settings.allowed(LockName::new(name)?)?;
        let held = LeaseSpec::new(name, id.clone(), ttl);
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        core.detached.remove(&held.name, &held.id);
        let until = core.clock.now() + core.settings.unreachable_after;
        core.release_started(&held.name);
        let pending = core.pending.begin();
        let releasing = async move {
            let _pending = pending;
            release::release(&core, &ReleaseRequest::of(held, until)).await
        };
        self.client.engine.run(releasing).await?
    }

    /// Lists the locks whose names match `wanted`, with their holders and waiter counts. The names
    /// come from the [client records](Locks::clients); the state of each lock is read from the
    /// store. Leases that a dead client's record still lists are left out once they have expired.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let listing = tenure.list(|name| name.as_str().starts_with("order:")).await?;
    /// for lock in listing.locks {
    ///     println!("{} has {} waiting", lock.name, lock.waiting());
    /// }
    /// # Ok(()) }) }
    /// ```
    ///
    /// It lists locks that have been held for at least half a second, and locks that have waiters,
    /// regardless of the holder. A client's record also lists leases that it
    /// [detached](Guard::detach) or [renewed](Locks::renew): at most ten thousand, and for an hour
    /// after the client itself has ended. Other locks taken by other libraries are not listed: look
    /// those up by name, with [`Lock::holder`]. It reads only the records and the locks that they
    /// name, never the whole keyspace, so unrelated keys cost nothing.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached or refuses the request.
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn list(
        &self,
        wanted: impl Fn(&LockName) -> bool + Send + Sync + 'static,
    ) -> Result<Listing> {
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let listing = async move {
            let list = |limit| list::list(&core, &wanted, limit);
            retry::read(&core, list).await
        };
        self.client.engine.run(listing).await?
    }

    /// The records of all clients of this store: identity, leases and waiters.
    ///
    /// A record lists leases held for at least half a second. Locks taken by other libraries are
    /// not listed: look those up by name, with [`Lock::holder`].
    ///
    /// # Errors
    ///
    /// If the store cannot be reached or refuses the request.
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    #[doc(alias = "holders")]
    pub async fn clients(&self) -> Result<Vec<ClientRecord>> {
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let reading = async move {
            let read = |limit| list::clients(&core, limit);
            retry::read(&core, read).await
        };
        self.client.engine.run(reading).await?
    }

    /// Releases everything this client holds, ends all waits, and returns the leases that could not
    /// be released within `limit`. Guards are lost with
    /// [`LostReason::Shutdown`](crate::LostReason::Shutdown), and further calls fail with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// # Cancel safety
    ///
    /// Once polled, the shutdown continues in the background.
    pub async fn shutdown(&self, limit: Duration) -> Vec<Lease> {
        let core = Arc::clone(&self.client.core);
        let closing = async move { core.shut_down(limit).await };
        self.client.engine.run(closing).await.unwrap_or_default()
    }

    /// Counters of this client since it connected.
    pub fn stats(&self) -> StatsSnapshot {
        self.client.core.stats.snapshot()
    }

    /// Timings of this client since the first call of this method. Nothing is measured before that,
    /// so that clients without metrics pay nothing.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// for calls in tenure.timings().calls {
    ///     let (count, sum) = (calls.took.count(), calls.took.sum());
    ///     println!("{} {} {}: {count} in {sum:?}", calls.node, calls.call, calls.outcome);
    /// }
    /// # Ok(()) }) }
    /// ```
    pub fn timings(&self) -> TimingsSnapshot {
        self.client.core.stats.timings.snapshot()
    }

    /// The client's identity, which is part of its lease ids and its record.
    pub fn id(&self) -> ClientId {
        self.client.core.id
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn core(&self) -> &Arc<crate::core::Core> {
        &self.client.core
    }
}

/// Gives a client the methods of the [`Locks`] in its field `locks`.
macro_rules! delegate_to_locks {
    ($client:ty, $order:ty) => {
        impl $client {
            /// The part of this client that is the same for every deployment, for code that works
            /// with any.
            pub fn as_locks(&self) -> &$crate::Locks {
                &self.locks
            }

            /// A lock with this name. See [`Locks::lock`](crate::Locks::lock).
            pub fn lock(&self, name: impl AsRef<str>) -> $crate::Lock<$order> {
                self.locks.lock_of(name.as_ref())
            }

            /// An election with this name. See [`Election`](crate::Election).
            pub fn election(&self, name: impl AsRef<str>) -> $crate::Election<$client> {
                self.locks.election_of(name.as_ref())
            }

            /// Several locks that are acquired together. See
            /// [`Locks::locks`](crate::Locks::locks).
            pub fn locks<N: AsRef<str>>(
                &self,
                names: impl IntoIterator<Item = N>,
            ) -> $crate::MultiLock {
                self.locks.locks(names)
            }

            /// A new owner, which can re-enter the locks it holds. See
            /// [`Locks::owner`](crate::Locks::owner).
            pub fn owner(&self) -> $crate::Owner<$order> {
                self.locks.owner_of()
            }

            /// Turns a detached lease into a guard. See [`Locks::adopt`](crate::Locks::adopt).
            pub async fn adopt(&self, lease: &$crate::Lease) -> $crate::Result<$crate::Guard> {
                self.locks.adopt(lease).await
            }

            /// Renews a detached lease. See [`Locks::renew`](crate::Locks::renew).
            pub async fn renew(
                &self,
                lease: &$crate::Lease,
                ttl: std::time::Duration,
            ) -> $crate::Result<$crate::Moment> {
                self.locks.renew(lease, ttl).await
            }

            /// Releases a detached lease. See [`Locks::release`](crate::Locks::release).
            pub async fn release(&self, lease: &$crate::Lease) -> $crate::Result<$crate::Released> {
                self.locks.release(lease).await
            }

            /// Ends another client's lease. See
            /// [`Locks::force_release`](crate::Locks::force_release).
            pub async fn force_release(
                &self,
                name: impl AsRef<str>,
                id: &$crate::LeaseId,
            ) -> $crate::Result<$crate::Released> {
                self.locks.force_release(name, id).await
            }

            /// Lists locks with their holders. See [`Locks::list`](crate::Locks::list).
            pub async fn list(
                &self,
                wanted: impl Fn(&$crate::LockName) -> bool + Send + Sync + 'static,
            ) -> $crate::Result<$crate::Listing> {
                self.locks.list(wanted).await
            }

            /// The records of all clients. See [`Locks::clients`](crate::Locks::clients).
            pub async fn clients(&self) -> $crate::Result<Vec<$crate::ClientRecord>> {
                self.locks.clients().await
            }

            /// Releases everything this client holds. See
            /// [`Locks::shutdown`](crate::Locks::shutdown).
            pub async fn shutdown(&self, limit: std::time::Duration) -> Vec<$crate::Lease> {
                self.locks.shutdown(limit).await
            }

            /// Counters of this client since it connected.
            pub fn stats(&self) -> $crate::StatsSnapshot {
                self.locks.stats()
            }

            /// Timings of this client. See [`Locks::timings`](crate::Locks::timings).
            pub fn timings(&self) -> $crate::TimingsSnapshot {
                self.locks.timings()
            }

            /// The client's identity, which is part of its lease ids and its record.
            pub fn id(&self) -> $crate::ClientId {
                self.locks.id()
            }
        }

        impl AsRef<$crate::Locks> for $client {
            fn as_ref(&self) -> &$crate::Locks {
                &self.locks
            }
        }
    };
}
pub(crate) use delegate_to_locks;

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
