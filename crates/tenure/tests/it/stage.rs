//! Where the contract runs: a store of its own for every test, and ways to reach around the
//! library.

use std::time::Duration;

use tenure::{Builder, Layout, LeaseId, LockName, Tenure};
use tenure_testkit::RedisServer;

/// A store for one test.
pub enum Stage {
    Memory {
        name: String,
    },
    Redis {
        server: Box<RedisServer>,
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

    pub fn url(&self) -> String {
        match self {
            Self::Memory { name } => format!("memory://{name}"),
            Self::Redis { server, layout } => format!("{}?layout={layout}", server.url()),
        }
    }

    pub fn builder(&self) -> Builder {
        Tenure::builder(self.url())
    }

    /// A client that plays a process of its own.
    pub async fn client(&self) -> Tenure {
        self.builder().connect().await.unwrap()
    }

    /// Deletes the lock as an administrator with a raw connection would. Where there is no server
    /// to go around, the lease is ended by force.
    pub async fn delete_lock(&self, name: &str) {
        match self {
            Self::Redis { server, .. } => {
                server.client().command(&["DEL", name]);
            }
            Self::Memory { .. } => {
                let admin = self.client().await;
                if let Some(holder) = admin.lock(name).holder().await.unwrap() {
                    admin.force_release(name, &holder.lease).await.unwrap();
                }
            }
        }
    }

    /// The id of a lease that nobody looks after.
    pub fn dead_lease(&self, ttl: Duration) -> LeaseId {
        let ttl_ms = ttl.as_millis();
        LeaseId::new(match self {
            Self::Redis {
                layout: Layout::Redisson,
                ..
            } => format!("00000000-0000-8000-8000-000000000007:1{ttl_ms:08}"),
            _ => format!("tenure:{:032x}:1:{ttl_ms}", 7),
        })
    }

    /// The key of the fence counter of the lock `n`.
    pub fn fence_key(&self) -> &'static str {
        match self {
            Self::Redis {
                layout: Layout::Redisson,
                ..
            } => "redisson_lock_token:{n}",
            _ => "tenure:fence:{n}",
        }
    }

    /// Whether the store keeps nothing for this name but its fence counter.
    pub async fn is_clean(&self, name: &str) -> bool {
        let admin = self.client().await;
        if admin.lock(name).is_locked().await.unwrap() {
            return false;
        }
        match self {
            Self::Memory { .. } => true,
            Self::Redis { server, .. } => {
                let name = LockName::new(name).unwrap();
                let mut redis = server.client();
                let keys = redis.command(&["KEYS", "*"]);
                let left: Vec<&str> = keys
                    .array()
                    .iter()
                    .map(|key| key.text())
                    .filter(|key| key.contains(name.as_str()))
                    .filter(|key| !key.starts_with("tenure:fence:"))
                    .filter(|key| !key.starts_with("redisson_lock_token:"))
                    .collect();
                left.is_empty()
            }
        }
    }
}

/// Waits until something is so, for things that happen soon but not at once.
pub async fn soon(mut condition: impl AsyncFnMut() -> bool) -> bool {
    for _ in 0..400 {
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
