//! What every deployment can do: locks, owners, and who holds what.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::engine::release::{self, ReleaseRequest};
use crate::engine::{adopt, list, renew_detached, retry};
use crate::error::Result;
use crate::guard::Guard;
use crate::holder::{ClientRecord, Listing};
use crate::holds::Holds;
use crate::lease::{ClientId, Lease, LeaseId, TTL_MAX, check_ttl};
use crate::lock::Lock;
use crate::moment::Moment;
use crate::name::LockName;
use crate::owner::Owner;
use crate::standing::Released;
use crate::stats::StatsSnapshot;
use crate::store::LeaseSpec;
use crate::timings::TimingsSnapshot;

/// What [`Tenure`](crate::Tenure) and [`Redlock`](crate::Redlock) have in common, for code that
/// works on either: both are used as a `&Locks` wherever one is asked for. Cheap to clone; all
/// clones are the same client.
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
/// nightly(&tenure).await
/// # }) }
/// ```
#[derive(Clone)]
pub struct Locks {
    client: Arc<ClientHandle>,
}

impl Locks {
    pub(crate) fn new(client: Arc<ClientHandle>) -> Self {
        Self { client }
    }

    /// A lock of this name. Each acquisition is on its own: taking a lock that this very program
    /// holds already waits for that guard, for ever if the waiting task holds it itself. To re-enter
    /// a lock, take it through an [`owner`](Locks::owner).
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(Arc::clone(&self.client), name.as_ref(), None)
    }

    /// A new owner, which may re-enter the locks it holds.
    pub fn owner(&self) -> Owner {
        Owner::new(Arc::clone(&self.client))
    }

    /// Takes up a lease that was [detached](Guard::detach), in this or in another process. From
    /// then on it is renewed, whatever it was before, and goes by another id: nobody else can take
    /// it up as well.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if it has ended meanwhile, or somebody else has
    /// taken it up.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the lease up: if it was adopted already, it is released.
    pub async fn adopt(&self, lease: Lease) -> Result<Guard> {
        self.adopt_as(None, lease).await
    }

    pub(crate) async fn adopt_as(&self, owner: Option<Arc<Holds>>, lease: Lease) -> Result<Guard> {
        // Before looking whether the client is open: a shutdown either waits for this or is seen.
        let pending = self.client.core.pending.begin();
        self.client.check_open()?;
        let client = Arc::clone(&self.client);
        let adopting = async move { adopt::adopt(client, owner, lease, pending).await };
        self.client.engine.run(adopting).await?
    }

    /// Gives a lease that was [detached](Guard::detach) `ttl` again, once, counted from now. It stays
    /// the lease that it is, so whoever else knows of it can still renew or adopt it. Returns the
    /// moment until which it may be believed.
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
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if it has ended meanwhile, or somebody has adopted
    /// it. After [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) it may have been renewed
    /// or not: rely on the earlier moment.
    ///
    /// # Cancel safety
    ///
    /// A renewal that was begun goes on.
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

    /// Lets go of a lease that was [detached](Guard::detach), in this or in another process, and says
    /// what really happened: what [`Guard::release`] is for a lease that somebody looks after.
    ///
    /// ```
    /// # use tenure::{Lease, Released, Tenure};
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = Tenure::connect("memory://").await?;
    /// let lease: Lease = tenure.lock("report").acquire().await?.detach()?;
    /// // Later, perhaps in another process:
    /// assert_eq!(tenure.release("report", lease.id()).await?, Released::WasHeld);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`]: that it had ended before, or that another lease is there, is no error
    /// but [`Released::AlreadyGone`].
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn release(&self, name: impl AsRef<str>, id: &LeaseId) -> Result<Released> {
        let name = LockName::new(name)?;
        self.client.check_open()?;
        let core = &self.client.core;
        let known = core.detached.remove(&name, id);
        core.record_changed.notify_one();
        let ttl = id.ttl().unwrap_or(core.settings.ttl).min(TTL_MAX);
        let ends_before = core.clock.now() + ttl + ttl / 10;
        let held = LeaseSpec {
            name,
            id: id.clone(),
            ttl,
            // Touching metadata that does not exist changes nothing.
            has_meta: known.as_ref().is_none_or(|lease| lease.has_meta),
            replicas: 0,
            last_fence: None,
        };
        let ends_before = known.map_or(ends_before, |lease| lease.ends_at.max(ends_before));
        self.client
            .release_lease(ReleaseRequest::of(held, ends_before))
            .await
    }

    /// Ends another client's lease: for administrators. The holder learns of it at once
    /// if it has held the lock for a second, otherwise at its next renewal.
    ///
    /// Needs the lease's id, as [`Lock::holder`] shows it, so that it cannot hit a later holder.
    ///
    /// # Errors
    ///
    /// If the store refuses it. That another lease is there is no error: [`Released::AlreadyGone`]
    /// says so, and nothing was touched. Nor is a server that cannot be reached:
    /// [`Released::Unknown`] says that, and nothing is tried any more.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn force_release(&self, name: impl AsRef<str>, id: &LeaseId) -> Result<Released> {
        let held = LeaseSpec {
            name: LockName::new(name)?,
            id: id.clone(),
            ttl: id.ttl().unwrap_or(self.client.core.settings.ttl),
            has_meta: true,
            replicas: 0,
            last_fence: None,
        };
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

    /// Lists the locks whose names are `wanted`, with their holders and how many wait: what the
    /// [clients](Locks::clients) say of themselves, and of each lock what the store says at this
    /// moment. What a client that died still claims is not listed once its lease has ended.
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
    /// Listed are locks held for half a second or longer, and those that callers wait for, whoever
    /// holds them. A client goes on speaking of leases that it [detached](Guard::detach) or
    /// [renewed](Locks::renew), ten thousand at most, and for an hour after its own end. Other locks of
    /// other libraries are not listed: ask for those by name, with [`Lock::holder`]. It asks for the records and then for the locks that
    /// they name, never for all keys: what else is in the database costs nothing.
    ///
    /// # Errors
    ///
    /// Whatever keeps the store from answering.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
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

    /// What the clients of this store say of themselves: who they are, what they hold and who waits.
    ///
    /// Listed are leases held for half a second or longer. Locks taken by other libraries are
    /// not: ask for those by name, with [`Lock::holder`].
    ///
    /// # Errors
    ///
    /// Whatever keeps the store from answering.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
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

    /// Releases everything this client holds, ends all waiting, and returns the leases that could
    /// not be released within `limit`. Guards are lost with
    /// [`LostReason::Shutdown`](crate::LostReason::Shutdown), and further calls fail with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// # Cancel safety
    ///
    /// Once polled, the shutdown goes on in the background.
    pub async fn shutdown(&self, limit: Duration) -> Vec<Lease> {
        let core = Arc::clone(&self.client.core);
        let closing = async move { core.shut_down(limit).await };
        self.client.engine.run(closing).await.unwrap_or_default()
    }

    /// What this client has counted since it was connected.
    pub fn stats(&self) -> StatsSnapshot {
        self.client.core.stats.snapshot()
    }

    /// What this client has measured since this was first asked for: until then it measures nothing,
    /// so that clients whom nobody asks pay nothing.
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

    /// The identity of this client, which its leases and its record carry.
    pub fn id(&self) -> ClientId {
        self.client.core.id
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.client.core
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
