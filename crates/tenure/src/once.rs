//! Once per fire time of a schedule: of all processes whose timer fires, one runs the job.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client_handle::ClientHandle;
use crate::engine::once;
use crate::error::{Error, Result};
use crate::lease::LeaseId;
use crate::lock::Lock;
use crate::name::LockName;
use crate::run::Run;
use crate::store::{LeaseSpec, RunState};

/// For how long a run is remembered by default.
const REMEMBER_DEFAULT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The longest time for which a run is remembered.
const REMEMBER_MAX: Duration = Duration::from_secs(3_660 * 24 * 60 * 60);
/// How often the lock of a run may change hands under a caller that does not wait.
const TRIES_MAX: usize = 8;

/// One fire time of a schedule. Creating one is free and sends nothing.
///
/// A fleet of schedulers fires the same job on every machine. A lock alone lets the job run twice: if it is
/// quick, a machine whose timer is late finds the lock free again. So the store remembers, for each fire
/// time, that a run has begun and that it has completed.
///
/// ```
/// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
/// # let tenure = tenure::Tenure::connect("memory://").await?;
/// use tenure::{OnceState, Start};
///
/// let nightly = tenure.once("nightly", "2026-03-01T03:00Z");
/// match nightly.try_begin().await? {
///     Start::Here(run) => {
///         println!("this process does it, with fence {}", run.fence());
///         run.complete().await?;
///     }
///     Start::Elsewhere(state) => println!("nothing to do: {state}"),
/// }
/// assert!(matches!(nightly.state().await?, OnceState::Completed(_)));
/// # Ok(()) }) }
/// ```
///
/// The fire time is an identifier. Tenure compares it with nothing but other fire times, for equality, and
/// never with a clock. So all processes must write the same moment in the same way: use the time for which
/// the job was planned, not the time at which the timer went off.
///
/// A run that ends without [completing](Run::complete), because its process died, lost its lease or
/// dropped the [`Run`], is not followed by another one, unless that one allows it with
/// [`retry`](Once::retry). Of all runs for one fire time, at most one completes.
///
/// While it runs, a run holds the lock `<name>@<fire time>`. Listings show it, and it is renewed, lost and
/// released as any other lock. Different fire times do not exclude each other.
///
/// Not available in Redisson's layout, and not with a [`Redlock`](crate::Redlock): a node that lost its
/// data would let a run begin again. So that does not compile:
///
/// ```compile_fail,E0599
/// # async fn example(redlock: tenure::Redlock) {
/// redlock.once("nightly", "2026-03-01T03:00Z").try_begin().await;
/// # }
/// ```
///
/// Settings are validated when a run begins, before anything is sent.
#[derive(Clone)]
#[must_use = "it does nothing until a run begins"]
pub struct Once {
    client: Arc<ClientHandle>,
    schedule: Arc<str>,
    fire_time: Arc<str>,
    lock: Lock,
    retry: bool,
    remember: Duration,
}

/// Whether a run begins here.
#[derive(Debug)]
#[must_use = "if it is a run, it has begun"]
pub enum Start {
    /// This caller runs the job.
    Here(Run),
    /// No run begins, for this reason.
    Elsewhere(OnceState),
}

/// What the store knows of the runs for one fire time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnceState {
    /// Nothing: no run has begun, or it is no longer remembered.
    New,
    /// A run with this lease is in progress, or about to begin.
    Running(LeaseId),
    /// The last run, with this lease, ended without completing.
    Ended(LeaseId),
    /// The run with this lease has completed.
    Completed(LeaseId),
}

impl Once {
    pub(crate) fn new(client: &Arc<ClientHandle>, schedule: &str, fire_time: &str) -> Self {
        Self {
            client: Arc::clone(client),
            schedule: schedule.into(),
            fire_time: fire_time.into(),
            // It is named when its name has been checked. Fair, because a lease that is handed on in the
            // process keeps its id, by which runs are told apart.
            lock: Lock::new(Arc::clone(client), schedule, None).fair(),
            retry: false,
            remember: REMEMBER_DEFAULT,
        }
    }

    /// The lease duration of a run. See [`Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.change(|lock| lock.ttl(ttl))
    }

    /// Never renews the lease of a run. See [`Lock::no_renewal`].
    pub fn no_renewal(self) -> Self {
        self.change(Lock::no_renewal)
    }

    /// The maximum time of a run, renewals included. See [`Lock::max_hold`].
    pub fn max_hold(self, length: Duration) -> Self {
        self.change(|lock| lock.max_hold(length))
    }

    /// The maximum time that [`begin`](Once::begin) waits for a run in progress. See [`Lock::wait`].
    pub fn wait(self, limit: Duration) -> Self {
        self.change(|lock| lock.wait(limit))
    }

    /// How many replicas must acknowledge that a run begins, is renewed and has completed. See
    /// [`Lock::replicas`].
    pub fn replicas(self, replicas: u32) -> Self {
        self.change(|lock| lock.replicas(replicas))
    }

    /// Attaches metadata to the lease of a run. See [`Lock::meta`].
    pub fn meta(self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|lock| lock.meta(field, value))
    }

    /// Whether a run may begin although an earlier one ended without completing. It still waits for the
    /// lease of the earlier one to end. For jobs that may be repeated: the earlier run may have done all
    /// of its work except for saying so.
    pub fn retry(mut self, retry: bool) -> Self {
        self.retry = retry;
        self
    }

    /// For how long a run is remembered, counted anew from its begin and from its completion: from the
    /// ttl to ten years, 7 days by default. Longer than a run takes, and longer than a timer can be late:
    /// afterwards the same fire time is new again.
    pub fn remember(mut self, time: Duration) -> Self {
        self.remember = time;
        self
    }

    /// The schedule's name, as given.
    pub fn name(&self) -> &str {
        &self.schedule
    }

    /// The fire time, as given.
    pub fn fire_time(&self) -> &str {
        &self.fire_time
    }

    /// The name of the lock that a run holds: `<name>@<fire time>`.
    ///
    /// # Errors
    ///
    /// If the name or the fire time is invalid.
    pub fn lock_name(&self) -> Result<LockName> {
        LockName::of_run(&self.schedule, &self.fire_time)
    }

    /// Begins a run, unless another one is in progress, has completed, or ended without completing and
    /// must not be [retried](Once::retry). Does not wait.
    ///
    /// # Errors
    ///
    /// As for [`Lock::try_acquire`], and
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if the fire time or a setting is
    /// invalid. After [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) a run may count as begun,
    /// and as ended without completing.
    ///
    /// # Cancel safety
    ///
    /// Safe: if the future is dropped, no run counts as begun, unless the store cannot be reached.
    pub async fn try_begin(&self) -> Result<Start> {
        let lock = self.checked_lock()?;
        for _ in 0..TRIES_MAX {
            let state = self.look(&lock).await?;
            if !self.may_begin(&state) {
                return Ok(Start::Elsewhere(state));
            }
            if let Some(guard) = lock.try_acquire().await? {
                return self.begin_with(guard).await;
            }
            // Another process was faster: its state says what came of that.
        }
        let name = self.lock_name()?;
        Err(Error::busy(&name, Duration::ZERO, None))
    }

    /// Begins a run, or waits until the one in progress is over and returns what came of it. Without a
    /// limit set by [`wait`](Once::wait), as long as that takes.
    ///
    /// # Errors
    ///
    /// As for [`try_begin`](Once::try_begin), and [`ErrorKind::Busy`](crate::ErrorKind::Busy) if another
    /// run is in progress for longer than the limit.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_begin`](Once::try_begin).
    pub async fn begin(&self) -> Result<Start> {
        let lock = self.checked_lock()?;
        let state = self.look(&lock).await?;
        if !self.may_begin(&state) && !matches!(state, OnceState::Running(_)) {
            return Ok(Start::Elsewhere(state));
        }
        let guard = lock.acquire().await?;
        self.begin_with(guard).await
    }

    /// Runs `work` if no other process does or did, and records that it has completed if it returns
    /// `Ok`. `None` if the work was not begun here. Does not wait. The work is cancelled if its lease is
    /// lost.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let once = tenure.once("report", "2026-03");
    /// let report = once.run(async |run| {
    ///     Ok::<_, Box<dyn std::error::Error>>(format!("with fence {}", run.fence()))
    /// });
    /// assert!(report.await?.is_some());
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the work; as for [`try_begin`](Once::try_begin); and
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease was lost before the work finished.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work at its current await point. The run has ended then, without
    /// completing.
    pub async fn run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Run) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let Start::Here(run) = self.try_begin().await? else {
            return Ok(None);
        };
        let done = {
            let work = work(&run);
            tokio::pin!(work);
            let lost = run.lost();
            tokio::pin!(lost);
            tokio::select! {
                biased;
                _ = &mut lost => None,
                done = &mut work => Some(done),
            }
        };
        let Some(done) = done.filter(|_| run.is_valid()) else {
            return Err(run.guard().lost_error().into());
        };
        let done = done?;
        run.complete().await?;
        Ok(Some(done))
    }

    /// What the store knows of the runs for this fire time.
    ///
    /// # Errors
    ///
    /// If the fire time or a setting is invalid, or the store cannot be reached or refuses the request.
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn state(&self) -> Result<OnceState> {
        let lock = self.checked_lock()?;
        self.look(&lock).await
    }

    fn change(mut self, change: impl FnOnce(Lock) -> Lock) -> Self {
        self.lock = change(self.lock);
        self
    }

    /// The lock of the run, if everything about it is valid.
    fn checked_lock(&self) -> Result<Lock> {
        let name = self.lock_name()?;
        self.client.core.settings.check_once(&self.schedule)?;
        let lock = self.lock.with_name(&name);
        let ttl = lock.request()?.ttl;
        if self.remember < ttl || self.remember > REMEMBER_MAX {
            let cause = "it must be from the ttl of the run to ten years";
            let value = format!("{:?}", self.remember);
            return Err(Error::invalid_setting("the time to remember", value, cause));
        }
        Ok(lock)
    }

    async fn look(&self, lock: &Lock) -> Result<OnceState> {
        self.client.check_open()?;
        let request = lock.request()?;
        let held = LeaseSpec::new(request.name, LeaseId::new(""), request.ttl);
        let core = Arc::clone(&self.client.core);
        let looking = async move { once::look(&core, held).await };
        Ok(self.client.engine.run(looking).await??.into())
    }

    fn may_begin(&self, state: &OnceState) -> bool {
        match state {
            OnceState::New => true,
            OnceState::Ended(_) => self.retry,
            OnceState::Running(_) | OnceState::Completed(_) => false,
        }
    }

    async fn begin_with(&self, guard: crate::guard::Guard) -> Result<Start> {
        let (retry, remember) = (self.retry, self.remember);
        let beginning = once::begin(guard, retry, remember);
        match self.client.engine.run(beginning).await?? {
            Ok(run) => {
                let guard = run.claim().ok_or_else(Error::closed)?;
                Ok(Start::Here(Run::new(guard, remember)))
            }
            Err(state) => Ok(Start::Elsewhere(state.into())),
        }
    }
}

impl From<RunState> for OnceState {
    fn from(state: RunState) -> Self {
        match state {
            RunState::New | RunState::NotHeld(None) => Self::New,
            RunState::Running(run) | RunState::NotHeld(Some(run)) => Self::Running(run),
            RunState::Ended(run) => Self::Ended(run),
            RunState::Completed(run) => Self::Completed(run),
        }
    }
}

impl fmt::Display for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("no run has begun"),
            Self::Running(run) => write!(f, "a run is in progress, `{run}`"),
            Self::Ended(run) => write!(f, "a run ended without completing, `{run}`"),
            Self::Completed(run) => write!(f, "a run has completed, `{run}`"),
        }
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("name", &self.schedule)
            .field("fire_time", &self.fire_time)
            .field("retry", &self.retry)
            .field("remember", &self.remember)
            .finish_non_exhaustive()
    }
}
