//! A plain key-value store, the base of home-made locks.

mod memory;
mod redis;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use self::memory::MemoryStore;
use self::redis::RedisStore;

/// Polling interval of a polite waiter.
const POLL: Duration = Duration::from_millis(5);

/// The few commands of Redis that home-made locks use. Cheap to clone; clones are the same store.
#[derive(Clone)]
pub(crate) enum PlainStore {
    Memory(Arc<MemoryStore>),
    Redis(RedisStore),
}

impl PlainStore {
    /// A store inside this process, with keys that expire.
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

    /// `GETSET`: the previous value.
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

    /// Deletes many keys, on whichever nodes they are.
    pub(crate) async fn del_all(&self, keys: Vec<String>) -> Result<()> {
        match self {
            Self::Memory(store) => store.del_all(&keys).await,
            Self::Redis(store) => store.del_all(&keys).await,
        }
    }

    /// `PEXPIRE`: whether the key exists.
    pub(crate) async fn expire(&self, key: &str, lease: Duration) -> Result<bool> {
        match self {
            Self::Memory(store) => store.expire(key, lease).await,
            Self::Redis(store) => store.expire(key, lease).await,
        }
    }

    /// `PTTL`: whether the key exists and never expires.
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

    /// Takes a lock with one command, retried until it is free or `limit` has passed. Returns whether it
    /// was taken.
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
