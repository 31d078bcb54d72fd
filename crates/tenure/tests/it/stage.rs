//! Where the contract runs: a store of its own for every test, and ways to reach around the
//! library.

use std::time::Duration;

use tenure::{Builder, LockName, Tenure};
use tenure_testkit::RedisServer;

/// A store for one test.
pub enum Stage {
    Memory { name: String },
    Redis { server: Box<RedisServer> },
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
        }
    }

    pub fn url(&self) -> String {
        match self {
            Self::Memory { name } => format!("memory://{name}"),
            Self::Redis { server } => server.url(),
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
            Self::Redis { server } => {
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

    /// Whether the store keeps nothing for this name but its fence counter.
    pub async fn is_clean(&self, name: &str) -> bool {
        let admin = self.client().await;
        if admin.lock(name).is_locked().await.unwrap() {
            return false;
        }
        match self {
            Self::Memory { .. } => true,
            Self::Redis { server } => {
                let name = LockName::new(name).unwrap();
                let mut redis = server.client();
                let keys = redis.command(&["KEYS", "*"]);
                let left: Vec<&str> = keys
                    .array()
                    .iter()
                    .map(|key| key.text())
                    .filter(|key| key.contains(name.as_str()))
                    .filter(|key| !key.starts_with("tenure:fence:"))
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
