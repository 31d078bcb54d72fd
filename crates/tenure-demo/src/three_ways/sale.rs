//! One sale: all buyers come, each places one order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tenure_view::timings::Timings;
use tokio::task::JoinSet;

use super::progress::Progress;
use crate::ways::{Counter, Way};

/// How many buyers one instance serves at once.
pub(crate) const AT_ONCE: usize = 8;

/// The result of a sale.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) way: Way,
    pub(crate) initial: u64,
    pub(crate) left: u64,
    pub(crate) sold: u64,
    pub(crate) time: Duration,
    /// Response times of all orders: sold, sold out or refused.
    pub(crate) answers: Timings,
}

impl Tally {
    /// Whether stock = left + sold, each unit once.
    pub(crate) fn holds(&self) -> bool {
        self.initial == self.left + self.sold
    }

    /// Units sold beyond the stock.
    pub(crate) fn oversold(&self) -> u64 {
        self.sold.saturating_sub(self.initial)
    }

    /// Orders answered per second.
    #[expect(clippy::cast_precision_loss, reason = "shown without fractions")]
    pub(crate) fn orders_per_second(&self) -> f64 {
        self.answers.count() as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// State that the buyers of one sale share.
struct Crowd {
    buyers: u64,
    came: AtomicU64,
    sold: AtomicU64,
    progress: Progress,
}

/// Puts the item on sale, serves all buyers at all counters, and removes it from sale.
pub(crate) async fn hold(counters: &[Counter], units: u64, buyers: u64) -> Result<Tally> {
    let first = &counters[0];
    first.load(units).await?;
    let crowd = Arc::new(Crowd {
        buyers,
        came: AtomicU64::new(0),
        sold: AtomicU64::new(0),
        progress: Progress::new(buyers),
    });
    let begun = Instant::now();
    let answers = serve_all(counters, &crowd).await?;
    let time = begun.elapsed();
    crowd.progress.finish();
    let left = first.left().await?;
    first.remove().await?;
    Ok(Tally {
        way: first.way(),
        initial: units,
        left,
        sold: crowd.sold.load(Ordering::Relaxed),
        time,
        answers,
    })
}

/// Every counter serves several buyers at once. Dropping this stops them all.
async fn serve_all(counters: &[Counter], crowd: &Arc<Crowd>) -> Result<Timings> {
    let mut serving = JoinSet::new();
    for counter in counters {
        for _ in 0..AT_ONCE {
            serving.spawn(serve(counter.clone(), Arc::clone(crowd)));
        }
    }
    let mut times = Vec::new();
    while let Some(served) = serving.join_next().await {
        times.extend(served??);
    }
    Ok(times.into_iter().collect())
}

/// Serves one buyer after another until no more come. Returns their response times.
async fn serve(counter: Counter, crowd: Arc<Crowd>) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    loop {
        let number = crowd.came.fetch_add(1, Ordering::Relaxed);
        if number >= crowd.buyers {
            return Ok(times);
        }
        let buyer = format!("buyer-{number}");
        let asked = Instant::now();
        let is_sold = counter.sell(&buyer).await?;
        times.push(asked.elapsed());
        crowd.sold.fetch_add(is_sold.into(), Ordering::Relaxed);
        crowd.progress.advance();
        // The embedded gate never waits: yield here to other tasks and Ctrl-C.
        tokio::task::yield_now().await;
    }
}
