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
    ends: Option<Instant>,
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
        let ends = lease.map(|lease| Instant::now() + lease);
        entries.insert(key.to_owned(), Entry { value, ends });
        Ok(true)
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Option<String>> {
        let mut entries = self.ask().await;
        Ok(live(&mut entries, key).map(|entry| entry.value.clone()))
    }

    pub(crate) async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>> {
        let mut entries = self.ask().await;
        let before = live(&mut entries, key).map(|entry| entry.value.clone());
        let (value, ends) = (value.to_owned(), None);
        entries.insert(key.to_owned(), Entry { value, ends });
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
            entry.ends = Some(Instant::now() + lease);
        }
        Ok(is_there)
    }

    pub(crate) async fn is_endless(&self, key: &str) -> Result<bool> {
        let mut entries = self.ask().await;
        Ok(live(&mut entries, key).is_some_and(|entry| entry.ends.is_none()))
    }

    pub(crate) async fn decr(&self, key: &str) -> Result<i64> {
        let mut entries = self.ask().await;
        let entry = live(&mut entries, key).with_context(|| nothing_at(key))?;
        let left = number(entry)? - 1;
        entry.value = left.to_string();
        Ok(left)
    }

    /// Lets others go first now and then, as a store behind a network does: whoever asks without
    /// a pause must not keep everybody else from running.
    async fn ask(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        tokio::task::yield_now().await;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is at a key, unless it has ended.
fn live<'a>(entries: &'a mut HashMap<String, Entry>, key: &str) -> Option<&'a mut Entry> {
    let now = Instant::now();
    let has_ended = |entry: &Entry| entry.ends.is_some_and(|ends| ends <= now);
    if entries.get(key).is_some_and(has_ended) {
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
    format!("there is nothing at `{key}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_key_with_a_lease_ends_and_one_without_does_not() {
        let store = MemoryStore::default();
        assert!(store.set_nx("lease", "A", Some(LEASE)).await.unwrap());
        assert!(store.set_nx("for ever", "A", None).await.unwrap());
        assert!(!store.set_nx("for ever", "B", None).await.unwrap());
        assert!(store.is_endless("for ever").await.unwrap());
        assert!(!store.is_endless("lease").await.unwrap());
        tokio::time::sleep(2 * LEASE).await;
        assert_eq!(store.get("lease").await.unwrap(), None);
        assert!(!store.expire("lease", LEASE).await.unwrap());
        assert!(store.set_nx("lease", "B", Some(LEASE)).await.unwrap());
        assert!(store.expire("for ever", LEASE).await.unwrap());
        tokio::time::sleep(2 * LEASE).await;
        assert!(store.set_nx("for ever", "B", None).await.unwrap());
    }

    #[tokio::test]
    async fn what_was_there_before_is_told_and_loses_its_end() {
        let store = MemoryStore::default();
        assert_eq!(store.get_set("key", "1").await.unwrap(), None);
        store.expire("key", LEASE).await.unwrap();
        assert_eq!(store.get_set("key", "2").await.unwrap(), Some("1".into()));
        tokio::time::sleep(2 * LEASE).await;
        assert_eq!(store.get("key").await.unwrap(), Some("2".into()));
    }

    #[tokio::test]
    async fn a_number_is_counted_down_and_nothing_is_none() {
        let store = MemoryStore::default();
        assert!(store.decr("stock").await.is_err());
        store.get_set("stock", "0").await.unwrap();
        assert_eq!(store.decr("stock").await.unwrap(), -1);
        store.del("stock").await.unwrap();
        assert_eq!(store.get("stock").await.unwrap(), None);
    }
}
