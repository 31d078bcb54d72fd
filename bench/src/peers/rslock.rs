//! `rslock` on one server or several.

use rslock::{LockGuard, LockManager};

use crate::contender::{Contender, TTL};

/// A lock manager with its defaults: it polls at random, 100 ms apart on average.
#[derive(Clone)]
pub struct Rslock(LockManager);

impl Rslock {
    pub fn connect(url: &str) -> Self {
        Self(LockManager::new(vec![url]))
    }

    /// On several independent servers.
    pub fn connect_all(urls: &[String]) -> Self {
        Self(LockManager::new(urls.to_vec()))
    }
}

impl Contender for Rslock {
    type Held = LockGuard;

    async fn acquire(&self, name: &str) -> LockGuard {
        let guard = self.0.acquire(name.as_bytes(), TTL).await;
        guard.expect("rslock could not acquire")
    }

    async fn release(&self, guard: LockGuard) {
        guard.release().await;
    }
}
