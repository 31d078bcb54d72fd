//! A named lock and the ways to acquire it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::client_handle::ClientHandle;
use crate::core::Core;
use crate::engine::attempt::{AcquireRequest, StartedAcquisition};
use crate::engine::fast_path::{self, FastPathOutcome};
use crate::engine::keep;
use crate::engine::local_queue::{QueueEntry, Waiter};
use crate::engine::reuse::{self, Reuse};
use crate::engine::{client_record, retry, try_acquire};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::holder::{Holder, LeaseRecord};
use crate::holds::Holds;
use crate::leader::{self, RESERVED_FIELDS};
use crate::lease::{LeaseId, check_ttl};
use crate::mode::Mode;
use crate::moment::Moment;
use crate::name::LockName;
use crate::order::Ordered;
use crate::standing::{LostReason, Released};
use crate::store::{BoxFuture, Failure, PermitRequest, Wish};
use crate::waiting_caller::WaitingCaller;

/// Limits on a lease's metadata: number of entries, and total bytes. Metadata is sent with every
/// acquisition.
const META_ENTRIES_MAX: usize = 16;
const META_BYTES_MAX: usize = 4_096;

/// A named lock. Creating one is free and sends nothing.
///
/// `D` tells what the client can do that it comes from: a lock of a [`Tenure`](crate::Tenure) can be
/// [`fair`](Lock::fair), one of a [`Redlock`](crate::Redlock) is a `Lock<Unordered>`, which cannot.
///
/// Settings are validated when the lock is acquired, before anything is sent.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock<D = Ordered> {
    client: Arc<ClientHandle>,
    name: Arc<str>,
    owner: Option<Arc<Holds>>,
    /// The shared leases of this process that a caller without owner may join.
    readers: Option<Arc<Holds>>,
    mode: Mode,
    ttl: Option<Duration>,
    renewed: bool,
    max_hold: Option<Duration>,
    keep: Option<Duration>,
    wait: Option<Duration>,
    replicas: Option<u32>,
    meta: BTreeMap<String, String>,
    /// Whether the metadata is that of a candidate in an election.
    is_candidate: bool,
    wish: Wish,
    of: PhantomData<fn() -> D>,
}

impl<D> Lock<D> {
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str, owner: Option<Arc<Holds>>) -> Self {
        Self {
            client,
            name: name.into(),
            owner,
            readers: None,
            mode: Mode::Exclusive,
            ttl: None,
            renewed: true,
            max_hold: None,
            keep: None,
            wait: None,
            replicas: None,
            meta: BTreeMap::new(),
            is_candidate: false,
            wish: Wish::Lock,
            of: PhantomData,
        }
    }

    /// The same lock; a caller without owner may join these shared leases.
    pub(crate) fn joining(mut self, readers: Option<Arc<Holds>>) -> Self {
        self.readers = readers;
        self
    }

    /// The same lock, reentrant for the owner of `holds`.
    #[cfg(feature = "blocking")]
    pub(crate) fn of(mut self, holds: Arc<Holds>) -> Self {
        self.owner = Some(holds);
        self
    }

    /// Shares the lock with other readers: any number of shared leases may hold it at the same time, but
    /// no exclusive one. A lock that is not shared excludes readers and all others, whether it was
    /// acquired by Tenure or by another library.
    ///
    /// ```
    /// # async fn example() -> Result<(), tenure::Error> {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let prices = tenure.lock("prices");
    /// let one = prices.clone().shared().acquire().await?;
    /// let two = prices.clone().shared().acquire().await?;
    /// assert_eq!(one.fence(), two.fence());
    /// assert!(prices.try_acquire().await?.is_none());
    /// drop((one, two));
    /// let writer = prices.acquire().await?;
    /// # drop(writer);
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// Nobody starves: a reader that comes later waits for those who already wait for the exclusive
    /// lock, and readers that wait for an exclusive holder share the lock after it, up to the next
    /// waiter that wants it alone.
    ///
    /// All readers that hold the lock at the same time have the same fence. The fence of an exclusive
    /// lock is greater than those of all readers before it, so a resource that keeps the greatest fence
    /// of its writers can refuse a reader that was paused for too long.
    ///
    /// Callers of one process share one lease if they come within
    /// [`hand_off_time`](crate::Builder::hand_off_time) of its grant: only the first of them asks the
    /// store. The loss of a shared lease is noticed at its next renewal. Shared leases have no
    /// [metadata](Lock::meta) and are never [kept](Lock::keep). Not available with a
    /// [`Redlock`](crate::Redlock) and in Redisson's layout.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// The lease duration without renewal: 100 ms to 24 h. Defaults to the client's setting, which
    /// is 30 s by default. The lease is renewed after a third of it.
    ///
    /// A shorter ttl means that a crashed holder blocks others for less time. A longer one means
    /// fewer renewals, and the holder survives longer server outages.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Never renews the lease: it ends after its [`ttl`](Lock::ttl), unless it is released first.
    pub fn no_renewal(mut self) -> Self {
        self.renewed = false;
        self
    }

    /// The maximum time to hold the lock, renewals included. After that, [`Guard::lost`] resolves
    /// and renewal stops. The lock is not released: it becomes free when the guard is released or
    /// the lease expires.
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.max_hold = Some(length);
        self
    }

    /// Keeps the lease after a release that nobody waits for, so that the next acquire of this lock in
    /// this process, with the same settings, needs no request to the store. Each holder gets its own
    /// fence, greater than the previous one. Defaults to the client's setting, which is not to keep
    /// leases; [`Duration::ZERO`] switches it off for this lock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example() -> Result<(), tenure::Error> {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let lock = tenure.lock("report").keep(Duration::from_millis(100));
    /// let guard = lock.acquire().await?;
    /// guard.release().await?;
    /// let again = lock.acquire().await?; // without a request to the store
    /// # drop(again);
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// The time counts from the moment when the store granted the lease: 1 ms to half of the
    /// [`ttl`](Lock::ttl). After it, the next release goes to the store, and a lease that nobody
    /// uses is released. Another Tenure client that wants the lock asks for it by a message, and
    /// then it is released at once. Clients that cannot ask, such as other libraries, wait until
    /// this time is over. If the process dies while it keeps a lease, the lock is free when the
    /// lease expires, as if it had died while holding it.
    ///
    /// Leases [without renewal](Lock::no_renewal), and those that others already wait for, are never
    /// kept. Not available with a [`Redlock`](crate::Redlock).
    pub fn keep(mut self, time: Duration) -> Self {
        self.keep = Some(time);
        self
    }

    /// The maximum time that [`acquire`](Lock::acquire), [`with`](Lock::with) and
    /// [`try_with`](Lock::try_with) wait for the lock. Without it they wait indefinitely.
    /// [`Duration::ZERO`] tries once. When the time is up they fail with
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy), which names the holder.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let held = tenure.lock("report").acquire().await?;
    /// let lock = tenure.lock("report").wait(Duration::from_millis(20));
    /// assert_eq!(lock.acquire().await.unwrap_err().kind(), tenure::ErrorKind::Busy);
    /// # drop(held);
    /// # Ok(()) }) }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// How many replicas must acknowledge each grant and each renewal. Defaults to the client's
    /// setting, which is none. If the primary dies, the lock survives as long as the promoted
    /// replica has acknowledged it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// let tenure = tenure::Tenure::connect("redis-sentinel://s1,s2,s3/mymaster").await?;
    /// // One primary, two replicas: whichever is promoted has the lock.
    /// let guard = tenure.lock("ledger").replicas(2).acquire().await?;
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    ///
    /// Ask for *all* replicas that may be promoted. With fewer, a lagging replica may be promoted.
    /// If fewer replicas acknowledge within a second, the lock is released again:
    /// [`try_acquire`](Lock::try_acquire) fails with
    /// [`ErrorKind::NotReplicated`](crate::ErrorKind::NotReplicated) and the numbers, and
    /// [`acquire`](Lock::acquire) retries until its limit. A renewal that too few replicas
    /// acknowledge does not count: the lease becomes [suspect](crate::Standing::Suspect), and is
    /// lost at its deadline.
    ///
    /// This costs a second round trip, and the lock cannot be acquired while a replica is down. It
    /// is not consensus: see `docs/guarantees.md`. Not available with `memory://` and Redlock.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = Some(replicas);
        self
    }

    /// Attaches metadata to the lease, such as the reason for holding the lock or a job number.
    /// [`holder`](Lock::holder) shows it. At most 16 entries and 4096 bytes.
    pub fn meta(mut self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta.insert(field.into(), value.into());
        self
    }

    /// For a candidate with this value: the store writes down the term with the grant.
    pub(crate) fn for_candidate(mut self, value: &str) -> Self {
        self.meta = leader::candidate_meta(value);
        self.is_candidate = true;
        self.keep = Some(Duration::ZERO);
        self
    }

    /// For permits of the semaphore with this name.
    pub(crate) fn for_permits(mut self, permits: PermitRequest) -> Self {
        self.mode = Mode::Permit;
        self.wish = Wish::Permits(permits);
        self
    }

    /// Whether it is shared with other readers.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The lock's name, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the lock, in order of arrival.
    ///
    /// Waits for the current holder indefinitely, unless [`wait`](Lock::wait) sets a limit. Waits
    /// for an unreachable server only as long as
    /// [`unreachable_after`](crate::Builder::unreachable_after) allows.
    ///
    /// # Errors
    ///
    /// If a setting is invalid, the server cannot be reached or refuses the request, or the key is
    /// not a lock. See [`ErrorKind`](crate::ErrorKind).
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future leaves the queue, and a grant in flight is released at once.
    pub async fn acquire(&self) -> Result<Guard> {
        self.wait_in_queue(self.wait).await
    }

    /// Acquires the lock if it is free, and returns `None` if it is not.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached or refuses the request. A busy lock is not an error.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Lock::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        let request = self.request()?;
        if let Some(guard) = self.reenter(&request)? {
            return Ok(Some(guard));
        }
        if let Some(guard) = self.reuse(&request).await? {
            return Ok(Some(guard));
        }
        let acquisition = match fast_path::try_acquire(&self.client, self.holds(), request).await? {
            FastPathOutcome::Granted(guard) => return Ok(Some(guard)),
            FastPathOutcome::Busy(_, holder) if self.is_in_use(&holder) => return Ok(None),
            // Perhaps nobody holds it: the engine asks its keeper.
            FastPathOutcome::Busy(acquisition, _) | FastPathOutcome::NotAnswered(acquisition) => {
                acquisition
            }
        };
        // Before checking that the client is open: a shutdown either waits for this or is
        // noticed.
        let pending = self.client.core.pending.begin();
        self.client.check_open()?;
        let (client, owner) = (Arc::clone(&self.client), self.holds().cloned());
        let (reply, answer) = oneshot::channel();
        let asking = try_acquire::run(client, owner, acquisition, reply, pending);
        self.client.engine.spawn(asking);
        answer.await.map_err(|_| Error::closed())?
    }

    /// Runs `work` under the lock, and cancels it if the lock is lost.
    ///
    /// ```
    /// # async fn example() -> Result<(), tenure::Error> {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let total = tenure.lock("report").with(async |guard| {
    ///     let fence = guard.fence(); // pass it to the resource you write to
    ///     21 * 2
    /// }).await?;
    /// assert_eq!(total, 42);
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Lock::acquire), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the
    /// lock was lost before the work finished. Its result cannot be trusted then, and is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work at its current await point and releases the lock.
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

    /// Like [`with`](Lock::with), for work that can fail: the lock is released either way.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let report = tenure.lock("report").try_with(async |guard| {
    ///     let number: u32 = "7".parse()?;
    ///     Ok::<_, Box<dyn std::error::Error>>(format!("{number} by {}", guard.name()))
    /// }).await?;
    /// assert_eq!(report, "7 by report");
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the work, or as for [`with`](Lock::with). If the lock was lost before the work
    /// finished, the error of the work is dropped: it may only be a consequence.
    ///
    /// # Cancel safety
    ///
    /// As for [`with`](Lock::with).
    pub async fn try_with<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with(work).await?
    }

    /// Returns the current holder, without acquiring the lock.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached or refuses the request, and
    /// [`ErrorKind::NotALock`](crate::ErrorKind::NotALock) if the key is not a lock.
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn holder(&self) -> Result<Option<Holder>> {
        let name = LockName::from_shared(&self.name)?;
        let name = self.client.core.settings.allowed(name)?;
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let looking = async move {
            let read = |limit| find_holder(&core, &name, limit);
            retry::read(&core, read).await
        };
        self.client.engine.run(looking).await?
    }

    /// As [`holder`](Lock::holder), but without the client's own record: a single read, however
    /// many leases that client has.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn holder_brief(&self) -> Result<Option<Holder>> {
        let name = LockName::from_shared(&self.name)?;
        let name = self.client.core.settings.allowed(name)?;
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let looking = async move {
            let read = |limit| find_lease(&core, &name, limit);
            retry::read(&core, read).await
        };
        self.client.engine.run(looking).await?
    }

    /// Whether the lock is held at this moment. The answer may be outdated by the next line of your
    /// program.
    ///
    /// # Errors
    ///
    /// As for [`holder`](Lock::holder).
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn is_locked(&self) -> Result<bool> {
        Ok(self.holder_brief().await?.is_some())
    }

    async fn wait_in_queue(&self, limit: Option<Duration>) -> Result<Guard> {
        // Boxed: what only the first attempt needs must not take up memory while waiting.
        match Box::pin(self.acquire_or_join(limit)).await? {
            FirstAttempt::Granted(guard) => Ok(guard),
            FirstAttempt::Joined(waiting) => waiting.await,
            FirstAttempt::MayShare(waiting) => waiting.await,
        }
    }

    /// Acquires the lock if it is free here and in the store, and joins the local queue if it is not.
    async fn acquire_or_join(&self, limit: Option<Duration>) -> Result<FirstAttempt> {
        let request = self.request()?;
        if let Some(guard) = self.reenter(&request)? {
            return Ok(FirstAttempt::Granted(guard));
        }
        self.client.check_open()?;
        if let Some(guard) = self.reuse(&request).await? {
            return Ok(FirstAttempt::Granted(guard));
        }
        let core = &self.client.core;
        let joined = core.clock.now();
        let patient = limit.is_none_or(|limit| limit >= core.settings.response_timeout);
        let number = core.queues.next_number();
        // Others may have the lock here already, and share it.
        let shares = self.mode != Mode::Exclusive;
        let is_free = shares || !core.watchdog.is_tracked(&request.name);
        let free = patient && is_free;
        let (begun, found_busy) =
            if free && let Some(_permit) = core.queues.try_fast_path(&request.name) {
                let holds = self.holds();
                match fast_path::try_acquire(&self.client, holds, request.clone()).await? {
                    FastPathOutcome::Granted(guard) => return Ok(FirstAttempt::Granted(guard)),
                    FastPathOutcome::Busy(acquisition, _) => (Some(acquisition), true),
                    FastPathOutcome::NotAnswered(acquisition) => (Some(acquisition), false),
                }
            } else {
                (None, false)
            };
        let (caller, answer) = WaitingCaller::new(&self.client, self.holds(), number);
        let shared = self
            .holds()
            .map(|holds| (Arc::clone(holds), request.clone()));
        let client = (core, &self.client.engine);
        let waiter = Waiter {
            request,
            joined,
            limit: limit.map(|limit| joined + limit),
            started: StartedAcquisition::new(client, begun, found_busy),
            caller: Box::new(caller),
        };
        let waiting = WaitingFuture {
            answer,
            entry: Some(core.queues.join(client, number, waiter)),
        };
        Ok(match shared {
            None => FirstAttempt::Joined(waiting),
            // It must not queue behind a caller that waits for this owner, or to share the lock.
            Some((holds, request)) => FirstAttempt::MayShare(Box::pin(async move {
                tokio::select! {
                    biased;
                    guard = waiting => guard,
                    guard = holds.wait_to_reenter(&request, number) => guard,
                }
            })),
        })
    }

    /// The lease that this process keeps, if it is what the caller wants.
    async fn reuse(&self, request: &AcquireRequest) -> Result<Option<Guard>> {
        if !self.client.core.kept.hears() {
            return Ok(None);
        }
        // A caller that never waits must not keep other tasks from running.
        tokio::task::coop::consume_budget().await;
        match reuse::try_reuse(&self.client, self.holds(), request)? {
            Reuse::Granted(guard) => Ok(Some(guard)),
            Reuse::Nothing => Ok(None),
            Reuse::Unfit(belief) => {
                // Boxed: it is rare, and must not take up memory while waiting.
                Box::pin(reuse::release_unfit(&self.client, &belief)).await;
                Ok(None)
            }
        }
    }

    /// Whether no other client can let this lease go at once. What this one keeps is for those who
    /// wait here.
    fn is_in_use(&self, holder: &LeaseId) -> bool {
        let keeper = holder.keeper();
        keeper.is_none_or(|keeper| keeper == self.client.core.id)
    }

    fn reenter(&self, request: &AcquireRequest) -> Result<Option<Guard>> {
        match self.holds() {
            Some(holds) => holds.reenter(request),
            None => Ok(None),
        }
    }

    /// The holds that a caller may share: those of its owner, or the readers of this process.
    fn holds(&self) -> Option<&Arc<Holds>> {
        let readers = self.readers.as_ref();
        let readers = readers.filter(|_| self.mode == Mode::Shared);
        self.owner.as_ref().or(readers)
    }

    /// Validates the settings before anything is sent.
    pub(crate) fn request(&self) -> Result<AcquireRequest> {
        let name = LockName::from_shared(&self.name)?;
        let name = self.client.core.settings.allowed(name)?;
        let ttl = match self.ttl {
            Some(ttl) => check_ttl("ttl", ttl)?,
            None => self.client.core.settings.ttl,
        };
        self.client.core.settings.check_longest(ttl)?;
        if self.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return Err(Error::invalid_setting(
                "max_hold",
                "0ns",
                "it must be longer than zero",
            ));
        }
        let settings = &self.client.core.settings;
        let replicas = self.replicas.unwrap_or(settings.replicas);
        settings.check_replicas(replicas)?;
        settings.check_pause(ttl)?;
        self.check_meta()?;
        self.check_mode()?;
        let keep = settings.keep_time(self.keep, ttl)?;
        let is_plain = self.mode == Mode::Exclusive && self.wish == Wish::Lock;
        let keep = keep.filter(|_| self.renewed && is_plain);
        if keep.is_some() && self.client.core.kept.begin_to_hear() {
            let core = Arc::clone(&self.client.core);
            self.client.engine.spawn(keep::listen(core));
        }
        Ok(AcquireRequest {
            mode: self.mode,
            name,
            ttl: Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            renewed: self.renewed,
            max_hold: self.max_hold,
            keep,
            replicas,
            meta: shared_meta(&self.meta),
            wish: self.wish,
        })
    }

    fn check_mode(&self) -> Result<()> {
        let settings = &self.client.core.settings;
        if self.wish == Wish::InOrder {
            settings.check_fair(self.mode)?;
        }
        let cause = match self.mode {
            Mode::Exclusive => return Ok(()),
            Mode::Permit => return settings.check_semaphores(),
            Mode::Shared if self.meta.is_empty() => return settings.check_shared(),
            Mode::Shared => {
                "a shared lease has no metadata: remove it, or acquire the lock exclusively"
            }
        };
        Err(Error::invalid_setting("the mode", self.mode, cause))
    }

    fn check_meta(&self) -> Result<()> {
        let bytes: usize = self.meta.iter().map(|(k, v)| k.len() + v.len()).sum();
        let cause = if self.meta.len() > META_ENTRIES_MAX {
            "at most 16 entries are allowed"
        } else if bytes > META_BYTES_MAX {
            "at most 4096 bytes are allowed"
        } else if self.meta.keys().any(|field| is_reserved(field)) && !self.is_candidate {
            "an entry needs a name, and `lease` and names with the prefix `tenure:` are reserved"
        } else {
            return Ok(());
        };
        let value = format!("{} entries of {bytes} bytes", self.meta.len());
        Err(Error::invalid_setting("metadata", value, cause))
    }
}

impl Lock {
    /// Serves waiters strictly in order of arrival, over all processes: first come, first served. Each
    /// waiting caller has a place of its own in the server's queue, and the lock always goes to the
    /// first living one, also after its holder has died.
    ///
    /// ```
    /// # async fn example() -> Result<(), tenure::Error> {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let tickets = tenure.lock("tickets").fair();
    /// let guard = tickets.acquire().await?;
    /// # drop(guard);
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// Without it, the *processes* that wait are served in turn: a process passes the lock between its
    /// own callers for up to [`hand_off_time`](crate::Builder::hand_off_time) before the next process has
    /// it, and after a crash of the holder any caller may be the first to notice. That is faster. A fair
    /// lock costs a round trip for each change of its holder, and a small command every two seconds for
    /// each waiting caller.
    ///
    /// A caller arrives when the server puts it into the queue. It loses its place if its process does
    /// not take up the lock within two seconds of being next, or is silent for six seconds; then it goes
    /// to the end. [`try_acquire`](Lock::try_acquire) does not pass those who wait.
    ///
    /// If callers of the same name do not all ask for this, the order holds among those that do. The
    /// others may pass them after a crash of the holder; and if the holder's process has others that
    /// wait, they may get the lock before those that came earlier.
    ///
    /// A fair lock is never [kept](Lock::keep), and cannot be [shared](Lock::shared). Not available in
    /// Redisson's layout. With a [`Redlock`](crate::Redlock) it does not compile, because its servers have
    /// no common queue:
    ///
    /// ```compile_fail,E0599
    /// # async fn example(redlock: tenure::Redlock) {
    /// redlock.lock("tickets").fair().acquire().await;
    /// # }
    /// ```
    pub fn fair(mut self) -> Self {
        self.wish = Wish::InOrder;
        self
    }

    /// A lock with the same settings and this name.
    pub(crate) fn with_name(&self, name: &LockName) -> Self {
        Self {
            name: name.as_str().into(),
            ..self.clone()
        }
    }
}

/// What became of a caller's first attempt.
enum FirstAttempt {
    Granted(Guard),
    /// It waits for its turn.
    Joined(WaitingFuture),
    /// It waits for its turn, or until its owner has the lock.
    MayShare(BoxFuture<'static, Result<Guard>>),
}

/// A caller in the local queue, until it has its reply. Not an `async fn`, whose arguments would take
/// up memory twice.
struct WaitingFuture {
    answer: oneshot::Receiver<Result<Guard>>,
    entry: Option<QueueEntry>,
}

impl Future for WaitingFuture {
    type Output = Result<Guard>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Guard>> {
        let result = ready!(Pin::new(&mut self.answer).poll(context));
        if let Some(entry) = self.entry.take() {
            entry.answered();
        }
        Poll::Ready(result.unwrap_or_else(|_| Err(Error::closed())))
    }
}

fn is_reserved(field: &str) -> bool {
    field.is_empty() || field == "lease" || field.starts_with(RESERVED_FIELDS)
}

/// Most locks have no metadata, and share that.
fn shared_meta(meta: &BTreeMap<String, String>) -> Arc<BTreeMap<String, String>> {
    static NONE: LazyLock<Arc<BTreeMap<String, String>>> = LazyLock::new(Arc::default);
    if meta.is_empty() {
        return Arc::clone(&NONE);
    }
    Arc::new(meta.clone())
}

async fn find_holder(
    core: &Core,
    name: &LockName,
    limit: Moment,
) -> Result<Option<Holder>, Failure> {
    let Some(mut holder) = find_lease(core, name, limit).await? else {
        return Ok(None);
    };
    // Of readers, one is shown.
    let lease = holder.reader_leases.first().unwrap_or(&holder.lease);
    if let Some(client) = lease.client() {
        let records = client_record::read(core, Some(client), limit).await?;
        holder.client = records.into_iter().next();
        holder.fence = holder.recorded_fence().or(holder.fence);
        let listed = holder.client.iter().flat_map(|client| &client.leases);
        let kept = |lease: &LeaseRecord| lease.kept && lease.lease == holder.lease;
        holder.kept = listed.into_iter().any(kept);
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

impl<D> fmt::Debug for Lock<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("ttl", &self.ttl)
            .field("renewed", &self.renewed)
            .field("max_hold", &self.max_hold)
            .finish_non_exhaustive()
    }
}
