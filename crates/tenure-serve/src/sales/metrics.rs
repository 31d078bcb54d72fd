//! Metrics of sales, for Prometheus.

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

/// How many items are counted by name: labels are never removed.
pub(crate) const ITEMS_MAX: usize = 200;
/// The label of all other items.
const OTHER: &str = "_other";
const SUBMIT_BUCKETS: [f64; 12] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// The sale metrics that the service counts.
#[derive(Debug)]
pub(crate) struct Counted {
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    submit_seconds: Histogram,
    left: Family<ItemLabels, Gauge<i64, AtomicI64>>,
    queued: Family<ItemLabels, Gauge<i64, AtomicI64>>,
    dead: Family<ItemLabels, Gauge<i64, AtomicI64>>,
    drift: Family<ItemLabels, Gauge<i64, AtomicI64>>,
    /// The items that have their own label.
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
            "Order requests by outcome",
            self.requests.clone(),
        );
        registry.register(
            "tenure_sale_submit_seconds",
            "Latency of the gate for orders",
            self.submit_seconds.clone(),
        );
        for (name, help, gauges) in [
            ("units_left", "Units left at the gate", &self.left),
            ("queue_length", "Orders queued for the ledger", &self.queued),
            ("dead_letters", "Dead letters", &self.dead),
            (
                "drift",
                "Units missing (or, below zero, in two places) at rest",
                &self.drift,
            ),
        ] {
            registry.register(format!("tenure_sale_{name}"), help, gauges.clone());
        }
    }

    /// Counts an order request; `None` if there was no answer.
    pub(crate) fn submitted(&self, item: &str, outcome: Option<&Outcome>, took: Duration) {
        self.submit_seconds.observe(took.as_secs_f64());
        let labels = RequestLabels {
            item: match outcome {
                // Requests may name anything: only existing items get a label.
                None | Some(Outcome::NoItem) => self.known_name(item),
                Some(_) => self.name(item),
            },
            outcome: outcome.map_or("failed", outcome_word),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Records the state of an item.
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

    /// The label of an item from now on.
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

/// The counters that the sale keeps itself.
#[derive(Debug)]
struct OwnCounters(Sale);

impl Collector for OwnCounters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, value) in counters(&self.0.stats()) {
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            let name = format!("tenure_sale_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, kind)?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

/// All counters except the outcomes, which are counted per item.
fn counters(stats: &SaleStats) -> [(&'static str, &'static str, u64); 14] {
    [
        ("batches", "Batches written to the ledger", stats.batches),
        (
            "batches_failed",
            "Failed attempts to write a batch",
            stats.batches_failed,
        ),
        (
            "committed",
            "Entries written to the ledger",
            stats.committed,
        ),
        (
            "redelivered",
            "Entries that the ledger already had",
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
            "Orders rejected by the ledger for lack of units: Redis lost acknowledged writes",
            stats.rejected,
        ),
        ("buried", "Entries moved to the dead letters", stats.buried),
        ("expired", "Orders expired unpaid", stats.expired),
        ("relayed", "Changes sent to the gate", stats.relayed),
        ("rebuilds", "Rebuilds of a gate", stats.rebuilds),
        (
            "rebuilds_failed",
            "Rebuilds that failed or were superseded",
            stats.rebuilds_failed,
        ),
        ("lost", "Orders lost with a Redis server", stats.lost),
        (
            "care_failed",
            "Attempts to care for an item that failed",
            stats.care_failed,
        ),
    ]
}
