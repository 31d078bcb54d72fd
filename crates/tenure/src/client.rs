//! The entry point: a client of one store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::CONNECT_PAUSE;
use crate::builder::Builder;
use crate::client_handle::ClientHandle;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::latch::Latch;
use crate::layout::Layout;
use crate::locks::{Locks, delegate_to_locks};
use crate::moment::{Clock, ManualClock};
use crate::once::Once;
use crate::prefix::Prefix;
use crate::semaphore::Semaphore;
use crate::settings::Settings;
use crate::sharded::Sharded;
use crate::stats::Stats;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::url::Target;

/// A client of one store. Cheap to clone; all clones share one client.
///
/// It owns a background thread that renews and releases leases and wakes waiters. The thread ends
/// when the last clone, lock and guard are dropped.
#[derive(Clone)]
pub struct Tenure {
    locks: Locks,
}

impl Tenure {
    /// Connects to the store that `url` names: `redis://`, `rediss://`, `valkey://`, `valkeys://`,
    /// `unix://`, a bare `host` or `host:port`, `redis-sentinel://`,
    /// `redis-cluster://`, or `memory://`.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one Redis server, 7.0 or newer |
    /// | `rediss://host?ca=/ca.pem&cert=/client.pem&key=/client.key` | the same over TLS |
    /// | `unix:///run/redis.sock?db=0&user=me&pass=secret` | the same over a socket |
    /// | `redis-cluster://user:password@host1,host2:6380?sharded=off` | a Redis Cluster, given some of its nodes; over TLS with `rediss-cluster://`; [`Sharded`] selects how waiters are woken |
    /// | `redis://host?prefix=team-a:` | everything begins with `team-a:`, on every kind of store: [`Builder::prefix`] |
    /// | `redis://host?layout=redisson` | locks compatible with Java's Redisson: [`Layout`] |
    /// | `redis-sentinel://user:password@s1,s2:26379,s3/mymaster/0` | the primary that these Sentinels report; user, password and database are for the Redis servers |
    /// | `redis-sentinel://s1,s2/?master=mymaster&sentinel_username=me&sentinel_password=secret` | the same, with separate credentials for the Sentinels |
    /// | `rediss-sentinel://s1,s2,s3/mymaster?ca=/ca.pem` | the same over TLS, to both Sentinels and servers |
    /// | `memory://` | a store private to this client |
    /// | `memory://name` | a store shared by all clients of this process that use this name |
    ///
    /// With Sentinel, the client follows the primary. After a failover it closes all connections to
    /// the old primary and renews held locks at the new one; locks that the new primary does not
    /// have are lost. To prevent that, see [`Lock::replicas`](crate::Lock::replicas) and
    /// [`Builder::after_failover`].
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
    /// If the URL is invalid, or the server cannot be reached within 5 s, refuses the connection,
    /// or is too old.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Starts a client with custom settings.
    pub fn builder(url: impl AsRef<str>) -> Builder {
        Builder::new(vec![url.as_ref().to_owned()])
    }
}

delegate_to_locks!(Tenure, crate::Ordered);

impl Tenure {
    /// A semaphore with this name: at most `limit` permits are in use at the same time. See
    /// [`Semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        self.locks.semaphore(name.as_ref(), limit)
    }

    /// A latch with this name: it opens when `need` parties have arrived. See [`Latch`].
    pub fn latch(&self, name: impl AsRef<str>, need: u32) -> Latch {
        self.locks.latch(name.as_ref(), need)
    }

    /// One fire time of a schedule: of all processes whose timer fires for it, at most one completes the
    /// job. The fire time is an identifier, such as `2026-03-01T03:00Z` or a number of seconds. See
    /// [`Once`].
    pub fn once(&self, name: impl AsRef<str>, fire_time: impl fmt::Display) -> Once {
        self.locks.once(name.as_ref(), &fire_time.to_string())
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
    /// A clock controlled by a test. Only for the memory store: a server has its own clock.
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Clock::Manual(clock.clone());
        self
    }

    /// How waiters on a Cluster are woken: [`Sharded::Auto`] by default. The URL can set it too, as
    /// in `?sharded=off`. Only for a Cluster: other deployments have no shards.
    pub fn sharded(mut self, sharded: Sharded) -> Self {
        self.settings.sharded = Some(sharded);
        self
    }

    /// How many replicas must acknowledge each lock of this client, for locks that do not set their
    /// own number: see [`Lock::replicas`](crate::Lock::replicas). None by default.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.settings.replicas = replicas;
        self
    }

    /// How long a new primary grants no new locks: at least the longest ttl in use. Off by default.
    ///
    /// A promoted replica may not have received the last locks of its primary, and a restarted
    /// server may have lost them. With this setting they are not granted again before the first
    /// lease has expired. Renewals and releases continue to work.
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
    /// During this pause [`acquire`](crate::Lock::acquire) waits up to its limit, and
    /// [`try_acquire`](crate::Lock::try_acquire) fails with
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable). The pause starts when the first
    /// client with this setting connects to the new primary, and is stored in Redis, so that it
    /// applies to all such clients. All clients that share a lock must use this setting, and the
    /// user needs permission for `INFO`. A lock with a ttl longer than this is refused.
    ///
    /// Choose a few seconds more than the ttl: a client may keep renewing at the old primary until
    /// it learns of the new one. The first client that ever uses this setting with a server waits
    /// for the whole pause, because it is not known how long that server has been the primary.
    pub fn after_failover(mut self, wait: Duration) -> Self {
        self.settings.after_failover = Some(wait);
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As for [`Tenure::connect`], and if a setting is out of range.
    pub async fn connect(self) -> Result<Tenure> {
        self.check()?;
        let url = self.urls.first().map_or("", String::as_str);
        let (mut target, layout) = with_layout(Target::parse(url)?, self.layout)?;
        let prefix = Prefix::common(self.parsed_prefix()?.into_iter().chain(target.prefix()))?;
        target.set_prefix(&prefix);
        check_sharded(&target, self.settings.sharded)?;
        let engine = Engine::start()?;
        let stats = Arc::new(Stats::default());
        let (mut settings, clock) = (self.settings, self.clock);
        settings.layout = layout;
        settings.prefix = prefix;
        settings.replicates = !matches!(target, Target::Memory { .. });
        settings.check_replicas(settings.replicas)?;
        settings.check_pause(settings.ttl)?;
        let on_engine = engine.clone();
        let connecting = async move {
            let target = with_response_timeout(target, settings.response_timeout);
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
            refused("a memory store has no layout: omit it with `memory://`")
        }
        _ if asked_for.is_some_and(|asked_for| asked_for != layout) => {
            refused("the URL and the builder set different layouts: remove one of them")
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

fn with_response_timeout(mut target: Target, limit: Duration) -> Target {
    match &mut target {
        Target::Redis(server) => server.response_timeout = limit,
        Target::Sentinel(target) => {
            target.server.response_timeout = limit;
            for sentinel in &mut target.sentinels {
                sentinel.response_timeout = limit;
            }
        }
        Target::Cluster(cluster) => {
            for node in &mut cluster.nodes {
                node.response_timeout = limit;
            }
        }
        Target::Memory { .. } => {}
    }
    target
}

async fn open(
    target: Target,
    settings: &Settings,
    clock: &Clock,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    match target {
        Target::Memory { name: None, .. } => Ok(MemoryStore::private(clock.clone())),
        Target::Memory {
            name: Some(name), ..
        } => {
            // Names contain no `?`. A store for each prefix has nothing in common with the others.
            let name = format!("{name}?{}", settings.prefix);
            Ok(MemoryStore::shared(&name, clock.clone())?)
        }
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
            // All servers that we connect to support sharded messages.
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
        Target::Cluster(_) => refused("the URL sets a different value: remove one of them"),
        _ => refused("only a Cluster has shards: use it with `redis-cluster://`"),
    }
}

fn check_clock(clock: &Clock) -> Result<()> {
    if matches!(clock, Clock::Manual(_)) {
        return Err(Error::invalid_setting(
            "the clock",
            "manual",
            "a server has its own clock: use `memory://`",
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
            // Stop early enough: the last error would only say that there was too little time.
            Err(failure) if failure.transient && clock.now() + CONNECT_PAUSE < limit => {
                said = Some(failure.error);
                clock.sleep_until(clock.now() + CONNECT_PAUSE).await;
            }
            // The previous error is more useful than one that says that time ran out.
            Err(failure) if failure.transient && clock.now() >= limit => {
                return Err(said.unwrap_or(failure.error));
            }
            Err(failure) => return Err(failure.error),
        }
    }
}
