//! `rlock` on one server.

use rlock::AcquireOptions;
use rlock::async_lock::{RLock, RLockGuard};

use crate::contender::{Contender, TTL};

/// A lock manager with its defaults: it renews, and polls every 100 ms.
#[derive(Clone)]
pub struct Rlock {
    manager: RLock,
    options: AcquireOptions,
}

impl Rlock {
    pub async fn connect(url: &str) -> Self {
        let manager = RLock::new(url).await.expect("rlock could not connect");
        let options = AcquireOptions::builder().ttl(TTL).build();
        let options = options.expect("rlock takes these options");
        Self { manager, options }
    }
}

impl Contender for Rlock {
    type Held = RLockGuard;

    async fn acquire(&self, name: &str) -> RLockGuard {
        let options = self.options.clone();
        let guard = self.manager.acquire_mutex_with_options(name, options);
        guard.await.expect("rlock could not acquire")
    }

    async fn release(&self, mut guard: RLockGuard) {
        guard.release().await.expect("rlock could not release");
    }
}
