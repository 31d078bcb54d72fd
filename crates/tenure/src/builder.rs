//! The settings of a client, before it connects.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::client::Tenure;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::lease::check_ttl;
use crate::moment::Clock;
use crate::prefix::Prefix;
use crate::settings::Settings;
use crate::url;

/// The settings of a client, before it connects. The type parameter is the kind of client:
/// [`Tenure`] or [`Redlock`](crate::Redlock).
#[must_use = "a builder does nothing until it connects"]
pub struct Builder<T = Tenure> {
    pub(crate) urls: Vec<String>,
    pub(crate) settings: Settings,
    pub(crate) layout: Option<Layout>,
    pub(crate) prefix: Option<String>,
    pub(crate) clock: Clock,
    made: PhantomData<fn() -> T>,
}

impl<T> Builder<T> {
    pub(crate) fn new(urls: Vec<String>) -> Self {
        Self {
            urls,
            settings: Settings::default(),
            layout: None,
            prefix: None,
            clock: Clock::Boot,
            made: PhantomData,
        }
    }

    /// The default lease duration without renewal, for locks that do not set their own: 100 ms to
    /// 24 h, 30 s by default.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// How long a call keeps retrying while the server cannot be reached: 5 s by default. With a
    /// shorter limit callers fail sooner; with a longer one they survive a server restart.
    pub fn unreachable_after(mut self, limit: Duration) -> Self {
        self.settings.unreachable_after = limit;
        self
    }

    /// How long a server may take to reply to one command: 1 s by default, 100 ms to 5 s. After
    /// that the connection counts as dead: it is closed, and the call retries on a new one until
    /// [`unreachable_after`](Builder::unreachable_after).
    ///
    /// Raise it for servers far away, or that run slow scripts; lower it to notice a dead server
    /// sooner.
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.settings.response_timeout = limit;
        self
    }

    /// Lets a tokio runtime drive its own connection, for callers that run on it: the fastest way
    /// to acquire a free lock. Otherwise the client's own thread drives all connections, which
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
    /// The runtime must have IO and timers enabled, as with `#[tokio::main]` or `enable_all`.
    /// Otherwise connecting fails, and tokio panics in the background. If the runtime is blocked or
    /// shut down later, callers on other threads are not affected.
    pub fn runtime(mut self, runtime: tokio::runtime::Handle) -> Self {
        self.settings.runtime = Some(runtime);
        self
    }

    /// Whether a released lock may be handed off to the next waiter in this process without asking
    /// the store: on by default. Each holder gets its own fence, greater than the previous one.
    ///
    /// It happens only between waiters with the same ttl and settings, never with
    /// [leases without renewal](crate::Lock::no_renewal), and only within the limits of
    /// [`hand_off_turns`](Builder::hand_off_turns) and [`hand_off_time`](Builder::hand_off_time).
    /// After that, waiters in other processes get their turn.
    pub fn hand_off(mut self, on: bool) -> Self {
        self.settings.hand_off.on = on;
        self
    }

    /// How many times in a row a lock may be handed off within this process: 256 by default, 10 000
    /// at most. With fewer, other processes wait less; with more, the store gets fewer requests.
    pub fn hand_off_turns(mut self, turns: u32) -> Self {
        self.settings.hand_off.turns = turns;
        self
    }

    /// How long a lock may be handed off within this process, counted from the grant by the store:
    /// 10 ms by default. The last hand-off holder may keep the lock as long as it needs.
    pub fn hand_off_time(mut self, time: Duration) -> Self {
        self.settings.hand_off.time = time;
        self
    }

    /// Keeps leases after a release that nobody waits for, for locks that do not set their own time:
    /// see [`Lock::keep`](crate::Lock::keep). Not by default. At most half of the
    /// [`ttl`](Builder::ttl); locks with a shorter ttl are kept for at most half of theirs.
    pub fn keep(mut self, time: Duration) -> Self {
        self.settings.keep = time;
        self
    }

    /// How locks are encoded in Redis, and so which other libraries they exclude:
    /// [`Layout::Native`] by default. The URL can set it too, as in `?layout=redisson`.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// What everything that this client writes begins with, such as `team-a:`: the locks themselves,
    /// all other keys and the channels. Clients with different prefixes do not see, wake or exclude
    /// each other, and an ACL can keep them apart: `~team-a:* &team-a:*`. The URL can set it too, as in
    /// `?prefix=team-a:`. Empty by default.
    ///
    /// It counts towards the 512 bytes of a name, and contains no brace, no space and no `tenure:`.
    /// Names are given and shown without it. No prefix should be the beginning of another one: a
    /// client with `a:` that locks `b:x` excludes the lock `x` of one with `a:b:`, but does not wake
    /// its waiters. In Redisson's layout, Java needs a `NameMapper` that adds the same prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// The name of this client in listings, for example the name of the service.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Adds information about this client to listings: its user, its command, its version. Keep
    /// entries few and short: they are part of the client's record, which is written up to twice a
    /// second. For information about one lease use [`meta`](crate::Lock::meta).
    pub fn about(mut self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.about.insert(field.into(), value.into());
        self
    }

    /// The prefix, if the builder sets one.
    pub(crate) fn parsed_prefix(&self) -> Result<Option<Prefix>> {
        let Some(prefix) = &self.prefix else {
            return Ok(None);
        };
        let parsed = Prefix::parse(prefix);
        let refused = |cause| Error::invalid_setting("the prefix", prefix, cause);
        parsed.map(Some).map_err(refused)
    }

    /// Refuses settings that are out of range.
    pub(crate) fn check(&self) -> Result<()> {
        check_ttl("ttl", self.settings.ttl)?;
        self.settings.check_response_timeout()?;
        self.settings
            .check_keep(self.settings.keep, self.settings.ttl)?;
        self.settings.hand_off.check()
    }
}

impl<T> Clone for Builder<T> {
    fn clone(&self) -> Self {
        Self {
            urls: self.urls.clone(),
            settings: self.settings.clone(),
            layout: self.layout,
            prefix: self.prefix.clone(),
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
            .field("prefix", &self.prefix)
            .field("clock", &self.clock)
            .finish()
    }
}
