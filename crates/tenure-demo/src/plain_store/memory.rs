//! Keys in this process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

#[derive(Default)]
pub(crate) struct MemoryStore {
    // A std mutex, not an async one: no call waits while it is held.
    entries: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    value: String,
    expires_at: Option<Instant>,
}

impl MemoryStore {
    pub(crate) async fn set_nx(
        &self,
        key: &str,
        value: &str,
        lease: Option<Duration>,
    ) -> Result<bool> {
        let mut entries = self.ask().await;
        if live(&mut entries, key).is_some() {
            return Ok(false);
        }
        let value = value.to_owned();
        let expires_at = lease.map(|lease| Instant::now() + lease);
        entries.insert(key.to_owned(), Entry { value, expires_at });
        Ok(true)
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<String>> {
        let mut entries = self.ask().await;
        Ok(live(&mut entries, key).map(|entry| entry.value.clone()))
    }

    pub(crate) async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>> {
        let mut entries = self.ask().await;
        let before = live(&mut entries, key).map(|entry| entry.value.clone());
        let (value, expires_at) = (value.to_owned(), None);
        entries.insert(key.to_owned(), Entry { value, expires_at });
        Ok(before)
    }

    pub(crate) async fn del(&self, key: &str) -> Result<()> {
        self.ask().await.remove(key);
        Ok(())
    }

    pub(crate) async fn del_all(&self, keys: &[String]) -> Result<()> {
        self.ask().await.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    pub(crate) async fn expire(&self, key: &str, lease: Duration) -> Result<bool> {
        let mut entries = self.ask().await;
        let found = live(&mut entries, key);
        let is_there = found.is_some();
        if let Some(entry) = found {
            entry.expires_at = Some(Instant::now() + lease);
        }
        Ok(is_there)
    }

    pub(crate) async fn is_endless(&self, key: &str) -> Result<bool> {
        let mut entries = self.ask().await;
        Ok(live(&mut entries, key).is_some_and(|entry| entry.expires_at.is_none()))
    }

    pub(crate) async fn decr(&self, key: &str) -> Result<i64> {
        let mut entries = self.ask().await;
        let entry = live(&mut entries, key).with_context(|| nothing_at(key))?;
        let left = number(entry)? - 1;
        entry.value = left.to_string();
        Ok(left)
    }

    /// Yields, as a networked store would: a busy loop must not starve other tasks.
    async fn ask(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        tokio::task::yield_now().await;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a key, unless it has expired.
fn live<'a>(entries: &'a mut HashMap<String, Entry>, key: &str) -> Option<&'a mut Entry> {
    let now = Instant::now();
    let has_expired = |entry: &Entry| entry.expires_at.is_some_and(|expires_at| expires_at <= now);
    if entries.get(key).is_some_and(has_expired) {
        entries.remove(key);
    }
    entries.get_mut(key)
}

fn number(entry: &Entry) -> Result<i64> {
    let value = &entry.value;
    let number = value.parse();
    number.with_context(|| format!("cannot read `{value}` as a number"))
}

fn nothing_at(key: &str) -> String {
    format!("key `{key}` not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn only_a_key_with_a_lease_expires() {
        let store = MemoryStore::default();
        assert!(store.set_nx("lease", "A", Some(LEASE)).await.unwrap());
        assert!(store.set_nx("forever", "A", None).await.unwrap());
        assert!(!store.set_nx("forever", "B", None).await.unwrap());
        assert!(store.is_endless("forever").await.unwrap());
        assert!(!store.is_endless("lease").await.unwrap());
        tokio::time::sleep(2 * LEASE).await;
        assert_eq!(store.get("lease").await.unwrap(), None);
        assert!(!store.expire("lease", LEASE).await.unwrap());
        assert!(store.set_nx("lease", "B", Some(LEASE)).await.unwrap());
        assert!(store.expire("forever", LEASE).await.unwrap());
        tokio::time::sleep(2 * LEASE).await;
        assert!(store.set_nx("forever", "B", None).await.unwrap());
    }

    #[tokio::test]
    async fn get_set_returns_the_old_value_and_clears_its_expiry() {
        let store = MemoryStore::default();
        assert_eq!(store.get_set("key", "1").await.unwrap(), None);
        store.expire("key", LEASE).await.unwrap();
        assert_eq!(store.get_set("key", "2").await.unwrap(), Some("1".into()));
        tokio::time::sleep(2 * LEASE).await;
        assert_eq!(store.get("key").await.unwrap(), Some("2".into()));
    }

    #[tokio::test]
    async fn decr_needs_an_existing_number() {
        let store = MemoryStore::default();
        assert!(store.decr("stock").await.is_err());
        store.get_set("stock", "0").await.unwrap();
        assert_eq!(store.decr("stock").await.unwrap(), -1);
        store.del("stock").await.unwrap();
        assert_eq!(store.get("stock").await.unwrap(), None);
    }
}
