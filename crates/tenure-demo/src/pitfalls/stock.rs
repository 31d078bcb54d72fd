//! Mistakes with the stock.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tenure::{ErrorKind, Locks};
use tenure_sale::{Stock, Take};

use super::life::together;
use super::own_clock;
use super::pitfall::{Observed, Pitfall};
use super::scene::Scene;
use crate::naive;
use crate::plain_store::PlainStore;
use crate::ways::Counter;

pub(crate) const PITFALLS: [Pitfall; 3] = [
    Pitfall {
        name: "read-then-write",
        mistake: |scene| Box::pin(oversells(scene)),
        tenure: |scene| Box::pin(sells_exactly(scene)),
    },
    Pitfall {
        name: "key-of-the-stock",
        mistake: |scene| Box::pin(overwrites_the_stock(scene)),
        tenure: |scene| Box::pin(keeps_the_stock(scene)),
    },
    Pitfall {
        name: "hot-counter",
        mistake: |scene| Box::pin(sells_one_at_a_time(scene)),
        tenure: |scene| Box::pin(sells_in_one_script(scene)),
    },
];

const UNITS: u64 = 10;
const BUYERS: usize = 40;
/// How long an order takes between reading the stock and writing it.
const THINKING: Duration = Duration::from_millis(5);

/// How many sellers sell a hot item concurrently, and for how long.
const SELLERS: usize = 8;
const RUSH: Duration = Duration::from_millis(250);
/// Enough to last for the whole rush.
const HOT_UNITS: u64 = 100_000_000;
const LEASE: Duration = Duration::from_secs(10);

async fn oversells(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("stock"));
    store.set(&key, &UNITS.to_string()).await?;
    let buyers = (0..BUYERS).map(|_| order_naively(store.clone(), key.clone()));
    let sold = count(&together(buyers).await?);
    let words = format!("{sold} orders confirmed for {UNITS} units");
    Ok(Observed::when(sold > UNITS, words))
}

async fn order_naively(store: PlainStore, key: String) -> Result<bool> {
    let left = units(&store, &key).await?;
    let sold = naive::sell_one(&store, &key, left.try_into()?, THINKING).await?;
    Ok(sold.is_some())
}

async fn sells_exactly(scene: Scene) -> Result<Observed> {
    let shops = [
        scene.process("shop-1").await?,
        scene.process("shop-2").await?,
    ];
    let (stock, name) = (scene.stock(UNITS).await?, scene.key("lock"));
    let buyers = (0..BUYERS).map(|buyer| {
        let shop = shops[buyer % shops.len()].clone();
        order_under_lock(shop, name.clone(), stock.clone())
    });
    let sold = count(&together(buyers).await?);
    let left = stock.left().await?;
    let words = format!("{sold} orders confirmed for {UNITS} units, {left} left");
    Ok(Observed::when(sold == UNITS && left == 0, words))
}

async fn order_under_lock(shop: Locks, name: String, stock: Stock) -> Result<bool> {
    let guard = shop.lock(name).acquire().await?;
    let take = stock.take_one(guard.fence()).await?;
    guard.release().await?;
    Ok(matches!(take, Take::Taken { .. }))
}

/// A lock that stores its expiry as the value mistakes 100 units for an expiry long past.
async fn overwrites_the_stock(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("item"));
    store.set(&key, "100").await?;
    own_clock::try_lock(&store, &key, own_clock::now_ms(), LEASE).await?;
    let left = units(&store, &key).await?;
    let words = format!("locking the item turned 100 units into {left}");
    Ok(Observed::when(left != 100, words))
}

async fn keeps_the_stock(scene: Scene) -> Result<Observed> {
    let shop = scene.process("shop").await?;
    if scene.is_embedded() {
        let stock = scene.stock(100).await?;
        let name = scene.key("item");
        let guard = shop.lock(name).acquire().await?;
        let left = stock.left().await?;
        guard.release().await?;
        let words = format!("locked, and still {left} units: locks and stock use different keys");
        return Ok(Observed::when(left == 100, words));
    }
    let (store, key) = (scene.store(), scene.key("item"));
    store.set(&key, "100").await?;
    let refused = match shop.lock(&key).try_acquire().await {
        Ok(guard) => guard.is_none(),
        Err(error) if error.kind() == ErrorKind::NotALock => true,
        Err(error) => return Err(error.into()),
    };
    let left = units(&store, &key).await?;
    let answer = if refused { "refused" } else { "granted" };
    let words = format!(
        "{answer}, because the key has no expiry and may not be a lock: still {left} units"
    );
    Ok(Observed::when(refused && left == 100, words))
}

/// Compares with the same store and a bare counter.
async fn sells_one_at_a_time(scene: Scene) -> Result<Observed> {
    let (store, stock, lock) = (scene.store(), scene.key("stock"), scene.key("lock"));
    store.set(&stock, &HOT_UNITS.to_string()).await?;
    let (shop, item) = (store.clone(), stock.clone());
    let locked = rush(move || sell_under_lock(shop.clone(), item.clone(), lock.clone())).await?;
    let counted = rush(move || count_down(store.clone(), stock.clone())).await?;
    let (locked, counted) = (locked.per_second(), counted.per_second());
    let words = format!("{locked:.0} sales/s with a lock, {counted:.0}/s with a bare counter");
    Ok(Observed::when(counted > 2.0 * locked, words))
}

async fn sell_under_lock(store: PlainStore, stock: String, lock: String) -> Result<()> {
    store.take_within(&lock, "seller", LEASE, LEASE).await?;
    let left = units(&store, &stock).await?;
    store.set(&stock, &(left - 1).to_string()).await?;
    store.del(&lock).await
}

async fn count_down(store: PlainStore, stock: String) -> Result<()> {
    store.decr(&stock).await.map(drop)
}

async fn sells_in_one_script(scene: Scene) -> Result<Observed> {
    let gate = scene.gate(HOT_UNITS).await?;
    let counter = gate.clone();
    let rush = rush(move || sell_by_script(counter.clone())).await?;
    let gone = HOT_UNITS - gate.left().await?;
    let (sold, per_second) = (rush.sales, rush.per_second());
    let words =
        format!("{per_second:.0} sales/s with one script: {sold} sold, stock down by {gone}");
    Ok(Observed::when(sold == gone && sold > 0, words))
}

async fn sell_by_script(gate: Counter) -> Result<()> {
    // The embedded gate never waits: yield to other tasks here.
    tokio::task::yield_now().await;
    let is_sold = gate.sell("buyer").await?;
    ensure!(is_sold, "sold out before the rush was over");
    Ok(())
}

/// The result of a rush.
struct Rush {
    sales: u64,
    time: Duration,
}

impl Rush {
    #[expect(clippy::cast_precision_loss, reason = "shown without fractions")]
    fn per_second(&self) -> f64 {
        self.sales as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// All sellers sell as fast as they can.
async fn rush<F>(sell: impl Fn() -> F + Clone + Send + 'static) -> Result<Rush>
where
    F: Future<Output = Result<()>> + Send,
{
    let begun = Instant::now();
    let sellers = (0..SELLERS).map(|_| {
        let sell = sell.clone();
        async move {
            let mut sales = 0;
            while begun.elapsed() < RUSH {
                sell().await?;
                sales += 1;
            }
            Ok(sales)
        }
    });
    let sales = together(sellers).await?.into_iter().sum();
    let time = begun.elapsed();
    Ok(Rush { sales, time })
}

async fn units(store: &PlainStore, key: &str) -> Result<u64> {
    let found = store.get(key).await?.unwrap_or_default();
    let units = found.parse();
    units.with_context(|| format!("cannot read `{found}` at `{key}` as units"))
}

fn count(orders: &[bool]) -> u64 {
    orders.iter().map(|is_sold| u64::from(*is_sold)).sum()
}
