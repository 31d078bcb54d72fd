//! A sale end to end: accepted at the gate on Redis, queued, committed in PostgreSQL; everything on
//! this machine. And the three ways to sell one stock, side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure_demo::ways::{Counter, Way};
use tenure_sale::{Consumer, ConsumerOptions, NewItem, OrderId, Request, Sale, Terms};
use tenure_testkit::PostgresServer;
use tokio::runtime::Runtime;

use crate::progress;
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const ITEM: &str = "bench-sale";
const UNITS: u64 = 1_000_000_000;
/// Buyers at once.
const BUYERS: u64 = 256;
const CONSUMERS: usize = 2;
const BATCH: usize = 500;
const SLICE: Duration = Duration::from_secs(4);
/// With more orders under way buyers hold back, so that the rate is that of the slowest part.
const UNDER_WAY_MAX: u64 = 5_000;
/// The part of the greatest rate at which the time to confirmation is measured.
const SUSTAINED: f64 = 0.7;
/// Every so many orders one is waited for.
const WATCHED: u64 = 50;

/// Units and buyers of the comparison.
const STOCK: u64 = 2_000;
const WISHES: u64 = 8_000;
const AT_ONCE: usize = 64;

/// How fast orders come into the ledger, and how long that takes each of them.
pub fn end_to_end(setting: &Setting) -> Vec<Row> {
    let (runtime, postgres) = (two_workers(), PostgresServer::start());
    let shop = runtime.block_on(Shop::open(&setting.url(), &postgres.create_database()));
    let mut rates = Vec::new();
    let (mut p50, mut p99, mut queues) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=setting.rounds {
        progress::tell(&format!(
            "sale, end to end: round {round} of {}",
            setting.rounds
        ));
        let rate = shop.greatest_rate(&runtime);
        let paced = shop.sustained(&runtime, rate * SUSTAINED);
        rates.push(rate);
        p50.push(paced.confirmed_after.median());
        p99.push(paced.confirmed_after.quantile(0.99));
        queues.push(paced.queued as f64);
    }
    runtime.block_on(shop.close());
    let [rates, p50, p99, queues] = [rates, p50, p99, queues].map(Samples::new);
    vec![
        Row::figure(
            "sale, orders/s from gate to PostgreSQL",
            (&rates, Unit::PerSecond),
            Target::None,
        ),
        Row::figure(
            "sale, accepted to confirmed at 70 % of that, p50",
            (&p50, Unit::Millis),
            Target::None,
        ),
        Row::figure("the same, p99", (&p99, Unit::Millis), Target::None),
        Row::figure(
            "the same, orders in the queue at the end",
            (&queues, Unit::Count),
            Target::None,
        ),
    ]
}

/// What each way sells of a stock of 2000 to 8000 buyers, and how fast.
pub fn ways(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let mut results = Vec::new();
    for way in Way::ALL {
        let mut rates = Vec::new();
        let mut oversold = Vec::new();
        for round in 1..=setting.rounds {
            progress::tell(&format!("sale, {way}: round {round} of {}", setting.rounds));
            let (rate, too_many) = runtime.block_on(rush(&setting.url(), way));
            rates.push(rate);
            oversold.push(too_many as f64);
        }
        results.push((way, Samples::new(rates), Samples::new(oversold)));
    }
    let lock = results[1].1.clone();
    let rows = results.iter().flat_map(|(way, rates, oversold)| {
        let what = format!("stock of 2000, 8000 buyers, {way}: orders answered/s");
        let target = Target::None;
        let rate = Row::ratio(&what, (rates, Unit::PerSecond), ("lock", &lock), target);
        let what = format!("stock of 2000, 8000 buyers, {way}: oversold");
        [
            rate,
            Row::figure(&what, (oversold, Unit::Count), Target::None),
        ]
    });
    rows.collect()
}

/// All buyers come: orders answered per second, and units that were sold but never there.
async fn rush(url: &str, way: Way) -> (f64, u64) {
    let counter = Counter::open(way, url, format!("bench-{way}")).await;
    let counter = counter.expect("the server can be reached");
    counter
        .load(STOCK)
        .await
        .expect("the server takes the stock");
    let (came, sold) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let begun = Instant::now();
    let buyers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (counter, came, sold) = (counter.clone(), came.clone(), sold.clone());
            tokio::spawn(async move {
                loop {
                    let number = came.fetch_add(1, Ordering::Relaxed);
                    if number >= WISHES {
                        return;
                    }
                    let is_sold = counter.sell(&format!("buyer-{number}")).await;
                    let is_sold = is_sold.expect("the server answers");
                    sold.fetch_add(is_sold.into(), Ordering::Relaxed);
                }
            })
        })
        .collect();
    for buyer in buyers {
        buyer.await.expect("no buyer panics");
    }
    let rate = WISHES as f64 / begun.elapsed().as_secs_f64();
    counter.remove().await.expect("the server answers");
    (rate, sold.load(Ordering::Relaxed).saturating_sub(STOCK))
}

struct Shop {
    sale: Sale,
    consumers: Vec<Consumer>,
    requests: Arc<AtomicU64>,
}

/// How orders fared at a steady rate.
struct Paced {
    /// In milliseconds.
    confirmed_after: Samples,
    queued: u64,
}

impl Shop {
    async fn open(gate: &str, ledger: &str) -> Self {
        let sale = Sale::open(gate, ledger)
            .await
            .expect("gate and ledger are there");
        let terms = Terms {
            backlog_max: UNITS,
            ..Terms::default()
        };
        let item = NewItem::new(ITEM, UNITS).expect("a good name").terms(terms);
        sale.create(&item).await.expect("the item is new");
        sale.open_item(ITEM).await.expect("the item can be opened");
        let consumer = |_| {
            sale.consume(ConsumerOptions::default().batch(BATCH))
                .expect("good options")
        };
        let consumers = (0..CONSUMERS).map(consumer).collect();
        Self {
            sale,
            consumers,
            requests: Arc::default(),
        }
    }

    async fn close(self) {
        for consumer in self.consumers {
            consumer.stop().await;
        }
    }

    /// Orders committed per second while buyers ask as fast as the ledger keeps up.
    fn greatest_rate(&self, runtime: &Runtime) -> f64 {
        let (begun, before) = (Instant::now(), self.sale.stats().committed);
        let end = begun + SLICE;
        let buyers: Vec<_> = (0..BUYERS)
            .map(|_| {
                let (sale, requests) = (self.sale.clone(), self.requests.clone());
                runtime.spawn(async move {
                    while Instant::now() < end {
                        let stats = sale.stats();
                        if stats.accepted > stats.committed + UNDER_WAY_MAX {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        } else {
                            order(&sale, &requests).await;
                        }
                    }
                })
            })
            .collect();
        for buyer in buyers {
            runtime.block_on(buyer).expect("no buyer panics");
        }
        let committed = self.sale.stats().committed - before;
        let rate = committed as f64 / begun.elapsed().as_secs_f64();
        runtime.block_on(self.drained());
        rate
    }

    /// Buyers that come at a steady rate, answered or not.
    fn sustained(&self, runtime: &Runtime, rate: f64) -> Paced {
        let begun = Instant::now();
        let buyers: Vec<_> = (0..BUYERS)
            .map(|buyer| {
                let (sale, requests) = (self.sale.clone(), self.requests.clone());
                runtime
                    .spawn(async move { come_steadily(&sale, &requests, begun, buyer, rate).await })
            })
            .collect();
        let waits = buyers
            .into_iter()
            .flat_map(|buyer| runtime.block_on(buyer).expect("no buyer panics"));
        let confirmed_after = Samples::new(waits.collect::<Vec<f64>>());
        let standing = runtime.block_on(self.sale.gate().standing(ITEM));
        let queued = standing
            .expect("the gate answers")
            .map_or(0, |standing| standing.queued);
        runtime.block_on(self.drained());
        Paced {
            confirmed_after,
            queued,
        }
    }

    async fn drained(&self) {
        while self.sale.stats().accepted > self.sale.stats().committed {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// One buyer's orders; those that were waited for say after how many milliseconds they were confirmed.
async fn come_steadily(
    sale: &Sale,
    requests: &AtomicU64,
    begun: Instant,
    buyer: u64,
    rate: f64,
) -> Vec<f64> {
    let pace = Duration::from_secs_f64(BUYERS as f64 / rate);
    let mut next = begun + pace.mul_f64(buyer as f64 / BUYERS as f64);
    let mut waits = Vec::new();
    let mut count = buyer;
    while next < begun + SLICE {
        tokio::time::sleep_until(next.into()).await;
        next += pace;
        count += 1;
        let accepted = order(sale, requests).await;
        if count % WATCHED == 0 {
            let since = Instant::now();
            let confirmed = sale.wait(&accepted, Duration::from_secs(30)).await;
            confirmed.expect("the order is confirmed");
            waits.push(since.elapsed().as_secs_f64() * 1e3);
        }
    }
    waits
}

async fn order(sale: &Sale, requests: &AtomicU64) -> OrderId {
    let number = requests.fetch_add(1, Ordering::Relaxed);
    let request = Request::new(
        ITEM,
        format!("buyer-{}", number % 1_000),
        format!("request-{number}"),
    );
    let answer = sale.submit(&request.expect("good names")).await;
    let outcome = answer.expect("the gate answers").outcome;
    outcome.order().cloned().expect("the order is accepted")
}
