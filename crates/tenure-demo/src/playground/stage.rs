//! Where a run takes place: its stock and its lock in the service's own store, under names of its own.

use std::time::Duration;

use anyhow::{Context, Result};
use tenure::redis::Client;
use tenure::{Lock, Locks};
use tenure_sale::Stock;
use tenure_sale::gate::Gate;
use tenure_view::scratch_names;

use super::plan::Plan;
use crate::connect::connect_as;
use crate::ways::{Counter, Way};

/// Longer than any run: who waits for the lock waits until the run is over.
const WAIT_MAX: Duration = Duration::from_hours(1);
/// How long an instance may take to say goodbye.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long it may take to remove what a run leaves: a store that is away keeps it.
const CLEAR_WITHIN: Duration = Duration::from_secs(5);

/// What those who sell must know to open a counter.
#[derive(Clone)]
pub(crate) struct Place {
    /// With passwords: not to be shown. The stock is on the first.
    urls: Vec<String>,
    id: String,
    lock_name: String,
    way: Way,
    ttl: Duration,
}

/// The stock on sale, and a counter to look at it.
pub(crate) struct Stage {
    place: Place,
    counter: Counter,
}

/// What one instance sells with.
pub(crate) struct Till {
    pub(crate) counter: Counter,
    /// Under a lock: the lock, and a counter whose leases nothing renews.
    pub(crate) locked: Option<Locked>,
}

/// What an instance has that sells under a lock.
pub(crate) struct Locked {
    pub(crate) lock: Lock,
    pub(crate) unrenewed: Counter,
    locks: Locks,
}

impl Place {
    pub(crate) fn new(urls: &[String], id: &str, plan: &Plan) -> Self {
        let mut urls = urls.to_vec();
        // A bare `memory://` is private to each client: the instances need one that they share.
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

    /// Opens what one instance sells with, by clients of its own.
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
                unrenewed: under(locks.lock(&self.lock_name).fixed(self.ttl)),
                lock,
                locks,
            }),
        })
    }

    /// One that needs no lock.
    async fn counter(&self) -> Result<Counter> {
        let url = &self.urls[0];
        Ok(match self.way {
            Way::Script => Counter::by_script(Gate::connect(url).await?, &self.id),
            Way::Naive | Way::Lock => Counter::naive(Stock::open(url, &self.id).await?),
        })
    }
}

impl Stage {
    /// Brings the stock on sale.
    pub(crate) async fn open(place: Place, stock: u64) -> Result<Self> {
        let counter = place.counter().await?;
        counter.load(stock).await?;
        Ok(Self { place, counter })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The units that the store says are left.
    pub(crate) async fn left(&self) -> Result<u64> {
        self.counter.left().await
    }

    /// Leaves nothing behind.
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
        let cleared = cleared.context("the store does not answer").flatten();
        cleared.with_context(|| format!("keys of `{}` may be left", self.place.id))
    }
}

impl Till {
    /// Lets go of everything.
    pub(crate) async fn close(&self) {
        if let Some(locked) = &self.locked {
            locked.locks.shutdown(FAREWELL).await;
        }
    }
}
