//! What is counted of sales, for Prometheus.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tenure_sale::{Outcome, Sale, SaleStats};
use tenure_view::sale::outcome_word;

use super::item_snapshot::Picture;

/// How many items are counted by name: labels are for ever.
pub(crate) const ITEMS_MAX: usize = 200;
/// The name of all others.
const OTHER: &str = "_other";
const SUBMIT_BUCKETS: [f64; 12] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// What the service counts of its sales.
#[derive(Debug)]
pub(crate) struct Counted {
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    submit_seconds: Histogram,
    left: Family<ItemLabels, Gauge<i64, AtomicI64>>,
    queued: Family<ItemLabels, Gauge<i64, AtomicI64>>,
    dead: Family<ItemLabels, Gauge<i64, AtomicI64>>,
    drift: Family<ItemLabels, Gauge<i64, AtomicI64>>,
    /// Those that are counted by name.
    named: RwLock<HashSet<Arc<str>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    item: Arc<str>,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ItemLabels {
    item: Arc<str>,
}

impl Counted {
    pub(crate) fn new(registry: &mut Registry, sale: Option<&Sale>) -> Self {
        let counted = Self {
            requests: Family::default(),
            submit_seconds: Histogram::new(SUBMIT_BUCKETS),
            left: Family::default(),
            queued: Family::default(),
            dead: Family::default(),
            drift: Family::default(),
            named: RwLock::default(),
        };
        if let Some(sale) = sale {
            counted.register(registry);
            registry.register_collector(Box::new(OwnCounters(sale.clone())));
        }
        counted
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "tenure_sale_requests",
            "Orders that were asked for, by what came of it",
            self.requests.clone(),
        );
        registry.register(
            "tenure_sale_submit_seconds",
            "How long the gate took to answer for an order",
            self.submit_seconds.clone(),
        );
        for (name, help, gauges) in [
            ("units_left", "Units left at the gate", &self.left),
            (
                "queue_length",
                "Orders on their way into the ledger",
                &self.queued,
            ),
            (
                "dead_letters",
                "Entries that the ledger did not take",
                &self.dead,
            ),
            (
                "drift",
                "Units that are nowhere, or below zero in two places, when nothing moves",
                &self.drift,
            ),
        ] {
            registry.register(format!("tenure_sale_{name}"), help, gauges.clone());
        }
    }

    /// An order was asked for; `None` if there was no answer.
    pub(crate) fn submitted(&self, item: &str, outcome: Option<&Outcome>, took: Duration) {
        self.submit_seconds.observe(took.as_secs_f64());
        let labels = RequestLabels {
            item: match outcome {
                // Anybody can ask for anything: only what is there gets a name.
                None | Some(Outcome::NoItem) => self.known_name(item),
                Some(_) => self.name(item),
            },
            outcome: outcome.map_or("failed", outcome_word),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// This is how an item stands.
    pub(crate) fn seen(&self, picture: &Picture, drift: Option<i64>) {
        let item = self.name(&picture.item);
        if &*item == OTHER {
            return;
        }
        let labels = ItemLabels { item };
        let set = |gauges: &Family<ItemLabels, Gauge<i64, AtomicI64>>, value: u64| {
            gauges.get_or_create(&labels).set(value.cast_signed());
        };
        if let Some(left) = picture.left {
            set(&self.left, left);
        }
        set(&self.queued, picture.queued);
        set(&self.dead, picture.dead);
        if let Some(drift) = drift {
            self.drift.get_or_create(&labels).set(drift);
        }
    }

    /// Under which name an item is counted from now on.
    fn name(&self, item: &str) -> Arc<str> {
        let known = self.known_name(item);
        if &*known != OTHER {
            return known;
        }
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        if named.len() >= ITEMS_MAX {
            return known;
        }
        let name: Arc<str> = item.into();
        named.insert(Arc::clone(&name));
        name
    }

    fn known_name(&self, item: &str) -> Arc<str> {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        named.get(item).map_or_else(|| OTHER.into(), Arc::clone)
    }
}

/// What the sale counts itself.
#[derive(Debug)]
struct OwnCounters(Sale);

impl Collector for OwnCounters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, value) in told(&self.0.stats()) {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            let name = format!("tenure_sale_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, kind)?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

/// All but the answers, which are counted by item.
fn told(stats: &SaleStats) -> [(&'static str, &'static str, u64); 13] {
    [
        (
            "batches",
            "Batches that came into the ledger",
            stats.batches,
        ),
        (
            "batches_failed",
            "Batches that the ledger did not take, each try counted",
            stats.batches_failed,
        ),
        (
            "committed",
            "Entries that came into the ledger",
            stats.committed,
        ),
        (
            "redelivered",
            "Entries that were in the ledger before",
            stats.redelivered,
        ),
        (
            "claimed",
            "Entries taken over from consumers that did not acknowledge them",
            stats.claimed,
        ),
        (
            "stale_entries",
            "Entries of an older epoch, which the ledger refused",
            stats.stale_entries,
        ),
        (
            "rejected",
            "Orders that the ledger rejected for lack of units: a server lost what it had acknowledged",
            stats.rejected,
        ),
        ("buried", "Entries buried as dead", stats.buried),
        (
            "expired",
            "Orders that were not paid for in time",
            stats.expired,
        ),
        ("relayed", "Changes told to the gate", stats.relayed),
        ("rebuilds", "Rebuilds of a gate", stats.rebuilds),
        (
            "rebuilds_failed",
            "Rebuilds that failed, or were overtaken",
            stats.rebuilds_failed,
        ),
        (
            "lost",
            "Orders that were lost with their server",
            stats.lost,
        ),
    ]
}
