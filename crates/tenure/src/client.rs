//! The entry: a client of one store.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::Builder;
use crate::client_handle::ClientHandle;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::locks::Locks;
use crate::moment::{Clock, ManualClock};
use crate::settings::Settings;
use crate::sharded::Sharded;
use crate::stats::Stats;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::url::Target;

/// How long to wait before connecting again to a server that could not be reached.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A client of one store. Cheap to clone; all clones are the same client.
///
/// It owns a background thread that renews, releases and wakes. The thread ends when the last
/// clone, lock and guard are gone.
#[derive(Clone)]
pub struct Tenure {
    locks: Locks,
}

impl Tenure {
    /// Connects to the store that `url` names: `redis://`, `rediss://`, `valkey://`, `valkeys://`,
    /// `unix://`, a bare `host` or `host:port`, `redis-sentinel://`,
    /// `redis-cluster://`, or `memory://`.
    ///
    /// | URL | is |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one Redis server, 7.0 or newer |
    /// | `rediss://host?ca=/ca.pem&cert=/client.pem&key=/client.key` | the same over TLS |
    /// | `unix:///run/redis.sock?db=0&user=me&pass=secret` | the same over a socket |
    /// | `redis-cluster://user:password@host1,host2:6380?sharded=off` | a Redis Cluster, by some of its nodes; over TLS with `rediss-cluster://`; [`Sharded`] says how waiters are woken |
    /// | `redis://host?layout=redisson` | locks in the bytes of Java's Redisson: [`Layout`] |
    /// | `redis-sentinel://user:password@s1,s2:26379,s3/mymaster/0` | the master that these sentinels name; user, password and database are the servers' |
    /// | `redis-sentinel://s1,s2/?master=mymaster&sentinel_username=me&sentinel_password=secret` | the same, with a user of the sentinels' own |
    /// | `rediss-sentinel://s1,s2,s3/mymaster?ca=/ca.pem` | the same over TLS, sentinels and servers |
    /// | `memory://` | a store of this client alone |
    /// | `memory://name` | a store shared by all clients of this process that name it |
    ///
    /// A client of sentinels follows the master: when it is replaced, all connections to the old one
    /// are given up, held locks are renewed at the new one, and those that it does not have are
    /// lost. See [`Lock::replicas`](crate::Lock::replicas) and [`Builder::after_failover`] for how to
    /// lose none.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// use tenure::Tenure;
    ///
    /// let tenure = Tenure::connect("redis-sentinel://s1,s2,s3/mymaster").await?;
    /// # drop(tenure);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the URL is wrong, the server cannot be reached within 5 s, refuses us, or is too old.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Begins to connect with other settings than the default ones.
    pub fn builder(url: impl AsRef<str>) -> Builder {
        Builder::new(vec![url.as_ref().to_owned()])
    }
}

/// What a client of any deployment can do.
impl Deref for Tenure {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
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
    /// A clock that a test moves. Only for the memory store: a server has its own.
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Clock::Manual(clock.clone());
        self
    }

    /// How the waiters of a Cluster are woken: [`Sharded::Auto`] by default. The URL can say it too,
    /// as in `?sharded=off`. Only for a Cluster: elsewhere there are no shards.
    pub fn sharded(mut self, sharded: Sharded) -> Self {
        self.settings.sharded = Some(sharded);
        self
    }

    /// How many replicas must confirm each lock of this client that does not say otherwise: see
    /// [`Lock::replicas`](crate::Lock::replicas). None by default.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.settings.replicas = replicas;
        self
    }

    /// How long a new master gives no new locks: at least the longest ttl in use. Off by default.
    ///
    /// A replica that is promoted may not have heard of the last locks of its master, and a server
    /// that restarts may have forgotten them. With this they are not granted a second time before
    /// the first lease has ended. Renewals and releases go on.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// use std::time::Duration;
    /// use tenure::Tenure;
    ///
    /// let tenure = Tenure::builder("redis-sentinel://s1,s2,s3/mymaster")
    ///     .ttl(Duration::from_secs(10))
    ///     .after_failover(Duration::from_secs(15))
    ///     .connect()
    ///     .await?;
    /// # drop(tenure);
    /// # Ok(()) }
    /// ```
    ///
    /// Meanwhile [`acquire`](crate::Lock::acquire) waits within its limit, and
    /// [`try_acquire`](crate::Lock::try_acquire) fails with
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable). The pause begins when the first
    /// client that asks for it meets the new master, and is kept in Redis, so that it holds for all
    /// of them. All clients that share a lock must ask for it, and the user needs the right to
    /// `INFO`. A lock with a longer ttl than this is refused.
    ///
    /// Choose it some seconds longer than the ttl: a client may go on renewing at the old master until
    /// it hears of the new one. The first client that ever asks a server waits for the whole pause,
    /// because nobody knows since when that server has been the master.
    pub fn after_failover(mut self, wait: Duration) -> Self {
        self.settings.after_failover = Some(wait);
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As for [`Tenure::connect`], and if a setting is out of its limits.
    pub async fn connect(self) -> Result<Tenure> {
        self.check()?;
        let url = self.urls.first().map_or("", String::as_str);
        let (target, layout) = with_layout(Target::parse(url)?, self.layout)?;
        check_sharded(&target, self.settings.sharded)?;
        let engine = Engine::start()?;
        let stats = Arc::new(Stats::default());
        let (mut settings, clock) = (self.settings, self.clock);
        settings.layout = layout;
        settings.replicates = !matches!(target, Target::Memory { .. });
        settings.check_replicas(settings.replicas)?;
        settings.check_pause(settings.ttl)?;
        let on_engine = engine.clone();
        let connecting = async move {
            let store = open(target, &settings, &clock, &stats).await?;
            Ok(ClientHandle::start(
                on_engine, settings, clock, store, stats,
            ))
        };
        let client = engine.run(connecting).await??;
        Ok(Tenure {
            locks: Locks::new(client),
        })
    }
}

/// The target with its layout. URL and builder may both set it, but only to the same value.
fn with_layout(mut target: Target, asked_for: Option<Layout>) -> Result<(Target, Layout)> {
    let said = match &target {
        Target::Redis(server) => server.layout,
        Target::Sentinel(target) => target.server.layout,
        Target::Cluster(target) => target.nodes.first().and_then(|node| node.layout),
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
        Target::Sentinel(sentinel) => {
            sentinel.server.layout = Some(layout);
            Ok((target, layout))
        }
        Target::Cluster(cluster) => {
            for node in &mut cluster.nodes {
                node.layout = Some(layout);
            }
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
            check_clock(clock)?;
            let store = RedisStore::new(target, Arc::clone(stats), settings.runtime.clone());
            connect_store(store, settings, clock).await
        }
        Target::Sentinel(target) => {
            check_clock(clock)?;
            let runtime = settings.runtime.clone();
            let store = RedisStore::by_sentinels(target, Arc::clone(stats), runtime);
            connect_store(store, settings, clock).await
        }
        Target::Cluster(target) => {
            check_clock(clock)?;
            let sharded = target.sharded.or(settings.sharded).unwrap_or_default();
            // All servers that we connect to know sharded messages.
            let sharded = sharded != Sharded::Off;
            let runtime = settings.runtime.clone();
            let store = RedisStore::in_cluster(target.nodes, sharded, Arc::clone(stats), runtime);
            connect_store(store, settings, clock).await
        }
    }
}

/// Refuses `sharded` without a cluster, and a URL and a builder that contradict each other.
fn check_sharded(target: &Target, asked_for: Option<Sharded>) -> Result<()> {
    let Some(asked_for) = asked_for else {
        return Ok(());
    };
    let refused = |cause: &str| Err(Error::invalid_setting("sharded", asked_for, cause));
    match target {
        Target::Cluster(cluster) if cluster.sharded.is_none_or(|said| said == asked_for) => Ok(()),
        Target::Cluster(_) => refused("the URL says another one: leave one of them out"),
        _ => refused("only a Cluster has shards: use it with `redis-cluster://`"),
    }
}

fn check_clock(clock: &Clock) -> Result<()> {
    if matches!(clock, Clock::Manual(_)) {
        return Err(Error::invalid_setting(
            "the clock",
            "manual",
            "a server has a clock of its own: use `memory://`",
        ));
    }
    Ok(())
}

/// The store, once it has answered.
async fn connect_store(
    store: Arc<RedisStore>,
    settings: &Settings,
    clock: &Clock,
) -> Result<Arc<dyn Store>> {
    if let Some(wait) = settings.after_failover {
        store.pause_after_failover(wait);
    }
    let limit = clock.now() + settings.unreachable_after;
    let mut said = None;
    loop {
        match store.connect(limit).await {
            Ok(()) => return Ok(store),
            // Not with the last breath: its error would only say that time was short.
            Err(failure) if failure.transient && clock.now() + CONNECT_PAUSE < limit => {
                said = Some(failure.error);
                clock.sleep_until(clock.now() + CONNECT_PAUSE).await;
            }
            // What was said before tells more than that time was short after all.
            Err(failure) if failure.transient && clock.now() >= limit => {
                return Err(said.unwrap_or(failure.error));
            }
            Err(failure) => return Err(failure.error),
        }
    }
}
