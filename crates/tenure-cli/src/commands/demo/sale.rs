//! One sale: all buyers come, each places one order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tenure::LockName;
use tenure_sale::Take;
use tokio::task::JoinSet;

use super::progress::Progress;
use super::shop::{Instance, Shop};

/// How many buyers one instance serves at once.
pub const AT_ONCE: usize = 8;
/// How long an order takes between reading the stock and writing it: a price, a payment.
const THINKING: Duration = Duration::from_millis(1);

/// How a unit is sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Read the stock, think, write it back.
    Naive,
    /// The same under a lock, and the write checks the fence.
    Locked,
}

/// What came of a sale.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    pub way: Way,
    pub initial: u64,
    pub left: u64,
    pub sold: u64,
    /// Orders that were answered: sold, sold out or refused.
    pub answered: u64,
    pub time: Duration,
}

impl Tally {
    /// Whether every unit is either left or sold, once.
    pub fn holds(&self) -> bool {
        self.initial == self.left + self.sold
    }

    /// Units that were sold but never there.
    pub fn oversold(&self) -> u64 {
        self.sold.saturating_sub(self.initial)
    }

    /// Orders answered in a second.
    #[expect(clippy::cast_precision_loss, reason = "shown without fractions")]
    pub fn orders_per_second(&self) -> f64 {
        self.answered as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// What the buyers of one sale share.
struct Crowd {
    way: Way,
    lock_name: LockName,
    buyers: u64,
    came: AtomicU64,
    sold: AtomicU64,
    progress: Progress,
}

/// Brings the item on sale, lets all buyers come, and takes it off sale again.
pub async fn hold(shop: &Shop, way: Way, units: u64, buyers: u64) -> Result<Tally> {
    shop.stock().load(units).await?;
    let crowd = Arc::new(Crowd {
        way,
        lock_name: shop.lock_name().clone(),
        buyers,
        came: AtomicU64::new(0),
        sold: AtomicU64::new(0),
        progress: Progress::new(buyers),
    });
    let begun = Instant::now();
    serve_all(shop, &crowd).await?;
    let time = begun.elapsed();
    crowd.progress.finish();
    let left = shop.stock().left().await?;
    shop.stock().remove().await?;
    Ok(Tally {
        way,
        initial: units,
        left,
        sold: crowd.sold.load(Ordering::Relaxed),
        answered: buyers,
        time,
    })
}

/// Every instance serves some buyers at once. Dropping this ends them all.
async fn serve_all(shop: &Shop, crowd: &Arc<Crowd>) -> Result<()> {
    let mut counters = JoinSet::new();
    for instance in shop.instances() {
        for _ in 0..AT_ONCE {
            counters.spawn(serve(instance.clone(), Arc::clone(crowd)));
        }
    }
    while let Some(served) = counters.join_next().await {
        served??;
    }
    Ok(())
}

/// Serves one buyer after the other until no more come.
async fn serve(instance: Instance, crowd: Arc<Crowd>) -> Result<()> {
    while crowd.came.fetch_add(1, Ordering::Relaxed) < crowd.buyers {
        let is_sold = match crowd.way {
            Way::Naive => order_naively(&instance).await?,
            Way::Locked => order_under_lock(&instance, &crowd.lock_name).await?,
        };
        crowd.sold.fetch_add(is_sold.into(), Ordering::Relaxed);
        crowd.progress.advance();
    }
    Ok(())
}

/// What people write first. Between the read and the write, others read the same number.
async fn order_naively(instance: &Instance) -> Result<bool> {
    let left = instance.stock.left().await?;
    let Some(one_fewer) = left.checked_sub(1) else {
        return Ok(false);
    };
    tokio::time::sleep(THINKING).await;
    instance.stock.set(one_fewer).await?;
    Ok(true)
}

async fn order_under_lock(instance: &Instance, name: &LockName) -> Result<bool> {
    let guard = instance.locks.lock(name.as_str()).acquire().await?;
    if instance.stock.left().await? == 0 {
        guard.release().await?;
        return Ok(false);
    }
    tokio::time::sleep(THINKING).await;
    let take = instance.stock.take_one(guard.fence()).await?;
    guard.release().await?;
    match take {
        Take::Taken { .. } => Ok(true),
        // Stale: this instance was paused for so long that it lost the lock. It sells nothing.
        Take::SoldOut | Take::Stale { .. } => Ok(false),
        Take::NotLoaded => bail!("somebody took the demo's item off sale"),
    }
}
