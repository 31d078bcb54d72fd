//! Where a run takes place: its stock and its lock, under unique names in the service's own store.

use std::time::Duration;

use anyhow::{Context, Result};
use tenure::redis::Client;
use tenure::{Lock, Locks, Unordered};
use tenure_sale::Stock;
use tenure_sale::gate::Gate;
use tenure_view::scratch_names;

use super::plan::Plan;
use crate::connect::connect_as;
use crate::ways::{Counter, Way};

/// Longer than any run, so that waiters never time out.
const WAIT_MAX: Duration = Duration::from_hours(1);
/// How long an instance may take to shut down.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(500);
/// Time limit for cleaning up; a store that is unavailable keeps the keys.
const CLEAR_WITHIN: Duration = Duration::from_secs(5);

/// What an instance needs to open a counter.
#[derive(Clone)]
pub(crate) struct Place {
    /// They contain passwords and must not be shown. The stock is on the first.
    urls: Vec<String>,
    id: String,
    lock_name: String,
    way: Way,
    ttl: Duration,
}

/// The stock on sale, and a counter to read it.
pub(crate) struct Stage {
    place: Place,
    counter: Counter,
}

/// What one instance sells with.
pub(crate) struct Till {
    pub(crate) counter: Counter,
    /// Only in lock mode.
    pub(crate) locked: Option<Locked>,
}

/// The lock of an instance, and a counter whose leases are not renewed.
pub(crate) struct Locked {
    pub(crate) lock: Lock<Unordered>,
    pub(crate) unrenewed: Counter,
    locks: Locks,
}

impl Place {
    pub(crate) fn new(urls: &[String], id: &str, plan: &Plan) -> Self {
        let mut urls = urls.to_vec();
        // A bare `memory://` is private to each client, but the instances need a shared store.
        if urls.len() == 1 && urls[0].trim() == "memory://" {
            urls = vec![format!("memory://{id}")];
        }
        Self {
            urls,
            id: id.to_owned(),
            lock_name: format!("order:1001:{{{id}}}"),
            way: plan.mode.way(),
            ttl: plan.ttl(),
        }
    }

    /// Opens the till of one instance, with its own clients.
    pub(crate) async fn open(&self, instance: u64) -> Result<Till> {
        if self.way != Way::Lock {
            let counter = self.counter().await?;
            let locked = None;
            return Ok(Till { counter, locked });
        }
        let stock = Stock::open(&self.urls[0], &self.id).await?;
        let locks = connect_as(&self.urls, &format!("{}-shop-{instance}", self.id)).await?;
        let lock = locks.lock(&self.lock_name).ttl(self.ttl);
        let under = |lock| Counter::under_lock(stock.clone(), lock).waiting_max(WAIT_MAX);
        Ok(Till {
            counter: under(lock.clone()),
            locked: Some(Locked {
                unrenewed: under(locks.lock(&self.lock_name).ttl(self.ttl).no_renewal()),
                lock,
                locks,
            }),
        })
    }

    /// A counter that needs no lock.
    async fn counter(&self) -> Result<Counter> {
        let url = &self.urls[0];
        Ok(match self.way {
            Way::Script => Counter::by_script(Gate::connect(url).await?, &self.id),
            Way::Naive | Way::Lock => Counter::naive(Stock::open(url, &self.id).await?),
        })
    }
}

impl Stage {
    /// Puts the stock on sale.
    pub(crate) async fn open(place: Place, stock: u64) -> Result<Self> {
        let counter = place.counter().await?;
        counter.load(stock).await?;
        Ok(Self { place, counter })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Units left according to the store.
    pub(crate) async fn left(&self) -> Result<u64> {
        self.counter.left().await
    }

    /// Removes everything the run stored.
    pub(crate) async fn clear(&self) -> Result<()> {
        let clearing = async {
            self.counter.remove().await?;
            let is_server = |url: &&String| !url.trim_start().starts_with("memory:");
            for url in self.place.urls.iter().filter(is_server) {
                let client = Client::connect(url).await?;
                scratch_names::sweep(&client, std::slice::from_ref(&self.place.lock_name)).await;
            }
            anyhow::Ok(())
        };
        let cleared = tokio::time::timeout(CLEAR_WITHIN, clearing).await;
        let cleared = cleared.context("Redis does not respond").flatten();
        cleared.with_context(|| format!("keys of `{}` may be left", self.place.id))
    }
}

impl Till {
    /// Releases all locks.
    pub(crate) async fn close(&self) {
        if let Some(locked) = &self.locked {
            locked.locks.shutdown(SHUTDOWN_LIMIT).await;
        }
    }
}
