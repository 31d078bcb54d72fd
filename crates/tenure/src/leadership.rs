//! The leadership: what the caller has while it leads.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::client::Tenure;
use crate::election::check_value;
use crate::engine::health::{self, HealthCheck};
use crate::engine::proclaim;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lease::{Fence, LeaseId};
use crate::moment::Moment;
use crate::name::LockName;
use crate::standing::{LostReason, Released, Standing};
use crate::store::Proclamation;

/// An election that was won.
///
/// The lease is renewed in the background as long as this lives. Pass the [`term`](Leadership::term) to
/// what the leader controls, stop leading when [`lost`](Leadership::lost) resolves, and finish with
/// [`resign`](Leadership::resign). Dropping it resigns in the background, and so does
/// [`Locks::shutdown`](crate::Locks::shutdown): see [`Guard`](crate::Guard) for what that means.
#[must_use = "if unused, the leader resigns at once"]
pub struct Leadership<T = Tenure> {
    guard: Guard,
    value: Mutex<LastValue>,
    of: PhantomData<fn() -> T>,
}

/// The last value that the store is known to have, and the number of the last one that was sent.
struct LastValue {
    value: Arc<str>,
    version: u64,
    sent: u64,
}

impl<T> Leadership<T> {
    pub(crate) fn new(guard: Guard, value: String, health: Option<HealthCheck>) -> Self {
        if let Some(check) = health {
            health::supervise(guard.client(), guard.belief(), check);
        }
        Self {
            guard,
            value: Mutex::new(LastValue {
                value: value.into(),
                version: 0,
                sent: 0,
            }),
            of: PhantomData,
        }
    }

    /// The guard of the leader's lock, for code that works with guards.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The election's name.
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// The term: the fence of the leader's lease, greater than that of every leader before. Pass it to
    /// what the leader controls, which must refuse a term lower than the highest it has seen.
    pub fn term(&self) -> Fence {
        self.guard.fence()
    }

    /// What the leader campaigned with, or proclaimed last.
    pub fn value(&self) -> Arc<str> {
        Arc::clone(&self.last_value().value)
    }

    /// The lease's id, as shown by `holder()` and listings.
    pub fn lease_id(&self) -> &LeaseId {
        self.guard.lease_id()
    }

    /// The lease duration: from one renewal until it expires.
    pub fn ttl(&self) -> Duration {
        self.guard.ttl()
    }

    /// The deadline until which the leadership can be relied on. See [`Guard::deadline`].
    pub fn deadline(&self) -> Moment {
        self.guard.deadline()
    }

    /// The time until the deadline if no renewal succeeds; zero once the leadership is lost.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether it leads, as far as is known without asking the store. See [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Whether the leadership is held, suspect or lost at this moment.
    pub fn standing(&self) -> Standing {
        self.guard.standing()
    }

    /// Makes sure that at least `need` is left. See [`Guard::ensure`].
    ///
    /// # Errors
    ///
    /// As for [`Guard::ensure`].
    ///
    /// # Cancel safety
    ///
    /// Safe: once started, a renewal continues in the background.
    pub async fn ensure(&self, need: Duration) -> Result<()> {
        self.guard.ensure(need).await
    }

    /// Resolves with the reason when it no longer leads: no later than its deadline, even if the server
    /// cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: calling it again gives the same result.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// A token that is cancelled when it no longer leads. See [`Guard::lost_token`].
    pub fn lost_token(&self) -> CancellationToken {
        self.guard.lost_token()
    }

    /// Replaces the value that observers see. Never extends the lease. 1 to 2048 bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
    /// # let tenure = tenure::Tenure::connect("memory://").await?;
    /// let election = tenure.election("scheduler");
    /// let leadership = election.campaign("node-1, starting").await?;
    /// leadership.proclaim("node-1, ready").await?;
    /// let leader = election.leader().await?.expect("a leader");
    /// assert_eq!(leader.value.as_deref(), Some("node-1, ready"));
    /// # drop(leadership);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if it no longer leads: nothing was changed then. After
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) the value may or may not have changed.
    /// [`ErrorKind::InvalidSetting`](crate::ErrorKind::InvalidSetting) if the value is empty or too long.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it continues in the background. A later call always wins.
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<()> {
        let value = value.into();
        check_value(&value)?;
        if !self.is_valid() {
            return Err(self.lost_error());
        }
        let client = self.guard.client();
        client.check_open()?;
        let version = {
            let mut last = self.last_value();
            last.sent += 1;
            last.sent
        };
        let proclamation = Proclamation {
            held: self.guard.belief().held.clone(),
            term: self.term(),
            version,
            value: value.clone(),
        };
        let core = Arc::clone(&client.core);
        let proclaiming = async move { proclaim::proclaim(&core, proclamation).await };
        client.engine.run(proclaiming).await??;
        let mut last = self.last_value();
        if version > last.version {
            (last.version, last.value) = (version, value.into());
        }
        Ok(())
    }

    /// Resigns, and reports whether it still led. The next candidate is elected at once.
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// Safe: it continues in the background.
    pub async fn resign(self) -> Result<Released> {
        self.guard.release().await
    }

    pub(crate) fn into_guard(self) -> Guard {
        self.guard
    }

    /// The error of a leadership that is no longer valid.
    pub(crate) fn lost_error(&self) -> Error {
        self.guard.lost_error()
    }

    fn last_value(&self) -> MutexGuard<'_, LastValue> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Leadership<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("name", self.name())
            .field("term", &self.term())
            .field("value", &self.value())
            .field("standing", &self.standing())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
