//! A named lock, and the ways to take it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::engine::attempt::AcquireRequest;
use crate::engine::fast_path::{self, FastPathOutcome};
use crate::engine::local_queue::{StartedAcquisition, Waiter};
use crate::engine::{client_record, retry, try_acquire};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::holder::Holder;
use crate::holds::Holds;
use crate::lease::check_ttl;
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::{LostReason, Released};
use crate::store::{Failure, RESPONSE_TIMEOUT};
use crate::waiting_caller::WaitingCaller;

/// How many metadata entries a lease may carry, and how many bytes they may have together: they
/// are sent with every acquisition.
const META_ENTRIES_MAX: usize = 16;
const META_BYTES_MAX: usize = 4_096;

/// A lock with a name. Making one costs nothing and sends nothing.
///
/// Settings are checked when the lock is acquired, before anything is sent.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    client: Arc<ClientHandle>,
    name: String,
    owner: Option<Arc<Holds>>,
    ttl: Option<Duration>,
    fixed: Option<Duration>,
    max_hold: Option<Duration>,
    wait: Option<Duration>,
    replicas: Option<u32>,
    meta: BTreeMap<String, String>,
}

impl Lock {
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str, owner: Option<Arc<Holds>>) -> Self {
        Self {
            client,
            name: name.to_owned(),
            owner,
            ttl: None,
            fixed: None,
            max_hold: None,
            wait: None,
            replicas: None,
            meta: BTreeMap::new(),
        }
    }

    /// The same lock, re-enterable by the owner of `holds`.
    pub(crate) fn of(mut self, holds: Arc<Holds>) -> Self {
        self.owner = Some(holds);
        self
    }

    /// How long the lease lasts without renewal: 100 ms to 24 h, 30 s unless the client says
    /// otherwise. It is renewed at a third of it.
    ///
    /// Shorter: a crashed holder blocks others for less time. Longer: renewals are rarer, and the
    /// holder survives longer trouble with the server.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Holds for this long and no longer: the lease is never renewed. 100 ms to 24 h. Excludes
    /// [`ttl`](Lock::ttl).
    pub fn fixed(mut self, length: Duration) -> Self {
        self.fixed = Some(length);
        self
    }

    /// The longest time to hold the lock, renewals included. When it is over, the holder learns it
    /// by [`Guard::lost`] and renewal stops. The lock is not released: it becomes free when the guard
    /// is released, or when the lease ends.
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.max_hold = Some(length);
        self
    }

    /// The longest time that [`acquire`](Lock::acquire) and [`with`](Lock::with) wait for a holder.
    /// Without it they wait for as long as it takes. [`acquire_within`](Lock::acquire_within) has a
    /// limit of its own.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// How many replicas must confirm the lock each time it is granted or renewed: none unless the
    /// client says otherwise. So a master that dies does not take the lock with it, if a replica is
    /// promoted that has it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// let tenure = tenure::Tenure::connect("redis-sentinel://s1,s2,s3/mymaster").await?;
    /// // One master, two replicas: whichever is promoted knows of the lock.
    /// let guard = tenure.lock("ledger").replicas(2).acquire().await?;
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// Ask for *all* replicas that may be promoted: with fewer, one that lags may be chosen. If
    /// fewer confirm within a second, the lock is given back: [`try_acquire`](Lock::try_acquire)
    /// fails with [`ErrorKind::NotReplicated`](crate::ErrorKind::NotReplicated) and the numbers,
    /// [`acquire`](Lock::acquire) goes on trying within its limit. A renewal that fewer confirm does
    /// not count: the lease is [suspect](crate::Standing::Suspect), and lost at its deadline.
    ///
    /// It costs a second round trip, and while a replica is down the lock cannot be had. It is no
    /// consensus: see `docs/guarantees.md`. Not for `memory://` and Redlock.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = Some(replicas);
        self
    }

    /// Writes something about this lease where [`holder`](Lock::holder) shows it: why the lock is
    /// held, a job's number. At most 16 entries and 4096 bytes.
    pub fn meta(mut self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta.insert(field.into(), value.into());
        self
    }

    /// The name that was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the lock, in the order of arrival.
    ///
    /// Waits for a holder without limit, unless [`wait`](Lock::wait) sets one, but for a server that cannot be reached only as long as
    /// [`unreachable_after`](crate::Builder::unreachable_after) says.
    ///
    /// # Errors
    ///
    /// If a setting is wrong, the server cannot be reached or refuses us, or the key at the name is
    /// not a lock; see [`ErrorKind`](crate::ErrorKind).
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future leaves the queue, and a grant in flight is released at once.
    pub async fn acquire(&self) -> Result<Guard> {
        self.wait_in_queue(self.wait).await
    }

    /// Waits for the lock for at most `limit`. [`Duration::ZERO`] asks once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) when the time is over, naming the holder.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Lock::acquire).
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        self.wait_in_queue(Some(limit)).await
    }

    /// Takes the lock if it is free; `None` if it is not.
    ///
    /// # Errors
    ///
    /// Whatever keeps the store from answering. A busy lock is not an error.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Lock::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        let request = self.request()?;
        if let Some(guard) = self.reenter(&request)? {
            return Ok(Some(guard));
        }
        let acquisition =
            match fast_path::try_acquire(&self.client, self.owner.as_ref(), request).await? {
                FastPathOutcome::Granted(guard) => return Ok(Some(guard)),
                FastPathOutcome::Busy(_) => return Ok(None),
                FastPathOutcome::NotAnswered(acquisition) => acquisition,
            };
        // Before looking whether the client is open: a shutdown either waits for this or is seen.
        let pending = self.client.core.pending.begin();
        self.client.check_open()?;
        let (client, owner) = (Arc::clone(&self.client), self.owner.clone());
        let (reply, answer) = oneshot::channel();
        let asking = try_acquire::run(client, owner, acquisition, reply, pending);
        self.client.engine.spawn(asking);
        answer.await.map_err(|_| Error::closed())?
    }

    /// Does `work` under the lock, and cancels it when the lock is lost.
    ///
    /// ```
    /// # async fn example() -> Result<(), tenure::Error> {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let total = tenure.lock("report").with(async |guard| {
    ///     let fence = guard.fence(); // show it to what you write to
    ///     21 * 2
    /// }).await?;
    /// assert_eq!(total, 42);
    ///
    /// // Work that can fail: the lock is released all the same.
    /// let parsed = tenure.lock("report").with(async |_| "7".parse::<u32>()).await?;
    /// assert_eq!(parsed, Ok(7));
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Lock::acquire), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the
    /// lock was lost before the work was done: then its result is not to be relied on, and is
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work where it stands, and releases the lock.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let result = {
            let work = work(&guard);
            tokio::pin!(work);
            let lost = guard.lost();
            tokio::pin!(lost);
            tokio::select! {
                biased;
                _ = &mut lost => None,
                done = &mut work => Some(done),
            }
        };
        match result {
            Some(done) if guard.is_valid() => {
                let name = guard.name().clone();
                match guard.release().await? {
                    Released::AlreadyGone => Err(Error::lost(&name, LostReason::Gone)),
                    Released::WasHeld | Released::Unknown => Ok(done),
                }
            }
            _ => Err(guard.lost_error()),
        }
    }

    /// Who holds the lock, without taking it.
    ///
    /// # Errors
    ///
    /// Whatever keeps the store from answering, and
    /// [`ErrorKind::NotALock`](crate::ErrorKind::NotALock) if the key is something else.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    pub async fn holder(&self) -> Result<Option<Holder>> {
        let name = LockName::new(&self.name)?;
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let looking = async move {
            let read = |limit| find_holder(&core, &name, limit);
            retry::read(&core, read).await
        };
        self.client.engine.run(looking).await?
    }

    /// As [`holder`](Lock::holder), without what the holder's client says of itself: one look at one
    /// lock, however many leases that client has.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    pub async fn glance(&self) -> Result<Option<Holder>> {
        let name = LockName::new(&self.name)?;
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let looking = async move {
            let read = |limit| find_lease(&core, &name, limit);
            retry::read(&core, read).await
        };
        self.client.engine.run(looking).await?
    }

    /// Whether the lock is held at this moment. By the next line of your program that may have
    /// changed.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    pub async fn is_locked(&self) -> Result<bool> {
        Ok(self.glance().await?.is_some())
    }

    async fn wait_in_queue(&self, limit: Option<Duration>) -> Result<Guard> {
        let request = self.request()?;
        if let Some(guard) = self.reenter(&request)? {
            return Ok(guard);
        }
        self.client.check_open()?;
        let core = &self.client.core;
        let joined = core.clock.now();
        let patient = limit.is_none_or(|limit| limit >= RESPONSE_TIMEOUT);
        let number = core.queues.next_number();
        let free = patient && !core.watchdog.is_tracked(&request.name);
        let (begun, found_busy) =
            if free && let Some(_permit) = core.queues.try_fast_path(&request.name) {
                // Boxed: what is only needed for asking must not be kept by those who wait.
                match Box::pin(fast_path::try_acquire(
                    &self.client,
                    self.owner.as_ref(),
                    request.clone(),
                ))
                .await?
                {
                    FastPathOutcome::Granted(guard) => return Ok(guard),
                    FastPathOutcome::Busy(acquisition) => (Some(acquisition), true),
                    FastPathOutcome::NotAnswered(acquisition) => (Some(acquisition), false),
                }
            } else {
                (None, false)
            };
        let (caller, answer) = WaitingCaller::new(&self.client, self.owner.as_ref(), number);
        let shared = self.owner.as_ref().map(|owner| (owner, request.clone()));
        let client = (core, &self.client.engine);
        let waiter = Waiter {
            request,
            joined,
            limit: limit.map(|limit| joined + limit),
            started: StartedAcquisition::new(client, begun, found_busy),
            caller: Box::new(caller),
        };
        let entry = core.queues.join(client, number, waiter);
        let result = match shared {
            None => answer.await,
            // It must not wait behind a caller that waits for its owner.
            Some((owner, request)) => tokio::select! {
                biased;
                result = answer => result,
                guard = owner.wait_to_reenter(&request, number) => return guard,
            },
        };
        entry.answered();
        result.map_err(|_| Error::closed())?
    }

    fn reenter(&self, request: &AcquireRequest) -> Result<Option<Guard>> {
        match &self.owner {
            Some(owner) => owner.reenter(request),
            None => Ok(None),
        }
    }

    /// Checks the settings, before anything is sent.
    fn request(&self) -> Result<AcquireRequest> {
        let name = LockName::new(&self.name)?;
        let ttl = match (self.ttl, self.fixed) {
            (Some(ttl), Some(_)) => {
                return Err(Error::invalid_setting(
                    "ttl",
                    format!("{ttl:?}"),
                    "a `fixed` lease has no other ttl: give one of the two",
                ));
            }
            (Some(ttl), None) => check_ttl("ttl", ttl)?,
            (None, Some(fixed)) => check_ttl("fixed", fixed)?,
            (None, None) => self.client.core.settings.ttl,
        };
        self.client.core.settings.check_longest(ttl)?;
        if self.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return Err(Error::invalid_setting(
                "max_hold",
                "0ns",
                "a lock that may not be held cannot be taken",
            ));
        }
        let settings = &self.client.core.settings;
        let replicas = self.replicas.unwrap_or(settings.replicas);
        settings.check_replicas(replicas)?;
        settings.check_pause(ttl)?;
        self.check_meta()?;
        Ok(AcquireRequest {
            name,
            ttl: Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            renewed: self.fixed.is_none(),
            max_hold: self.max_hold,
            replicas,
            meta: Arc::new(self.meta.clone()),
        })
    }

    fn check_meta(&self) -> Result<()> {
        let bytes: usize = self.meta.iter().map(|(k, v)| k.len() + v.len()).sum();
        let cause = if self.meta.len() > META_ENTRIES_MAX {
            "at most 16 entries are allowed"
        } else if bytes > META_BYTES_MAX {
            "at most 4096 bytes are allowed"
        } else if self.meta.contains_key("lease") || self.meta.contains_key("") {
            "an entry needs a name, and `lease` is Tenure's own"
        } else {
            return Ok(());
        };
        let value = format!("{} entries of {bytes} bytes", self.meta.len());
        Err(Error::invalid_setting("metadata", value, cause))
    }
}

async fn find_holder(
    core: &Core,
    name: &LockName,
    limit: Moment,
) -> Result<Option<Holder>, Failure> {
    let Some(mut holder) = find_lease(core, name, limit).await? else {
        return Ok(None);
    };
    if let Some(client) = holder.lease.client() {
        let records = client_record::read(core, Some(client), limit).await?;
        holder.client = records.into_iter().next();
    }
    Ok(Some(holder))
}

async fn find_lease(
    core: &Core,
    name: &LockName,
    limit: Moment,
) -> Result<Option<Holder>, Failure> {
    let found = core.store.inspect(name, limit).await?;
    Ok(found.map(Holder::from))
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .field("fixed", &self.fixed)
            .field("max_hold", &self.max_hold)
            .finish_non_exhaustive()
    }
}
