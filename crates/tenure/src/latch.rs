//! A latch: opens when so many parties have arrived, and stays open.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client_handle::ClientHandle;
use crate::engine::latch;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::store::Arrival;

/// The greatest number of parties of a latch.
pub const PARTIES_MAX: u32 = 100_000;
/// The longest name of a party, in bytes.
const PARTY_BYTES_MAX: usize = 256;
/// For how long a latch is remembered by default.
const REMEMBER_DEFAULT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const REMEMBER_MIN: Duration = Duration::from_secs(1);
const REMEMBER_MAX: Duration = Duration::from_secs(3_660 * 24 * 60 * 60);

/// A latch: it opens when so many parties have arrived, and stays open. Creating one is free and sends
/// nothing.
///
/// ```
/// # fn main() -> Result<(), tenure::Error> { tenure::blocking::block_on(async {
/// # let tenure = tenure::Tenure::connect("memory://").await?;
/// let loaded = tenure.latch("loaded", 2);
/// loaded.arrive("shard-1").await?;
/// assert!(!loaded.is_open().await?);
/// loaded.arrive("shard-2").await?;
/// loaded.wait().await?; // passes, now and later
/// # Ok(()) }) }
/// ```
///
/// Parties are counted, not calls: a party that arrives again, because its process was restarted or a reply
/// was lost, counts once. So each party needs a name of its own that is the same after a restart. Any
/// process may wait, whether it is a party or not.
///
/// The number of parties is stored with the latch; a program that uses another one gets an error that names
/// both. A latch is remembered for a time after the last arrival, open or not, and then it is new again. Use
/// a new name for each occasion. An arrival has no lease: a party that dies after it has arrived has
/// arrived.
///
/// Not available in Redisson's layout, and not with a [`Redlock`](crate::Redlock): different majorities of
/// its nodes have seen different parties. So that does not compile:
///
/// ```compile_fail,E0599
/// # async fn example(redlock: tenure::Redlock) {
/// redlock.latch("loaded", 2).wait().await;
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a latch does nothing until it is used"]
pub struct Latch {
    client: Arc<ClientHandle>,
    name: Arc<str>,
    need: u32,
    remember: Duration,
    limit: Option<Duration>,
}

impl Latch {
    pub(crate) fn new(client: &Arc<ClientHandle>, name: &str, need: u32) -> Self {
        Self {
            client: Arc::clone(client),
            name: name.into(),
            need,
            remember: REMEMBER_DEFAULT,
            limit: None,
        }
    }

    /// For how long the latch is remembered after an arrival: from a second to ten years, 7 days by
    /// default. Longer than the parties are apart, and longer than those who wait can be late.
    pub fn remember(mut self, time: Duration) -> Self {
        self.remember = time;
        self
    }

    /// The maximum time that [`wait`](Latch::wait) waits. Without it, it waits indefinitely.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The latch's name, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many parties must arrive, as given.
    pub fn need(&self) -> u32 {
        self.need
    }

    /// Says that this party has arrived, and returns how many have. Repeating it changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the latch waits for another number of
    /// parties, [`ErrorKind::NotALock`](crate::ErrorKind::NotALock) if the name is that of a lock or a
    /// semaphore; if a setting or the party's name is invalid, or the store cannot be reached or refuses
    /// the request.
    ///
    /// # Cancel safety
    ///
    /// Once polled, it continues in the background.
    pub async fn arrive(&self, party: impl Into<String>) -> Result<u32> {
        let party = party.into();
        if party.is_empty() || party.len() > PARTY_BYTES_MAX {
            let shown: String = party.chars().take(64).collect();
            let cause = "it must have 1 to 256 bytes";
            return Err(Error::invalid_setting("the name of a party", shown, cause));
        }
        self.ask(Some(party)).await
    }

    /// How many parties have arrived.
    ///
    /// # Errors
    ///
    /// As for [`arrive`](Latch::arrive).
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn arrived(&self) -> Result<u32> {
        self.ask(None).await
    }

    /// Whether all have arrived.
    ///
    /// # Errors
    ///
    /// As for [`arrive`](Latch::arrive).
    ///
    /// # Cancel safety
    ///
    /// Safe: read-only.
    pub async fn is_open(&self) -> Result<bool> {
        Ok(self.arrived().await? >= self.need)
    }

    /// Waits until all have arrived. The server tells of it; every 15 seconds the waiter looks by
    /// itself, because a message may be lost.
    ///
    /// # Errors
    ///
    /// As for [`arrive`](Latch::arrive), and [`ErrorKind::Busy`](crate::ErrorKind::Busy) if too few have
    /// arrived within the [`limit`](Latch::limit).
    ///
    /// # Cancel safety
    ///
    /// Safe: it changes nothing.
    pub async fn wait(&self) -> Result<()> {
        let look = self.arrival(None)?;
        let core = Arc::clone(&self.client.core);
        let until = self.limit.map(|limit| core.clock.now() + limit);
        let waiting = latch::wait(core, look, until);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let outcome = self.client.engine.run(async move {
            tokio::select! {
                outcome = waiting => Some(outcome),
                // The caller is gone.
                _ = stopped => None,
            }
        });
        let outcome = outcome.await?;
        drop(stop);
        match outcome.unwrap_or_else(|| Err(Error::closed()))? {
            Ok(()) => Ok(()),
            Err(arrived) => {
                let (name, need) = (&self.name, self.need);
                let limit = self.limit.unwrap_or_default();
                let text = format!(
                    "latch `{name}` did not open within {limit:.0?}: {arrived} of {need} parties have \
                     arrived"
                );
                Err(Error::new(ErrorKind::Busy, text))
            }
        }
    }

    async fn ask(&self, party: Option<String>) -> Result<u32> {
        let arrival = self.arrival(party)?;
        let core = Arc::clone(&self.client.core);
        let asking = async move { latch::arrive(&core, &arrival).await };
        self.client.engine.run(asking).await?
    }

    /// Validates the settings before anything is sent.
    fn arrival(&self, party: Option<String>) -> Result<Arrival> {
        let name = LockName::from_shared(&self.name)?;
        let name = self.client.core.settings.allowed(name)?;
        if self.need == 0 || self.need > PARTIES_MAX {
            let cause = "it must be 1 to 100000";
            let setting = "the number of parties";
            return Err(Error::invalid_setting(setting, self.need, cause));
        }
        if self.remember < REMEMBER_MIN || self.remember > REMEMBER_MAX {
            let (value, cause) = (format!("{:?}", self.remember), "from a second to ten years");
            return Err(Error::invalid_setting("the time to remember", value, cause));
        }
        self.client.core.settings.check_latches(&self.name)?;
        self.client.check_open()?;
        Ok(Arrival {
            name,
            need: self.need,
            remember: self.remember,
            party,
        })
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("name", &self.name)
            .field("need", &self.need)
            .field("remember", &self.remember)
            .finish_non_exhaustive()
    }
}
