//! Several locks that are acquired together, and the ways to acquire them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client_handle::ClientHandle;
use crate::engine::acquire_several::{self, SeveralOutcome};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::holder::Holder;
use crate::lock::Lock;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::multi_guard::MultiGuard;
use crate::name::LockName;
use crate::seeded::{Bug, bug};
use crate::standing::{LostReason, Released};

/// How many names one [`MultiLock`] may have. The server acquires all of them in one step, and serves
/// no other client meanwhile.
pub const NAMES_MAX: usize = 128;

/// How long to wait for all locks without holding any. After that they are acquired one by one, in an
/// order that is the same for all clients.
const PATIENCE: Duration = Duration::from_secs(1);

/// Several locks that are acquired together: all of them or none. See [`Locks::locks`](crate::Locks::locks).
///
/// Each name is an ordinary lock with its own lease and its own fence, so it excludes everything that
/// [`Lock`] excludes. Settings and names are validated when the locks are acquired, before anything is
/// sent. Every setting applies to each name.
///
/// It has no [owner](crate::Owner): if the program already holds one of the names, it waits for that
/// guard as for any other holder.
#[derive(Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct MultiLock {
    client: Arc<ClientHandle>,
    names: Vec<Arc<str>>,
    /// The settings of each lock.
    settings: Lock,
    wait: Option<Duration>,
}

impl MultiLock {
    pub(crate) fn new<N: AsRef<str>>(
        client: Arc<ClientHandle>,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        // A kept lease would be held while the caller waits for another name.
        let settings = Lock::new(Arc::clone(&client), "", None).keep(Duration::ZERO);
        Self {
            client,
            names: names.into_iter().map(|name| name.as_ref().into()).collect(),
            settings,
            wait: None,
        }
    }

    /// Shares each lock with other readers. They are acquired one by one, in order. See
    /// [`Lock::shared`].
    pub fn shared(self) -> Self {
        self.change(Lock::shared)
    }

    /// The lease duration of each name without renewal. See [`Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|lock| lock.ttl(ttl))
    }

    /// Never renews the leases. See [`Lock::no_renewal`].
    pub fn no_renewal(self) -> Self {
        self.change(Lock::no_renewal)
    }

    /// The maximum time to hold the locks, renewals included. See [`Lock::max_hold`].
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|lock| lock.max_hold(length))
    }

    /// How many replicas must acknowledge each grant and each renewal. See [`Lock::replicas`].
    pub fn replicas(self, replicas: u32) -> Self {
        self.change(|lock| lock.replicas(replicas))
    }

    /// Attaches metadata to the lease of each name. See [`Lock::meta`].
    pub fn meta(self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|lock| lock.meta(field, value))
    }

    /// The maximum time that [`acquire`](MultiLock::acquire), [`with`](MultiLock::with) and
    /// [`try_with`](MultiLock::try_with) wait for all locks together. Without it they wait
    /// indefinitely. [`Duration::ZERO`] tries once. When the time is up they fail with
    /// [`ErrorKind::Busy`], which names a lock that was busy and its holder.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let held = tenure.lock("b").acquire().await?;
    /// let both = tenure.locks(["a", "b"]).wait(Duration::from_millis(20));
    /// let error = both.acquire().await.unwrap_err();
    /// assert_eq!(error.kind(), tenure::ErrorKind::Busy);
    /// assert!(error.to_string().contains("`b`"));
    /// # drop(held);
    /// # Ok(()) }) }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// The names, as given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }

    /// Waits until all locks can be acquired together. If one that it has already is lost while it waits
    /// for the others, it releases all and begins anew.
    ///
    /// For the first second it holds nothing while it waits. Then it acquires the locks one by one, in
    /// an order that is the same for all clients, and keeps those that it has. So callers that name the
    /// same locks in different orders cannot block each other, and none waits forever while others get
    /// their turns.
    ///
    /// # Errors
    ///
    /// As for [`Lock::acquire`]; [`ErrorKind::InvalidSetting`] without a name, or with more than
    /// [`NAMES_MAX`]; [`ErrorKind::InvalidName`] for a name that is given twice. No lock is held after
    /// an error.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future leaves the queues, and what was granted is released at once.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        let locks = self.in_order()?;
        self.client.check_open()?;
        let clock = &self.client.core.clock;
        let started = clock.now();
        let wait = Wait {
            client: &self.client,
            started,
            limit: self.wait.map(|wait| started + wait),
        };
        let groups = self.groups(&locks);
        loop {
            let held = wait.for_all(&groups).await?;
            let guard = self.guard(held);
            if guard.is_valid() {
                return Ok(guard);
            }
            let lost = guard.lost_error();
            Held(guard).release().await;
            if wait.is_over() {
                return Err(lost);
            }
        }
    }

    /// Acquires the locks if all of them are free, and returns `None` if one is not.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](MultiLock::acquire). A busy lock is not an error.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](MultiLock::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        let locks = self.in_order()?;
        self.client.check_open()?;
        let mut held = Held::new(&self.client);
        for group in self.groups(&locks) {
            let Some(guards) = try_group(&self.client, group).await? else {
                held.release().await;
                return Ok(None);
            };
            held.extend(guards);
        }
        Ok(Some(self.guard(held)))
    }

    /// Runs `work` under the locks, and cancels it if one of them is lost.
    ///
    /// ```
    /// # async fn example() -> Result<(), tenure::Error> {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let moved = tenure.locks(["account:1", "account:2"]).with(async |guard| {
    ///     let fence = guard.fence("account:1"); // pass each fence to what its lock protects
    ///     fence.is_some()
    /// }).await?;
    /// assert!(moved);
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`acquire`](MultiLock::acquire), and [`ErrorKind::Lost`], which names the lock, if one
    /// was lost before the work finished. Its result cannot be trusted then, and is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work at its current await point and releases the locks.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T> {
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
                for (name, released) in guard.release().await? {
                    if released == Released::AlreadyGone {
                        return Err(Error::lost(&name, LostReason::Gone));
                    }
                }
                Ok(done)
            }
            _ => Err(guard.lost_error()),
        }
    }

    /// Like [`with`](MultiLock::with), for work that can fail: the locks are released either way.
    ///
    /// # Errors
    ///
    /// The error of the work, or as for [`with`](MultiLock::with). If a lock was lost before the work
    /// finished, the error of the work is dropped: it may only be a consequence.
    ///
    /// # Cancel safety
    ///
    /// As for [`with`](MultiLock::with).
    pub async fn try_with<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&MultiGuard) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with(work).await?
    }

    fn change(mut self, change: impl FnOnce(Lock) -> Lock) -> Self {
        self.settings = change(self.settings);
        self
    }

    /// The locks in the order in which every client acquires them. Validates everything before
    /// anything is sent.
    fn in_order(&self) -> Result<Vec<OrderedLock>> {
        let count = self.names.len();
        if count == 0 || count > NAMES_MAX {
            let cause = format!("1 to {NAMES_MAX} names can be locked together");
            return Err(Error::invalid_setting("the number of names", count, &cause));
        }
        let mut locks = Vec::with_capacity(count);
        let mut known = HashSet::with_capacity(count);
        for name in &self.names {
            let name = LockName::from_shared(name)?;
            let name = self.client.core.settings.allowed(name)?;
            if !known.insert(name.clone()) {
                let cause = "it is given twice: name each lock once";
                return Err(Error::invalid_name(name.as_str(), cause));
            }
            let lock = self.settings.with_name(&name);
            lock.request()?;
            let slot = self.client.core.store.slot_of(&name);
            locks.push(OrderedLock { slot, name, lock });
        }
        if !bug(Bug::SeveralInGivenOrder) {
            locks.sort_by(|a, b| (a.slot, a.name.as_str()).cmp(&(b.slot, b.name.as_str())));
        }
        Ok(locks)
    }

    /// The locks by what can be acquired in one step: all, or those of a slot, or each.
    fn groups<'a>(&self, locks: &'a [OrderedLock]) -> Vec<&'a [OrderedLock]> {
        if self.settings.mode() == Mode::Shared {
            return locks.chunks(1).collect();
        }
        let together = |locks: &[OrderedLock]| {
            let names: Vec<&LockName> = locks.iter().map(|lock| &lock.name).collect();
            self.client.core.store.acquires_together(&names)
        };
        if together(locks) {
            return vec![locks];
        }
        let slots = locks.chunk_by(|a, b| a.slot == b.slot);
        let groups =
            slots.flat_map(|slot| slot.chunks(if together(slot) { slot.len() } else { 1 }));
        groups.collect()
    }

    /// The guard, with the names in the order in which they were given.
    fn guard(&self, held: Held) -> MultiGuard {
        let mut guards = held.into_guards();
        let place = |guard: &Guard| {
            let name = guard.name().as_str();
            self.names.iter().position(|given| &**given == name)
        };
        guards.sort_by_cached_key(place);
        MultiGuard::new(Arc::clone(&self.client), guards)
    }
}

/// A lock with its place in the order.
struct OrderedLock {
    slot: u16,
    name: LockName,
    lock: Lock,
}

/// What was acquired so far. Dropping it releases all of it.
struct Held(MultiGuard);

impl Held {
    fn new(client: &Arc<ClientHandle>) -> Self {
        Self(MultiGuard::new(Arc::clone(client), Vec::new()))
    }

    fn extend(&mut self, guards: Vec<Guard>) {
        self.0.add(guards);
    }

    /// Releases all, and waits until they are free. Whether they still were held does not matter.
    async fn release(self) {
        if bug(Bug::SeveralKeepsPart) {
            return std::mem::forget(self.0);
        }
        // A refusal is reported by whoever needs the lock.
        let _ = self.0.release().await;
    }

    /// Releases all because of this error. A server that cannot be reached is not waited for: then they
    /// are released in the background.
    async fn give_up(self, error: Error) -> Error {
        if error.kind() == ErrorKind::Busy {
            self.release().await;
        }
        error
    }

    fn into_guards(self) -> Vec<Guard> {
        self.0.into_guards()
    }
}

/// A caller that waits for all locks.
struct Wait<'a> {
    client: &'a Arc<ClientHandle>,
    started: Moment,
    limit: Option<Moment>,
}

impl Wait<'_> {
    /// Waits for one group after the other, and keeps what it has. What it has may be lost when it
    /// returns.
    async fn for_all(&self, groups: &[&[OrderedLock]]) -> Result<Held> {
        let mut held = Held::new(self.client);
        for group in groups {
            match self.for_group(group).await {
                Ok(guards) => held.extend(guards),
                Err(error) => return Err(held.give_up(error).await),
            }
        }
        Ok(held)
    }

    /// Whether the caller's time is over.
    fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| limit <= self.now())
    }

    /// Waits for locks that can be acquired in one step. Never waits for one while it holds a later
    /// one.
    async fn for_group(&self, locks: &[OrderedLock]) -> Result<Vec<Guard>> {
        if locks.len() == 1 {
            return self.one_by_one(locks).await;
        }
        let patience = if bug(Bug::SeveralStarves) {
            PATIENCE * 3_600
        } else {
            PATIENCE
        };
        let patience = self.now() + patience;
        let mut busy = match self.try_all(locks, None).await? {
            Tried::Granted(guards) => return Ok(guards),
            Tried::NotTogether => return self.one_by_one(locks).await,
            Tried::Busy(at, holder) => (at, Some(*holder)),
        };
        while self.now() < patience {
            let (at, holder) = busy;
            let Some(first) = self.wait_for(&locks[at], holder, patience).await? else {
                break;
            };
            // What was offered is passed on at once if the rest is not free.
            busy = match self.try_all(locks, Some((at, first))).await? {
                Tried::Granted(guards) => return Ok(guards),
                Tried::NotTogether => break,
                Tried::Busy(at, holder) => (at, Some(*holder)),
            };
        }
        self.one_by_one(locks).await
    }

    /// Acquires locks one after the other, and keeps what it has. In the order of all clients, so that
    /// they cannot wait for each other in a circle.
    async fn one_by_one(&self, locks: &[OrderedLock]) -> Result<Vec<Guard>> {
        let mut held = Held::new(self.client);
        let never = Moment::from_nanos(u64::MAX);
        for lock in locks {
            match self.wait_for(lock, None, never).await {
                Ok(guard) => held.extend(guard.into_iter().collect()),
                Err(error) => return Err(held.give_up(error).await),
            }
        }
        Ok(held.into_guards())
    }

    /// Tries all locks, or all but the one that the caller has already.
    async fn try_all(&self, locks: &[OrderedLock], first: Option<(usize, Guard)>) -> Result<Tried> {
        let without = first.as_ref().map(|(at, _)| *at);
        let wanted = |at: &usize| Some(*at) != without;
        let places: Vec<usize> = (0..locks.len()).filter(wanted).collect();
        let requests = places.iter().map(|at| locks[*at].lock.request());
        let requests = requests.collect::<Result<Vec<_>>>()?;
        Ok(
            match acquire_several::try_acquire(self.client, requests).await? {
                SeveralOutcome::Granted(mut guards) => {
                    guards.extend(first.map(|(_, guard)| guard));
                    Tried::Granted(guards)
                }
                SeveralOutcome::Busy(at, busy) => {
                    // Before the caller may be told that it has nothing.
                    if let Some((_, guard)) = first {
                        let _ = guard.release().await;
                    }
                    Tried::Busy(places[at], Box::new(Holder::from(&busy)))
                }
                SeveralOutcome::NotTogether => Tried::NotTogether,
            },
        )
    }

    /// Waits for one lock; `None` if the caller's patience for it is over.
    async fn wait_for(
        &self,
        lock: &OrderedLock,
        holder: Option<Holder>,
        patience: Moment,
    ) -> Result<Option<Guard>> {
        let now = self.now();
        let busy = |holder| {
            Error::busy(
                &lock.name,
                self.now().saturating_since(self.started),
                holder,
            )
        };
        if holder.is_some() && self.is_over() {
            return Err(busy(holder));
        }
        let until = self.limit.map_or(patience, |limit| limit.min(patience));
        let mut waiting = lock.lock.clone();
        if until < Moment::from_nanos(u64::MAX) {
            waiting = waiting.wait(until.saturating_since(now));
        }
        match waiting.acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) => match error.kind() {
                // Also if the server is slow: who has more time than this gives it more.
                ErrorKind::Busy | ErrorKind::Unavailable if self.has_more_time(until) => Ok(None),
                ErrorKind::Busy => Err(busy(error.holder().cloned().or(holder))),
                _ => Err(error),
            },
        }
    }

    /// Whether the caller waits on after this moment.
    fn has_more_time(&self, until: Moment) -> bool {
        let never = Moment::from_nanos(u64::MAX);
        until < never && self.limit.is_none_or(|limit| until < limit)
    }

    fn now(&self) -> Moment {
        self.client.core.clock.now()
    }
}

/// The result of an attempt for all locks of a group.
enum Tried {
    Granted(Vec<Guard>),
    /// The number of a lock that is busy, and its holder.
    Busy(usize, Box<Holder>),
    NotTogether,
}

/// Tries once; `None` if a lock is busy, and none is held then.
async fn try_group(
    client: &Arc<ClientHandle>,
    locks: &[OrderedLock],
) -> Result<Option<Vec<Guard>>> {
    if locks.len() > 1 {
        let requests = locks.iter().map(|lock| lock.lock.request());
        let requests = requests.collect::<Result<Vec<_>>>()?;
        match acquire_several::try_acquire(client, requests).await? {
            SeveralOutcome::Granted(guards) => return Ok(Some(guards)),
            SeveralOutcome::Busy(..) => return Ok(None),
            SeveralOutcome::NotTogether => {}
        }
    }
    let mut held = Held::new(client);
    for lock in locks {
        let Some(guard) = lock.lock.try_acquire().await? else {
            held.release().await;
            return Ok(None);
        };
        held.extend(vec![guard]);
    }
    Ok(Some(held.into_guards()))
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("names", &self.names)
            .field("settings", &self.settings)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
