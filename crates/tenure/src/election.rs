//! Leader election: a lock with a value, a term and observers.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::client::Tenure;
use crate::client_handle::ClientHandle;
use crate::engine::health::HealthCheck;
use crate::engine::observe::{Observation, Report};
use crate::error::{Error, Result};
use crate::leader::Leader;
use crate::leadership::Leadership;
use crate::lock::Lock;
use crate::name::LockName;
use crate::observer::Observer;
use crate::standing::{LostReason, Released};

/// The default ttl of a leader's lease: how long nobody leads after a leader has died. Shorter than
/// that of a lock, because more depends on it.
const TTL_DEFAULT: Duration = Duration::from_secs(15);
/// The longest value. It is sent with every campaign and to every observer.
const VALUE_BYTES_MAX: usize = 2_048;

/// An election: of all that campaign, one leads. Creating one is free and sends nothing.
///
/// It is a [lock](crate::Lock) with a value, a term and observers. The leader's *term* is the fence of
/// its lease: pass it to what the leader controls, which must refuse a lower one. A leader that was
/// paused for too long may believe for a moment that it still leads; nothing but the term protects
/// against that.
///
/// ```
/// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
/// # let tenure = tenure::Tenure::connect("memory://").await?;
/// let election = tenure.election("scheduler");
/// let leadership = election.campaign("http://10.0.0.7:8080").await?;
/// println!("leads in term {}", leadership.term());
///
/// let leader = election.leader().await?.expect("somebody leads");
/// assert_eq!(leader.value.as_deref(), Some("http://10.0.0.7:8080"));
/// assert_eq!(leader.term, Some(leadership.term()));
/// leadership.resign().await?;
/// # Ok(()) }) }
/// ```
///
/// The type parameter is the client that it was made from. An election of a [`Tenure`] also knows its
/// [`candidates`](Election::candidates); one of a [`Redlock`](crate::Redlock) does not, because its
/// servers keep no common queue:
///
/// ```compile_fail,E0599
/// # async fn example(redlock: tenure::Redlock) {
/// redlock.election("scheduler").candidates().await;
/// # }
/// ```
///
/// Settings are validated when the election is used, before anything is sent.
#[must_use = "an election does nothing until it is used"]
pub struct Election<T = Tenure> {
    client: Arc<ClientHandle>,
    name: Arc<str>,
    ttl: Option<Duration>,
    wait: Option<Duration>,
    replicas: Option<u32>,
    max_hold: Option<Duration>,
    health: Option<HealthCheck>,
    of: PhantomData<fn() -> T>,
}

impl<T> Election<T> {
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str) -> Self {
        Self {
            client,
            name: name.into(),
            ttl: None,
            wait: None,
            replicas: None,
            max_hold: None,
            health: None,
            of: PhantomData,
        }
    }

    /// The lease duration of a leader, 15 s by default: how long nobody leads after a leader has died.
    /// See [`Lock::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The maximum time that [`campaign`](Election::campaign) and [`with`](Election::with) wait.
    /// Without it they wait indefinitely. See [`Lock::wait`].
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// How many replicas must acknowledge a leader's lease. See [`Lock::replicas`].
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = Some(replicas);
        self
    }

    /// The maximum time to lead, renewals included. After that, [`Leadership::lost`] resolves. See
    /// [`Lock::max_hold`].
    pub fn max_hold(mut self, length: Duration) -> Self {
        self.max_hold = Some(length);
        self
    }

    /// Checks the leader regularly, and lets it resign when the check returns `false`, panics, or does
    /// not finish in time. [`Leadership::lost`] then resolves with
    /// [`LostReason::Unhealthy`](crate::LostReason::Unhealthy).
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let election = tenure.election("scheduler").health(|| async {
    ///     // Ask what this leader needs: its database, its disk.
    ///     true
    /// });
    /// # drop(election);
    /// # Ok(()) }) }
    /// ```
    ///
    /// The check runs when the leader is elected and every third of the ttl after that, and may take a
    /// third of the ttl: every 5 s, for at most 5 s, unless the [`ttl`](Election::ttl) is changed. It
    /// runs on the tokio runtime from which the campaign was started, or else on a thread of its own,
    /// and must not block. A candidate is not checked, only a leader.
    pub fn health<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        self.health = Some(Arc::new(move || Box::pin(check())));
        self
    }

    /// The election's name, as given. A lock of the same name is the same lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits in the queue of candidates until elected. Observers see `value`: the leader's address, for
    /// example. 1 to 2048 bytes.
    ///
    /// # Errors
    ///
    /// As for [`Lock::acquire`], and [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if
    /// the value is empty or too long.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future leaves the queue, and a grant in flight is released at once.
    pub async fn campaign(&self, value: impl Into<String>) -> Result<Leadership<T>> {
        let value = value.into();
        check_value(&value)?;
        let guard = self.lock().for_candidate(&value).acquire().await?;
        Ok(Leadership::new(guard, value, self.health.clone()))
    }

    /// Campaigns, runs `work` as the leader, and resigns. Cancels the work if the leadership is lost.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let term = tenure.election("scheduler").with("node-1", async |leadership| {
    ///     leadership.term() // lead
    /// }).await?;
    /// # let _ = term;
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`campaign`](Election::campaign), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the
    /// leadership was lost before the work finished. Its result cannot be trusted then, and is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work at its current await point and resigns.
    pub async fn with<R>(
        &self,
        value: impl Into<String>,
        work: impl AsyncFnOnce(&Leadership<T>) -> R,
    ) -> Result<R> {
        let leadership = self.campaign(value).await?;
        let result = {
            let work = work(&leadership);
            tokio::pin!(work);
            let lost = leadership.lost();
            tokio::pin!(lost);
            tokio::select! {
                biased;
                _ = &mut lost => None,
                done = &mut work => Some(done),
            }
        };
        match result {
            Some(done) if leadership.is_valid() => {
                let name = leadership.name().clone();
                match leadership.resign().await? {
                    Released::AlreadyGone => Err(Error::lost(&name, LostReason::Gone)),
                    Released::WasHeld | Released::Unknown => Ok(done),
                }
            }
            _ => Err(leadership.lost_error()),
        }
    }

    /// Who leads now; `None` if nobody does. A candidate that was offered the lock and has not yet
    /// accepted it does not lead. The holder of an ordinary lock of the same name is a leader without
    /// value and term.
    ///
    /// On a [`Redlock`](crate::Redlock), a majority of the servers decides.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached or refuses the request, and
    /// [`ErrorKind::NotALock`](crate::ErrorKind::NotALock) if the key is not a lock.
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let holder = self.lock().holder_brief().await?;
        Ok(holder.and_then(Leader::of))
    }

    /// Observes who leads: first the present leader, then each change.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let election = tenure.election("scheduler");
    /// let mut observer = election.observe()?;
    /// assert!(observer.next().await?.is_none(), "nobody leads");
    /// let leadership = election.campaign("node-1").await?;
    /// let leader = observer.next().await?.expect("a leader");
    /// assert_eq!(leader.value.as_deref(), Some("node-1"));
    /// # drop(leadership);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the name or a setting is invalid, or the client was shut down. Problems with the store are
    /// reported by [`Observer::next`].
    pub fn observe(&self) -> Result<Observer> {
        let name = LockName::from_shared(&self.name)?;
        let name = self.client.core.settings.allowed(name)?;
        self.client.check_open()?;
        let (reports, reported) = watch::channel(Report::Nothing);
        let core = Arc::clone(&self.client.core);
        let observation = Observation::new(core, name, self.ttl_used(), reports);
        self.client.engine.spawn(observation.run());
        Ok(Observer::new(Arc::clone(&self.client), reported))
    }

    pub(crate) fn client(&self) -> &Arc<ClientHandle> {
        &self.client
    }

    fn lock(&self) -> Lock {
        let mut lock = Lock::new(Arc::clone(&self.client), &self.name, None).ttl(self.ttl_used());
        if let Some(replicas) = self.replicas {
            lock = lock.replicas(replicas);
        }
        if let Some(max_hold) = self.max_hold {
            lock = lock.max_hold(max_hold);
        }
        match self.wait {
            Some(wait) => lock.wait(wait),
            None => lock,
        }
    }

    /// The default is no longer than the client's settings allow.
    fn ttl_used(&self) -> Duration {
        let settings = &self.client.core.settings;
        self.ttl.unwrap_or_else(|| {
            let limits = [settings.longest_ttl, settings.after_failover];
            limits
                .into_iter()
                .flatten()
                .fold(TTL_DEFAULT, Duration::min)
        })
    }
}

/// Whether a leader may have this value.
pub(crate) fn check_value(value: &str) -> Result<()> {
    let cause = if value.is_empty() {
        "it is empty: pass what observers should know of the leader, such as its address".to_owned()
    } else if value.len() > VALUE_BYTES_MAX {
        let bytes = value.len();
        format!(
            "it has {bytes} bytes and at most {VALUE_BYTES_MAX} are allowed: store it elsewhere"
        )
    } else {
        return Ok(());
    };
    let shown: String = value.chars().take(64).collect();
    Err(Error::invalid_setting(
        "the value of a leader",
        shown,
        &cause,
    ))
}

impl<T> Clone for Election<T> {
    fn clone(&self) -> Self {
        Self {
            client: Arc::clone(&self.client),
            name: Arc::clone(&self.name),
            ttl: self.ttl,
            wait: self.wait,
            replicas: self.replicas,
            max_hold: self.max_hold,
            health: self.health.clone(),
            of: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Election<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
