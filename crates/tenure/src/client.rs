//! The entry: a client of one store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::{Client, Core};
use crate::engine::cleaner::{self, Parting};
use crate::engine::{Engine, adoption, record};
use crate::error::{Error, Result};
use crate::guard::{Guard, Released};
use crate::holder::ClientRecord;
use crate::layout::Layout;
use crate::lease::{ClientId, Lease, LeaseId, check_ttl};
use crate::lock::Lock;
use crate::moment::{Clock, ManualClock};
use crate::name::LockName;
use crate::owner::{Holds, Owner};
use crate::settings::Settings;
use crate::stats::{Stats, StatsSnapshot};
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::{Held, Store};
use crate::url::{self, Target};

/// How long to wait before connecting again to a server that could not be reached.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A client of one store. Cheap to clone; all clones are the same client.
///
/// It owns a background thread that renews, releases and wakes. The thread ends when the last
/// clone, lock and guard are gone.
#[derive(Clone)]
pub struct Tenure {
    client: Arc<Client>,
}

/// The settings of a client, before it connects.
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    url: String,
    settings: Settings,
    layout: Option<Layout>,
    clock: Clock,
}

impl Tenure {
    /// Connects to the store that `url` names: `redis://`, `rediss://`, `valkey://`, `valkeys://`,
    /// `unix://`, a bare `host` or `host:port`, or `memory://`.
    ///
    /// | URL | is |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one Redis server, 7.0 or newer |
    /// | `rediss://host?ca=/ca.pem&cert=/client.pem&key=/client.key` | the same over TLS |
    /// | `unix:///run/redis.sock?db=0&user=me&pass=secret` | the same over a socket |
    /// | `redis://host?layout=redisson` | locks in the bytes of Java's Redisson: [`Layout`] |
    /// | `memory://` | a store of this client alone |
    /// | `memory://name` | a store shared by all clients of this process that name it |
    ///
    /// # Errors
    ///
    /// If the URL is wrong, the server cannot be reached within 5 s, refuses us, or is too old.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Begins to connect with other settings than the default ones.
    pub fn builder(url: impl AsRef<str>) -> Builder {
        Builder {
            url: url.as_ref().to_owned(),
            settings: Settings::default(),
            layout: None,
            clock: Clock::Boot,
        }
    }

    /// A lock of this name. Each acquisition is on its own: taking a lock that this very program
    /// holds already waits for that guard, for ever if the waiting task holds it itself. To re-enter
    /// a lock, take it through an [`owner`](Tenure::owner).
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(Arc::clone(&self.client), name.as_ref(), None)
    }

    /// Somebody new, who may re-enter the locks it holds.
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
        let adopting = async move { adoption::adopt(client, owner, lease, pending).await };
        self.client.engine.run(adopting).await?
    }

    /// Ends a lease that somebody else holds: for administrators. The holder learns of it at once
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
        let held = Held {
            name: LockName::new(name)?,
            id: id.clone(),
            ttl: id.ttl().unwrap_or(self.client.core.settings.ttl),
            has_meta: true,
        };
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let until = core.clock.now() + core.settings.unreachable_after;
        let pending = core.pending.begin();
        let releasing = async move {
            let _pending = pending;
            cleaner::release(&core, &Parting::of(held, until)).await
        };
        self.client.engine.run(releasing).await?
    }

    /// Lists who holds what: what the clients of this store say of themselves, what they hold and
    /// who waits.
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
    #[doc(alias = "list")]
    pub async fn clients(&self) -> Result<Vec<ClientRecord>> {
        self.client.check_open()?;
        let core = Arc::clone(&self.client.core);
        let limit = core.clock.now() + core.settings.unreachable_after;
        let reading = async move { record::read(&core, None, limit).await };
        let records = self.client.engine.run(reading).await?;
        records.map_err(|failure| failure.error)
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

    /// The identity of this client, which its leases and its record carry.
    pub fn id(&self) -> ClientId {
        self.client.core.id
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.client.core
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl Builder {
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

    /// A clock that a test moves. Only for the memory store: a server has its own.
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Clock::Manual(clock.clone());
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As for [`Tenure::connect`], and if a setting is out of its limits.
    pub async fn connect(self) -> Result<Tenure> {
        check_ttl("ttl", self.settings.ttl)?;
        self.settings.hand_off.check()?;
        let (target, layout) = laid_out(Target::parse(&self.url)?, self.layout)?;
        let engine = Engine::start()?;
        let stats = Arc::new(Stats::default());
        let (mut settings, clock) = (self.settings, self.clock);
        settings.layout = layout;
        let on_engine = engine.clone();
        let connecting = async move {
            let store = open(target, &settings, &clock, &stats).await?;
            Ok(Client::start(on_engine, settings, clock, store, stats))
        };
        let client = engine.run(connecting).await??;
        Ok(Tenure { client })
    }
}

/// Without the password.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("url", &url::masked_url(&self.url))
            .field("settings", &self.settings)
            .field("layout", &self.layout)
            .field("clock", &self.clock)
            .finish()
    }
}

/// The target with its layout, which the URL or the builder may say, but not each another one.
fn laid_out(mut target: Target, asked_for: Option<Layout>) -> Result<(Target, Layout)> {
    let said = match &target {
        Target::Redis(server) => server.layout,
        Target::Memory { .. } => None,
    };
    let layout = said.or(asked_for).unwrap_or_default();
    let refused = |cause: &str| Err(Error::invalid_setting("the layout", layout, cause));
    match &mut target {
        Target::Memory { .. } if layout != Layout::Native => {
            refused("a memory store has no bytes to lay out: leave it out with `memory://`")
        }
        _ if asked_for.is_some_and(|asked_for| asked_for != layout) => {
            refused("the URL says so and the builder says another one: leave one of them out")
        }
        Target::Redis(server) => {
            server.layout = Some(layout);
            Ok((target, layout))
        }
        Target::Memory { .. } => Ok((target, layout)),
    }
}

async fn open(
    target: Target,
    settings: &Settings,
    clock: &Clock,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    match target {
        Target::Memory { name: None } => Ok(MemoryStore::private(clock.clone())),
        Target::Memory { name: Some(name) } => Ok(MemoryStore::shared(&name, clock.clone())?),
        Target::Redis(target) => {
            if matches!(clock, Clock::Manual(_)) {
                return Err(Error::invalid_setting(
                    "the clock",
                    "manual",
                    "a server has a clock of its own: use `memory://`",
                ));
            }
            let limit = clock.now() + settings.unreachable_after;
            let store = RedisStore::new(target, Arc::clone(stats), settings.runtime.clone());
            loop {
                match store.reach(limit).await {
                    Ok(()) => return Ok(store),
                    // Not with the last breath: its error would only say that time was short.
                    Err(failure) if failure.transient && clock.now() + CONNECT_PAUSE < limit => {
                        clock.sleep_until(clock.now() + CONNECT_PAUSE).await;
                    }
                    Err(failure) => return Err(failure.error),
                }
            }
        }
    }
}
