//! Where the contract runs: a deployment of its own for every test, and ways to reach around the
//! library.

mod builder;
mod pool;

use std::time::Duration;

use tenure::{Layout, LeaseId, LockName, Locks, Redlock, Tenure};
use tenure_testkit::{Cluster, RedisServer, RedlockNodes, Sentinels};

pub use self::builder::StageBuilder;
use self::pool::{Deployment, Lent, Nodes, Pool};

static SENTINELS: Pool<Sentinels> = Pool::new(|| Sentinels::builder().steady().start());
static CLUSTERS: Pool<Cluster> = Pool::new(|| Cluster::builder().steady().start());
static REDLOCKS_OF_3: Pool<Nodes> = Pool::new(|| redlock(3, |_| 3));
static REDLOCKS_OF_5: Pool<Nodes> = Pool::new(|| redlock(5, |_| 5));
static REDLOCKS_ONE_DEAD: Pool<Nodes> = Pool::new(|| {
    redlock(3, |nodes| {
        nodes.node(2).kill();
        2
    })
});
static REDLOCKS_ONE_HUNG: Pool<Nodes> = Pool::new(|| {
    redlock(3, |nodes| {
        nodes.node(2).pause();
        2
    })
});

/// A deployment for one test.
pub enum Stage {
    Memory {
        name: String,
    },
    Redis {
        server: Box<RedisServer>,
        layout: Layout,
    },
    Sentinel(Lent<Sentinels>),
    Cluster(Lent<Cluster>),
    Redlock {
        nodes: Lent<Nodes>,
        layout: Layout,
    },
}

impl Stage {
    pub fn memory() -> Self {
        Self::Memory {
            name: format!("stage-{:016x}", rand::random::<u64>()),
        }
    }

    pub fn redis() -> Self {
        Self::Redis {
            server: Box::new(RedisServer::start()),
            layout: Layout::Native,
        }
    }

    pub fn redisson() -> Self {
        Self::Redis {
            server: Box::new(RedisServer::start()),
            layout: Layout::Redisson,
        }
    }

    pub fn sentinel() -> Self {
        Self::Sentinel(SENTINELS.lend())
    }

    pub fn cluster() -> Self {
        Self::Cluster(CLUSTERS.lend())
    }

    pub fn redlock_3() -> Self {
        Self::of(REDLOCKS_OF_3.lend())
    }

    pub fn redlock_5() -> Self {
        Self::of(REDLOCKS_OF_5.lend())
    }

    pub fn redlock_3_one_dead() -> Self {
        Self::of(REDLOCKS_ONE_DEAD.lend())
    }

    pub fn redlock_3_one_hung() -> Self {
        Self::of(REDLOCKS_ONE_HUNG.lend())
    }

    pub fn redlock_3_redisson() -> Self {
        Self::Redlock {
            nodes: REDLOCKS_OF_3.lend(),
            layout: Layout::Redisson,
        }
    }

    fn of(nodes: Lent<Nodes>) -> Self {
        Self::Redlock {
            nodes,
            layout: Layout::Native,
        }
    }

    /// Where a deployment with one URL is.
    pub fn url(&self) -> String {
        match self {
            Self::Memory { name } => format!("memory://{name}"),
            Self::Redis { server, layout } => format!("{}?layout={layout}", server.url()),
            Self::Sentinel(sentinels) => sentinels.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::Redlock { .. } => panic!("a redlock has several urls"),
        }
    }

    pub fn builder(&self) -> StageBuilder {
        match self {
            Self::Redlock { nodes, layout } => {
                let builder = Redlock::builder(nodes.nodes.urls());
                StageBuilder::Redlock(builder.layout(*layout))
            }
            _ => StageBuilder::Tenure(Tenure::builder(self.url())),
        }
    }

    /// A client that plays a process of its own.
    pub async fn client(&self) -> Locks {
        self.builder().connect().await.unwrap()
    }

    /// The servers that take writes.
    pub fn masters(&self) -> Vec<&RedisServer> {
        match self {
            Self::Memory { .. } => Vec::new(),
            Self::Redis { server, .. } => vec![server],
            Self::Sentinel(sentinels) => sentinels.masters(),
            Self::Cluster(cluster) => cluster.masters(),
            Self::Redlock { nodes, .. } => nodes.masters(),
        }
    }

    /// Whether its servers reply after they have written to disk, which may take long on a busy machine.
    pub fn waits_for_disks(&self) -> bool {
        matches!(self, Self::Redlock { .. })
    }

    /// The servers that have this key.
    pub fn servers_of(&self, key: &str) -> Vec<&RedisServer> {
        match self {
            Self::Cluster(cluster) => vec![cluster.master_of_key(key)],
            _ => self.masters(),
        }
    }

    /// Deletes the lock as an administrator with a raw connection would. Where there is no server
    /// to go around, the lease is ended by force.
    pub async fn delete_lock(&self, name: &str) {
        if let Self::Memory { .. } = self {
            let admin = self.client().await;
            if let Some(holder) = admin.lock(name).holder().await.unwrap() {
                admin.force_release(name, &holder.lease).await.unwrap();
            }
        }
        for server in self.servers_of(name) {
            server.client().command(&["DEL", name]);
        }
    }

    /// The id of a lease without a guard.
    pub fn dead_lease(&self, ttl: Duration) -> LeaseId {
        let ttl_ms = ttl.as_millis();
        LeaseId::new(match self.layout() {
            Layout::Redisson => format!("00000000-0000-8000-8000-000000000007:1{ttl_ms:08}"),
            _ => format!("tenure:{:032x}:1:{ttl_ms}", 7),
        })
    }

    /// The key of the fence counter of the lock `n`.
    pub fn fence_key(&self) -> &'static str {
        match (self, self.layout()) {
            (_, Layout::Redisson) => "redisson_lock_token:{n}",
            (Self::Redlock { .. }, _) => "tenure:fence:{n}",
            (Self::Cluster(_), _) => "tenure:fences:{n}",
            _ => "tenure:fences",
        }
    }

    pub fn layout(&self) -> Layout {
        match self {
            Self::Redis { layout, .. } | Self::Redlock { layout, .. } => *layout,
            _ => Layout::Native,
        }
    }

    /// Whether the store keeps nothing for this name but its fence counter.
    pub async fn is_clean(&self, name: &str) -> bool {
        if let Self::Memory { .. } = self {
            return !self.client().await.lock(name).is_locked().await.unwrap();
        }
        let name = LockName::new(name).unwrap();
        let tagged = format!("{{{name}}}");
        // What clients say of themselves is not of this name, and ends by itself.
        let is_left = |key: &str| {
            (key == name.as_str() || key.contains(&tagged))
                && !key.starts_with("tenure:fence")
                && !key.starts_with("redisson_lock_token:")
        };
        let is_clean = |server: &&RedisServer| {
            let keys = server.client().command(&["KEYS", "*"]);
            !keys.array().iter().any(|key| is_left(key.text()))
        };
        self.masters().iter().all(is_clean)
    }
}

fn redlock(nodes: usize, prepare: fn(&RedlockNodes) -> usize) -> Nodes {
    let nodes = RedlockNodes::builder().nodes(nodes).start();
    let answering = prepare(&nodes);
    Nodes { nodes, answering }
}

/// Waits until something is so, for things that happen soon but not at once. Longer than a crowded
/// machine needs, and half as long as a waiter that nobody wakes takes to look by itself.
pub async fn soon(mut condition: impl AsyncFnMut() -> bool) -> bool {
    for _ in 0..1_000 {
        if condition().await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
