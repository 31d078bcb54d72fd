//! A store that knows nothing of locks: what people build theirs on.

mod memory;
mod redis;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use self::memory::MemoryStore;
use self::redis::RedisStore;

/// How often somebody who waits politely asks again.
const POLL: Duration = Duration::from_millis(5);

/// The few commands of Redis that home-made locks use. Cheap to clone; clones are the same store.
#[derive(Clone)]
pub(crate) enum PlainStore {
    Memory(Arc<MemoryStore>),
    Redis(RedisStore),
}

impl PlainStore {
    /// A store inside this process, with keys that really end.
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    pub(crate) async fn connect(url: &str) -> Result<Self> {
        Ok(Self::Redis(RedisStore::connect(url).await?))
    }

    /// `SET key value NX`: whether the key was free.
    pub(crate) async fn set_nx(&self, key: &str, value: &str) -> Result<bool> {
        match self {
            Self::Memory(store) => store.set_nx(key, value, None).await,
            Self::Redis(store) => store.set_nx(key, value, None).await,
        }
    }

    /// `SET key value NX PX lease`: whether the key was free.
    pub(crate) async fn set_nx_px(&self, key: &str, value: &str, lease: Duration) -> Result<bool> {
        match self {
            Self::Memory(store) => store.set_nx(key, value, Some(lease)).await,
            Self::Redis(store) => store.set_nx(key, value, Some(lease)).await,
        }
    }

    pub(crate) async fn set(&self, key: &str, value: &str) -> Result<()> {
        match self {
            Self::Memory(store) => store.get_set(key, value).await.map(drop),
            Self::Redis(store) => store.set(key, value).await,
        }
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<String>> {
        match self {
            Self::Memory(store) => store.get(key).await,
            Self::Redis(store) => store.get(key).await,
        }
    }

    /// `GETSET`: what was there before.
    pub(crate) async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>> {
        match self {
            Self::Memory(store) => store.get_set(key, value).await,
            Self::Redis(store) => store.get_set(key, value).await,
        }
    }

    pub(crate) async fn del(&self, key: &str) -> Result<()> {
        match self {
            Self::Memory(store) => store.del(key).await,
            Self::Redis(store) => store.del(key).await,
        }
    }

    /// Deletes many keys at once, wherever they are.
    pub(crate) async fn del_all(&self, keys: Vec<String>) -> Result<()> {
        match self {
            Self::Memory(store) => store.del_all(&keys).await,
            Self::Redis(store) => store.del_all(&keys).await,
        }
    }

    /// `PEXPIRE`: whether the key was there.
    pub(crate) async fn expire(&self, key: &str, lease: Duration) -> Result<bool> {
        match self {
            Self::Memory(store) => store.expire(key, lease).await,
            Self::Redis(store) => store.expire(key, lease).await,
        }
    }

    /// `PTTL`: whether something is there, and will never end.
    pub(crate) async fn is_endless(&self, key: &str) -> Result<bool> {
        match self {
            Self::Memory(store) => store.is_endless(key).await,
            Self::Redis(store) => store.is_endless(key).await,
        }
    }

    pub(crate) async fn decr(&self, key: &str) -> Result<i64> {
        match self {
            Self::Memory(store) => store.decr(key).await,
            Self::Redis(store) => store.decr(key).await,
        }
    }

    /// A lock in one command, asked for until it is free or `limit` has passed: whether it was.
    pub(crate) async fn take_within(
        &self,
        key: &str,
        owner: &str,
        lease: Duration,
        limit: Duration,
    ) -> Result<bool> {
        let begun = Instant::now();
        loop {
            if self.set_nx_px(key, owner, lease).await? {
                return Ok(true);
            }
            if begun.elapsed() >= limit {
                return Ok(false);
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
