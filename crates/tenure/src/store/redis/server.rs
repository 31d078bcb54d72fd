//! One Redis server: where it is, how to log in, and whether it is fit for locks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::endpoint::Endpoint;
use super::keys::Keys;
use super::script::LockScripts;
use super::sentinel::Sentinels;
use super::trusted_primary::TrustedPrimary;
use crate::error::{Error, ErrorKind};
use crate::layout::Layout;
use crate::moment::Clock;
use crate::seeded::{Bug, bug};
use crate::stats::Stats;
use crate::store::Failure;
use crate::url::{RedisTarget, SentinelTarget};

/// The oldest supported major version.
const VERSION_MIN: u32 = 7;

/// How many connections this process has made, so that each has a unique id.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Server {
    /// How to log in, and where, if the address is fixed.
    pub(crate) target: RedisTarget,
    /// How the keys of its locks are named.
    pub(super) keys: Keys,
    pub(crate) clock: Clock,
    /// Whether the scripts publish to one shard of a cluster only.
    pub(super) sharded: bool,
    kind: ServerKind,
    /// The primary there that may grant new locks.
    pub(super) trusted_primary: TrustedPrimary,
    pub(super) stats: Arc<Stats>,
    warned_of_eviction: AtomicBool,
    /// Whether all keys of a call must be in one slot.
    one_slot: AtomicBool,
}

/// What kind of server it is, and so how to find it.
enum ServerKind {
    /// Has locks, at a fixed address.
    Fixed(Endpoint),
    /// Has the locks of some slots, at a fixed address.
    ClusterNode(Endpoint),
    /// Has locks, and is the primary that the sentinels name.
    BySentinels(Arc<Sentinels>),
    /// A sentinel.
    Sentinel(Endpoint),
}

impl Server {
    pub(crate) fn new(target: RedisTarget, stats: Arc<Stats>) -> Arc<Self> {
        let endpoint = Endpoint::new(target.clone());
        Self::build(target, ServerKind::Fixed(endpoint), false, stats)
    }

    /// A node of a cluster, whose scripts publish to its shard only, or to all subscribers.
    pub(super) fn in_cluster(target: RedisTarget, sharded: bool, stats: Arc<Stats>) -> Arc<Self> {
        let endpoint = Endpoint::new(target.clone());
        Self::build(target, ServerKind::ClusterNode(endpoint), sharded, stats)
    }

    /// The primary that the sentinels name. Must be called on the engine.
    pub(crate) fn by_sentinels(target: SentinelTarget, stats: Arc<Stats>) -> Arc<Self> {
        let server = target.server.clone();
        let sentinels = Sentinels::watch(target, &stats);
        Self::build(server, ServerKind::BySentinels(sentinels), false, stats)
    }

    pub(super) fn sentinel(target: RedisTarget, stats: Arc<Stats>) -> Arc<Self> {
        let endpoint = Endpoint::new(target.clone());
        Self::build(target, ServerKind::Sentinel(endpoint), false, stats)
    }

    fn build(target: RedisTarget, kind: ServerKind, sharded: bool, stats: Arc<Stats>) -> Arc<Self> {
        Arc::new(Self {
            keys: Keys::of(&target),
            target,
            clock: Clock::Boot,
            kind,
            sharded,
            trusted_primary: TrustedPrimary::default(),
            stats,
            warned_of_eviction: AtomicBool::new(false),
            one_slot: AtomicBool::new(false),
        })
    }

    /// Where to connect now.
    pub(super) async fn locate(&self) -> Result<Endpoint, Failure> {
        match &self.kind {
            ServerKind::Fixed(endpoint)
            | ServerKind::ClusterNode(endpoint)
            | ServerKind::Sentinel(endpoint) => Ok(endpoint.clone()),
            ServerKind::BySentinels(sentinels) => sentinels.locate().await,
        }
    }

    /// Whether another server at another address may take over its locks.
    pub(super) fn moves(&self) -> bool {
        matches!(self.kind, ServerKind::BySentinels(_))
    }

    /// Whether its locks share one fence counter. Where all keys of a call must be in one slot, each
    /// lock has its own; in Redisson's layout too, because Java knows no other.
    pub(super) fn shares_counter(&self) -> bool {
        self.target.layout() == Layout::Native
            && !matches!(self.kind, ServerKind::ClusterNode(_))
            && !self.one_slot.load(Ordering::Relaxed)
    }

    /// Notes that all keys of a call must be in one slot: it is a cluster of one node, or a proxy
    /// before several servers; or that the user may not use the shared counter.
    pub(super) fn wants_one_slot(&self) {
        self.one_slot.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_sentinel(&self) -> bool {
        matches!(self.kind, ServerKind::Sentinel(_))
    }

    pub(super) fn next_connection_id(&self) -> u64 {
        self.stats.connected();
        CONNECTIONS.fetch_add(1, Ordering::Relaxed)
    }

    /// The scripts of a lock for this server.
    pub(super) fn scripts(&self) -> &'static LockScripts {
        self.target.layout().scripts(self.sharded)
    }

    /// Refuses a server that is too old, and warns about one that may evict locks.
    pub(super) fn check_fit(&self, info: &ServerInfo) -> Result<(), Failure> {
        if let Some(version) = &info.version
            && info
                .major_version()
                .is_some_and(|major| major < VERSION_MIN)
        {
            return Err(Failure::refused(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "`{self}` runs Redis `{version}`, but 7.0 or newer is needed: upgrade the \
                     server",
                ),
            )));
        }
        if info.evicts() && !self.warned_of_eviction.swap(true, Ordering::Relaxed) {
            self.stats.eviction_warned();
            tracing::warn!(
                server = %self,
                policy = info.eviction_policy.as_deref().unwrap_or_default(),
            "redis.evicts: this server may evict held locks and fences when its memory is full; \
                 set `maxmemory-policy noeviction`, or use a dedicated server for locks"
            );
        }
        Ok(())
    }
}

/// Its address. For the primary of sentinels: theirs.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ServerKind::Fixed(endpoint)
            | ServerKind::ClusterNode(endpoint)
            | ServerKind::Sentinel(endpoint) => endpoint.target.fmt(f),
            ServerKind::BySentinels(sentinels) => sentinels.target().fmt(f),
        }
    }
}

/// The reply to `INFO`. Unknown where the user may not run it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerInfo {
    version: Option<String>,
    pub(crate) run_id: Option<String>,
    /// `master` or `slave`.
    pub(super) role: Option<String>,
    /// What the server does when its memory is full.
    eviction_policy: Option<String>,
    memory_max: Option<u64>,
    /// Its minimum age.
    pub(super) uptime: Duration,
    pub(super) has_aof: bool,
    /// Whether it is a node of a cluster.
    pub(super) in_cluster: bool,
}

impl ServerInfo {
    /// Parses the reply to `INFO`.
    pub(super) fn parse(text: &str) -> Self {
        let mut info = Self::default();
        for (field, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match field {
                "redis_version" => info.version = Some(value.to_owned()),
                "run_id" => info.run_id = Some(value.to_owned()),
                "role" => info.role = Some(value.to_owned()),
                "maxmemory_policy" => info.eviction_policy = Some(value.to_owned()),
                "uptime_in_seconds" => {
                    // The difference of two clock readings in whole seconds: it may show a second
                    // when hardly any time has passed.
                    let seconds: u64 = value.parse().unwrap_or(0);
                    let over = u64::from(!bug(Bug::AgeRoundedUp));
                    info.uptime = Duration::from_secs(seconds.saturating_sub(over));
                }
                "aof_enabled" => info.has_aof = value == "1",
                "cluster_enabled" => info.in_cluster = value == "1",
                "maxmemory" => info.memory_max = value.parse().ok(),
                _ => {}
            }
        }
        info
    }

    fn major_version(&self) -> Option<u32> {
        self.version.as_ref()?.split('.').next()?.parse().ok()
    }

    fn evicts(&self) -> bool {
        let policy = self.eviction_policy.as_deref();
        let is_limited = self.memory_max.is_some_and(|most| most > 0);
        is_limited && policy.is_some_and(|policy| policy != "noeviction")
    }

    /// Whether it certainly never evicts.
    pub(super) fn never_evicts(&self) -> bool {
        self.memory_max == Some(0) || self.eviction_policy.as_deref() == Some("noeviction")
    }
}
