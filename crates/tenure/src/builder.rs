//! The settings of a client, before it connects.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::client::Tenure;
use crate::error::Result;
use crate::layout::Layout;
use crate::lease::check_ttl;
use crate::moment::Clock;
use crate::settings::Settings;
use crate::url;

/// The settings of a client, before it connects. What kind of client is made says its parameter:
/// [`Tenure`], or [`Redlock`](crate::Redlock).
#[must_use = "a builder does nothing until it connects"]
pub struct Builder<T = Tenure> {
    pub(crate) urls: Vec<String>,
    pub(crate) settings: Settings,
    pub(crate) layout: Option<Layout>,
    pub(crate) clock: Clock,
    made: PhantomData<fn() -> T>,
}

impl<T> Builder<T> {
    pub(crate) fn new(urls: Vec<String>) -> Self {
        Self {
            urls,
            settings: Settings::default(),
            layout: None,
            clock: Clock::Boot,
            made: PhantomData,
        }
    }

    /// How long leases last without renewal, where a lock does not say otherwise: 100 ms to 24 h,
    /// 30 s by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// How long a call goes on trying while the server cannot be reached: 5 s by default. Shorter:
    /// callers learn sooner. Longer: they survive a restart of the server.
    pub fn unreachable_after(mut self, limit: Duration) -> Self {
        self.settings.unreachable_after = limit;
        self
    }

    /// Lets a tokio runtime drive a connection of its own, for callers who run there: the fastest
    /// way to take a free lock. Without it a thread of the client drives all connections, which
    /// works from any executor.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// use tenure::Tenure;
    /// use tokio::runtime::Handle;
    ///
    /// let tenure = Tenure::builder("memory://").runtime(Handle::current()).connect().await?;
    /// # drop(tenure);
    /// # Ok(()) }
    /// ```
    ///
    /// The runtime must have IO and timers, as `#[tokio::main]` and `enable_all` give it: otherwise
    /// connecting fails, and tokio says so by a panic of its own in the background. Should it be
    /// blocked or shut down later, callers elsewhere are not affected.
    pub fn runtime(mut self, runtime: tokio::runtime::Handle) -> Self {
        self.settings.runtime = Some(runtime);
        self
    }

    /// Whether a released lock may pass to the next waiter of this process without asking the
    /// store: on by default. Each holder has a fence of its own, greater than the one before.
    ///
    /// Only between waiters with the same ttl and settings, never for
    /// [`fixed`](crate::Lock::fixed) leases, and only within the bounds of
    /// [`hand_off_turns`](Builder::hand_off_turns) and [`hand_off_time`](Builder::hand_off_time),
    /// after which the waiters of other processes get their turn.
    pub fn hand_off(mut self, on: bool) -> Self {
        self.settings.hand_off.on = on;
        self
    }

    /// How often in a row a lock may be handed off inside this process: 256 times by default, and
    /// at most 10 000. Fewer: other processes wait less. More: fewer questions to the store.
    pub fn hand_off_turns(mut self, turns: u32) -> Self {
        self.settings.hand_off.turns = turns;
        self
    }

    /// For how long a lock may be handed off inside this process, counted from when the store
    /// granted it: 10 ms by default. What is handed off last may still be held for as long as its
    /// holder likes.
    pub fn hand_off_time(mut self, time: Duration) -> Self {
        self.settings.hand_off.time = time;
        self
    }

    /// Which bytes locks are in Redis, and so with whose locks they exclude each other:
    /// [`Layout::Native`] by default. The URL can say it too, as in `?layout=redisson`.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// What this client is called where holders are listed, for example the service's name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Says something about this client where holders are listed: its user, its command, its
    /// version. A few short entries: they are in the client's record, which is written at most twice
    /// a second. What belongs to one lease is [`meta`](crate::Lock::meta).
    pub fn about(mut self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.about.insert(field.into(), value.into());
        self
    }

    /// Refuses settings that are out of their limits.
    pub(crate) fn check(&self) -> Result<()> {
        check_ttl("ttl", self.settings.ttl)?;
        self.settings.hand_off.check()
    }
}

impl<T> Clone for Builder<T> {
    fn clone(&self) -> Self {
        Self {
            urls: self.urls.clone(),
            settings: self.settings.clone(),
            layout: self.layout,
            clock: self.clock.clone(),
            made: PhantomData,
        }
    }
}

/// Without the passwords.
impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<String> = self.urls.iter().map(|url| url::masked_url(url)).collect();
        f.debug_struct("Builder")
            .field("urls", &urls)
            .field("settings", &self.settings)
            .field("layout", &self.layout)
            .field("clock", &self.clock)
            .finish()
    }
}
