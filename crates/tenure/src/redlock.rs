//! Locks on several independent servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::CONNECT_PAUSE;
use crate::builder::Builder;
use crate::client_handle::ClientHandle;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::lease::check_ttl;
use crate::locks::{Locks, delegate_to_locks};
use crate::moment::Clock;
use crate::prefix::Prefix;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::store::Store;
use crate::store::redis::{RedisStore, VOTE_DELAY_MIN};
use crate::store::redlock::RedlockStore;
use crate::url::{RedisTarget, Target, masked_url};

/// The default longest ttl. A node that may have lost a lease never rests for less, so that clients
/// with other values agree with clients that use this one.
const LONGEST_TTL_DEFAULT: Duration = VOTE_DELAY_MIN;
/// With fewer nodes, none may fail.
const NODES_MIN: usize = 2;

/// A client of several independent servers. A lock is held by the client that has a majority of
/// them, so locks work as long as most servers are up.
///
/// Use an odd number of primaries that share nothing: not replicas of each other, no common disk.
/// Run each with `appendonly yes`, `appendfsync always`, `no-appendfsync-on-rewrite no` and no
/// eviction, so that it never loses a grant. A server with other settings has no vote for 30 s
/// after a restart, or for [`longest_ttl`](Builder::longest_ttl) if that is longer.
///
/// It returns the same [`Lock`](crate::Lock) and [`Guard`](crate::Guard) types as
/// [`Tenure`](crate::Tenure).
///
/// ```no_run
/// use tenure::Redlock;
///
/// # async fn example() -> Result<(), tenure::Error> {
/// let redlock = Redlock::connect(["redis://a/", "redis://b/", "redis://c/"]).await?;
/// let guard = redlock.lock("order:1001").acquire().await?;
/// println!("fence {}", guard.fence());
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # What is not available
///
/// Anything that counts or keeps an order across nodes: semaphores, fair queues. A majority can
/// agree on one holder, because any two majorities share a node. It cannot agree on a count: with
/// two permits on three nodes, A and B may hold the first node, A and C the second, B and C the
/// third, and each of the three has a majority.
///
/// Replica acknowledgement is not available either, because no node has a replica that could be
/// promoted. This works with [`Tenure`](crate::Tenure):
///
/// ```
/// let builder = tenure::Tenure::builder("redis://a/").replicas(1);
/// ```
///
/// but not here:
///
/// ```compile_fail,E0599
/// let builder = tenure::Redlock::builder(["redis://a/", "redis://b/", "redis://c/"]).replicas(1);
/// ```
#[derive(Clone)]
pub struct Redlock {
    locks: Locks,
}

impl Redlock {
    /// Connects to these servers. Each URL names one server, as for
    /// [`Tenure::connect`](crate::Tenure::connect), in any mix of hosts, TLS and passwords.
    ///
    /// # Errors
    ///
    /// If a URL is invalid, fewer than a majority can be reached within 5 s, a server refuses the
    /// connection, or two URLs name the same server.
    pub async fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self> {
        Self::builder(urls).connect().await
    }

    /// Starts a client with custom settings.
    pub fn builder<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Builder<Self> {
        let urls = urls.into_iter().map(|url| url.as_ref().to_owned());
        let mut builder = Builder::new(urls.collect());
        builder.settings.longest_ttl = Some(LONGEST_TTL_DEFAULT);
        builder
    }
}

delegate_to_locks!(Redlock, crate::Unordered);

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl Builder<Redlock> {
    /// The longest ttl that locks may have: 30 s by default. A server that has just started and may
    /// have lost its grants has no vote for this long, and never for less than 30 s.
    ///
    /// All clients of one Redlock that use leases above 30 s must agree on this value: raise it in
    /// every client first, then use the longer ttl. Nodes remember the longest ttl of any lease
    /// above 30 s for 30 days after its last use. A client that connects with a lower value is
    /// refused; a client that is already connected lets nodes rest longer as soon as it learns of
    /// it. To lower it again, lower the ttls first, delete the key `tenure:longest-ttl` on every
    /// node after the last long lease has expired, and then lower this setting.
    pub fn longest_ttl(mut self, ttl: Duration) -> Self {
        self.settings.longest_ttl = Some(ttl);
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As for [`Redlock::connect`], and if a setting is out of range, or other clients use leases
    /// that are longer than both [`longest_ttl`](Self::longest_ttl) and 30 s.
    pub async fn connect(self) -> Result<Redlock> {
        self.check()?;
        let longest_ttl = self.settings.longest_ttl.unwrap_or(LONGEST_TTL_DEFAULT);
        check_ttl("longest_ttl", longest_ttl)?;
        let asked_for = self.parsed_prefix()?;
        let (targets, layout) = targets(&self.urls, self.layout)?;
        let said = targets.iter().filter_map(|target| target.prefix.clone());
        let prefix = Prefix::common(asked_for.into_iter().chain(said))?;
        let mut settings = self.settings;
        settings.layout = layout;
        settings.prefix = prefix;
        settings.ttl = settings.ttl.min(longest_ttl);
        let engine = Engine::start()?;
        let (on_engine, stats) = (engine.clone(), Arc::new(Stats::default()));
        let connecting = async move {
            let store = open(targets, &settings, longest_ttl, &stats).await?;
            Ok(ClientHandle::start(
                on_engine,
                settings,
                Clock::Boot,
                store,
                stats,
            ))
        };
        let client = engine.run(connecting).await??;
        Ok(Redlock {
            locks: Locks::new(client),
        })
    }
}

/// Parses the URLs, and checks that all servers use one layout.
fn targets(urls: &[String], asked_for: Option<Layout>) -> Result<(Vec<RedisTarget>, Layout)> {
    let mut targets = Vec::with_capacity(urls.len());
    for url in urls {
        match Target::parse(url)? {
            Target::Redis(target) => targets.push(target),
            Target::Memory { .. } => {
                return Err(Error::invalid_setting(
                    "a node of a Redlock",
                    "memory://",
                    "a Redlock needs Redis servers: within one process use `Tenure::connect`",
                ));
            }
            Target::Sentinel(_) | Target::Cluster(_) => {
                return Err(Error::invalid_setting(
                    "a node of a Redlock",
                    masked_url(url),
                    "a Redlock needs independent servers, and these have replicas: name \
                     standalone servers, or use `Tenure::connect`",
                ));
            }
        }
    }
    let nodes = targets.len();
    if nodes < NODES_MIN {
        return Err(Error::invalid_setting(
            "the number of nodes of a Redlock",
            nodes,
            "at least three are needed to survive the loss of one: for one server use \
             `Tenure::connect`",
        ));
    }
    if nodes % 2 == 0 {
        tracing::warn!(
            nodes,
            "redlock.even: an even number of nodes tolerates no more failures than one node \
             fewer; use an odd number"
        );
    }
    let said = targets.iter().find_map(|target| target.layout);
    let layout = asked_for.or(said).unwrap_or_default();
    for target in &mut targets {
        if target.layout.is_some_and(|said| said != layout) {
            let cause = "another node or the builder uses a different one: all must be the same";
            let said = target.layout();
            return Err(Error::invalid_setting("the layout", said, cause));
        }
        target.layout = Some(layout);
    }
    Ok((targets, layout))
}

async fn open(
    targets: Vec<RedisTarget>,
    settings: &Settings,
    longest_ttl: Duration,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    let nodes = targets.into_iter().map(|target| {
        let target = RedisTarget {
            response_timeout: settings.response_timeout,
            prefix: Some(settings.prefix.clone()),
            ..target
        };
        RedisStore::new(target, Arc::clone(stats), settings.runtime.clone())
    });
    let store = RedlockStore::new(nodes.collect(), longest_ttl);
    let clock = Clock::Boot;
    let limit = clock.now() + settings.unreachable_after;
    loop {
        match store.connect(limit).await {
            Ok(()) => return Ok(store),
            Err(error) if error.kind() == crate::ErrorKind::Unavailable => {
                if clock.now() + CONNECT_PAUSE >= limit {
                    return Err(error);
                }
                clock.sleep_until(clock.now() + CONNECT_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}
