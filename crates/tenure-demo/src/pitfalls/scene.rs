//! The store that the pitfalls share, with separate keys for each act.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tenure::{Locks, Tenure};
use tenure_sale::Stock;

use crate::plain_store::PlainStore;
use crate::ways::{Counter, Way};

/// How long the clients may take to release their locks.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Prefixes of the other keys of a lock, and of those of the redisson layout.
const LOCK_KEY_PREFIXES: [&str; 4] = [
    "tenure:fences",
    "tenure:fence",
    "tenure:queue",
    "tenure:alive",
];
const REDISSON_KEY_PREFIX: &str = "redisson_lock_token";

/// The store that all pitfalls share, and what must be cleaned up there.
pub(crate) struct Stage {
    url: String,
    is_embedded: bool,
    /// Part of every key: real keys are never touched.
    run: String,
    store: PlainStore,
    keys: Mutex<BTreeSet<String>>,
    stocks: Mutex<Vec<Stock>>,
    counters: Mutex<Vec<Counter>>,
    clients: Mutex<Vec<Locks>>,
}

/// What one act may use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Scene {
    stage: Arc<Stage>,
    prefix: String,
}

impl Stage {
    /// Opens the store at `url`, or an embedded one without a URL.
    pub(crate) async fn open(url: Option<&str>) -> Result<Arc<Self>> {
        let run = format!("pitfalls-{:08x}", rand::random::<u32>());
        let given = url.map(str::trim).filter(|url| *url != "memory://");
        let url = given.map_or_else(|| format!("memory://{run}"), ToOwned::to_owned);
        let is_embedded = url.starts_with("memory://");
        let store = if is_embedded {
            PlainStore::in_memory()
        } else {
            let connecting = PlainStore::connect(&url).await;
            connecting.with_context(|| {
                let place = tenure::masked_url(&url);
                format!("cannot play the pitfalls on `{place}`")
            })?
        };
        Ok(Arc::new(Self {
            url,
            is_embedded,
            run,
            store,
            keys: Mutex::default(),
            stocks: Mutex::default(),
            counters: Mutex::default(),
            clients: Mutex::default(),
        }))
    }

    /// Describes the store for people.
    pub(crate) fn place(&self) -> String {
        if self.is_embedded {
            "on the embedded store, no server needed".to_owned()
        } else {
            format!("on {}", tenure::masked_url(&self.url))
        }
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.is_embedded
    }

    /// The scene of one act, which no other act shares.
    pub(crate) fn scene(self: &Arc<Self>, act: &str) -> Scene {
        Scene {
            stage: Arc::clone(self),
            prefix: format!("{}:{act}", self.run),
        }
    }

    /// Closes the clients and deletes all keys.
    pub(crate) async fn close(&self) -> Result<()> {
        let clients: Vec<Locks> = lock(&self.clients).drain(..).collect();
        let closing = clients.into_iter().map(|client| async move {
            client.shutdown(CLOSE_MAX).await;
            Ok(())
        });
        super::life::together(closing).await?;
        let deleting = self.delete_keys().await;
        deleting.with_context(|| {
            let (place, run) = (tenure::masked_url(&self.url), &self.run);
            format!("cannot delete the keys of the pitfalls on `{place}`: they hold `{run}`")
        })
    }

    async fn delete_keys(&self) -> Result<()> {
        let stocks: Vec<Stock> = lock(&self.stocks).drain(..).collect();
        for stock in stocks {
            stock.remove().await?;
        }
        let counters: Vec<Counter> = lock(&self.counters).drain(..).collect();
        for counter in counters {
            counter.remove().await?;
        }
        let keys: Vec<String> = lock(&self.keys).iter().cloned().collect();
        let mut all: Vec<String> = keys.iter().flat_map(|key| self.lock_keys(key)).collect();
        all.extend(keys);
        self.store.del_all(all).await
    }

    /// The other keys that a lock of this name may have left.
    fn lock_keys(&self, name: &str) -> Vec<String> {
        let mut roles = LOCK_KEY_PREFIXES.to_vec();
        // Only then: the user may lack permission for these keys.
        if self.url.contains("layout=redisson") {
            roles.push(REDISSON_KEY_PREFIX);
        }
        let keys = roles.iter().map(|role| format!("{role}:{{{name}}}"));
        keys.collect()
    }
}

impl Scene {
    pub(crate) fn store(&self) -> PlainStore {
        self.stage.store.clone()
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.stage.is_embedded
    }

    /// A key or lock name that only this act uses and that is deleted at the end.
    pub(crate) fn key(&self, what: &str) -> String {
        let key = format!("{}:{what}", self.prefix);
        lock(&self.stage.keys).insert(key.clone());
        key
    }

    /// A Tenure client on the same store. For locks it is a separate process.
    pub(crate) async fn process(&self, name: &str) -> Result<Locks> {
        let builder = Tenure::builder(&self.stage.url).name(name);
        let client = builder.connect().await?.as_locks().clone();
        lock(&self.stage.clients).push(client.clone());
        Ok(client)
    }

    /// An item with this many units, whose stock refuses an older fence.
    pub(crate) async fn stock(&self, units: u64) -> Result<Stock> {
        let stock = Stock::open(&self.stage.url, format!("{}:item", self.prefix)).await?;
        lock(&self.stage.stocks).push(stock.clone());
        stock.load(units).await?;
        Ok(stock)
    }

    /// An item with this many units at the gate.
    pub(crate) async fn gate(&self, units: u64) -> Result<Counter> {
        let item = format!("{}:item", self.prefix);
        let counter = Counter::open(Way::Script, &self.stage.url, item).await?;
        lock(&self.stage.counters).push(counter.clone());
        counter.load(units).await?;
        Ok(counter)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
