//! The shop: several instances, each with its own client, and one item on sale.

use std::time::Duration;

use anyhow::{Context, Result};
use tenure::redis::{Client, Command};
use tenure::{LockName, Locks};
use tenure_sale::Stock;
use tenure_sale::gate::Gate;

use super::options::Options;
use crate::connect::connect_as;
use crate::ways::{Counter, Way};

/// How long the instances may take to release their locks.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// How long an order takes between reading the stock and writing it: a price, a payment.
const THINKING: Duration = Duration::from_millis(1);

pub(crate) struct Shop {
    /// One, or several independent servers. The stock is on the first.
    urls: Vec<String>,
    is_embedded: bool,
    lock_name: LockName,
    instances: Vec<Instance>,
}

/// One process of the shop, played by a separate client.
struct Instance {
    locks: Locks,
    stock: Stock,
    gate: Gate,
}

impl Shop {
    pub(crate) async fn open(options: &Options) -> Result<Self> {
        // Unique names: real items and locks are never touched.
        let run = format!("demo-{:08x}", rand::random::<u32>());
        let mut urls = options.urls.clone();
        // A bare `memory://` is private to each client, but the instances need a shared store.
        if urls.is_empty() || urls.len() == 1 && urls[0].trim() == "memory://" {
            urls = vec![format!("memory://{run}")];
        }
        let is_embedded = urls[0].trim_start().starts_with("memory://");
        let opening = Self::open_at(&urls, &run, options.clients).await;
        let (lock_name, instances) =
            opening.with_context(|| format!("cannot run the demo on `{}`", masked(&urls)))?;
        Ok(Self {
            urls,
            is_embedded,
            lock_name,
            instances,
        })
    }

    async fn open_at(
        urls: &[String],
        run: &str,
        clients: u64,
    ) -> Result<(LockName, Vec<Instance>)> {
        let lock_name = LockName::new(format!("order:1001:{run}"))?;
        let mut instances = Vec::new();
        for number in 1..=clients {
            instances.push(Instance {
                locks: connect_as(urls, &format!("{run}-shop-{number}")).await?,
                stock: Stock::open(&urls[0], run).await?,
                gate: Gate::connect(&urls[0]).await?,
            });
        }
        Ok((lock_name, instances))
    }

    /// Describes where it runs, for people.
    pub(crate) fn place(&self) -> String {
        if self.is_embedded {
            "on the embedded store, no server needed".to_owned()
        } else {
            format!("on {}", masked(&self.urls))
        }
    }

    /// The first of its servers, for people.
    pub(crate) fn first_place(&self) -> String {
        tenure::masked_url(&self.urls[0])
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.is_embedded
    }

    pub(crate) fn lock_name(&self) -> &LockName {
        &self.lock_name
    }

    /// Whether it can sell this way here.
    pub(crate) fn supports(&self, way: Way) -> bool {
        // A script is atomic on one server and cannot span several.
        way != Way::Script || self.urls.len() == 1
    }

    /// A counter in each instance, all for the same item.
    pub(crate) fn counters(&self, way: Way) -> Vec<Counter> {
        let counters = self.instances.iter().map(|instance| {
            let Instance { locks, stock, gate } = instance;
            let counter = match way {
                Way::Naive => Counter::naive(stock.clone()),
                Way::Lock => Counter::under_lock(stock.clone(), locks.lock(&self.lock_name)),
                Way::Script => Counter::by_script(gate.clone(), stock.item()),
            };
            counter.thinking(THINKING)
        });
        counters.collect()
    }

    /// Closes the clients and deletes all keys.
    pub(crate) async fn close(self) -> Result<()> {
        let closing = self.instances.iter().map(|instance| {
            let locks = instance.locks.clone();
            tokio::spawn(async move { locks.shutdown(CLOSE_MAX).await })
        });
        for closed in closing.collect::<Vec<_>>() {
            closed.await?;
        }
        let deleting = self.delete_keys().await;
        deleting.with_context(|| {
            let (place, keys) = (masked(&self.urls), self.keys("").join("`, `"));
            format!("cannot delete the demo's keys on `{place}`: `{keys}`")
        })
    }

    async fn delete_keys(&self) -> Result<()> {
        for way in Way::ALL.into_iter().filter(|way| self.supports(*way)) {
            self.counters(way)[0].remove().await?;
        }
        if self.is_embedded {
            return Ok(());
        }
        for url in &self.urls {
            let redis = match Client::connect(url).await {
                Ok(redis) => redis,
                // One of several may be down: it was not needed, and its keys expire.
                Err(_) if self.urls.len() > 1 => continue,
                Err(error) => return Err(error.into()),
            };
            let delete = |command: Command, key: String| command.arg(key);
            let command = self
                .keys(redis.prefix())
                .into_iter()
                .fold(Command::new("DEL"), delete);
            redis.run(command).await?;
        }
        Ok(())
    }

    /// The keys that the lock may leave on a server, such as the last fence.
    fn keys(&self, prefix: &str) -> Vec<String> {
        let name = &self.lock_name;
        let lock_key = |role: &str| format!("{prefix}tenure:{role}:{{{prefix}{name}}}");
        let lock_key = ["fences", "fence", "queue", "alive"].map(lock_key);
        [format!("{prefix}{name}")]
            .into_iter()
            .chain(lock_key)
            .collect()
    }
}

/// The URLs without passwords.
fn masked(urls: &[String]) -> String {
    let masked: Vec<String> = urls.iter().map(|url| tenure::masked_url(url)).collect();
    masked.join(", ")
}
