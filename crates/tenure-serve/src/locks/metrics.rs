//! Metrics of locks, for Prometheus.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter as OfKind;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge as OfGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tenure::{Locks, StatsSnapshot};

use super::client_metrics::{self, Margins};
use super::labels::{MUTEX, OWN, OfAll, OfLabel};

type Counter = OfKind<u64, AtomicU64>;
type Gauge = OfGauge<i64, AtomicI64>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

const WAIT_BUCKETS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];
const HOLD_BUCKETS: [f64; 12] = [
    0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
];
/// Fractions of a lease.
const SHARE_BUCKETS: [f64; 12] = [
    0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9,
];
/// The maximum number of values of the label `lock`, and the value for all others.
const LABELS_MAX: usize = 200;
const OTHER: &str = "_other";
const LABEL_BYTES_MAX: usize = 64;

/// All metrics of locks. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Meters(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The metrics of each label, found without creating labels.
    rows: RwLock<HashMap<String, Arc<Row>>>,
    /// Those of all other locks.
    other: Arc<Row>,
    acquired: Family<Acquired, Counter>,
    waited: Histograms<Acquired>,
    held_for: Histograms<OfLock>,
    held: Family<OfLock, Gauge>,
    waiting: Family<OfLock, Gauge>,
    renewed: Family<WithResult, Counter>,
    margins: Margins,
    margin_shares: Histograms<OfLabel>,
    released: Family<WithResult, Counter>,
    lost: Family<Lost, Counter>,
    forced: Counter,
    live: Family<OfAll, Gauge>,
    queued: Family<OfAll, Gauge>,
    is_up: Family<OfNode, Gauge>,
    woken: Family<Woken, Counter>,
    of_client: Family<OfClient, Counter>,
}

/// The metrics of one label that every request needs, each made when it is first needed.
#[derive(Debug)]
struct Row {
    label: String,
    waiting: OnceLock<Gauge>,
    held: OnceLock<Gauge>,
    held_for: OnceLock<Histogram>,
    /// By how the attempt ended.
    acquired: [OnceLock<(Counter, Histogram)>; 5],
    /// By outcome.
    released: [OnceLock<Counter>; 3],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Acquired {
    lock: String,
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLock {
    lock: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WithResult {
    lock: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lost {
    lock: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNode {
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Woken {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClient {
    event: &'static str,
}

/// How an attempt to acquire a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Acquired,
    /// The lock is held, and the request does not wait.
    Busy,
    TimedOut,
    /// The caller disconnected.
    Cancelled,
    /// The store failed.
    Failed,
    /// The request was invalid: not an attempt.
    Refused,
}

/// The result of a renewal or a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    NotHeld,
    Failed,
}

/// An attempt to acquire a lock. If it is dropped before it has ended, it was cancelled.
#[derive(Debug)]
pub(crate) struct Attempt {
    of: Option<(Meters, Arc<Row>)>,
    begun: Instant,
}

impl Row {
    fn new(label: &str) -> Arc<Self> {
        Arc::new(Self {
            label: label.to_owned(),
            waiting: OnceLock::new(),
            held: OnceLock::new(),
            held_for: OnceLock::new(),
            acquired: Default::default(),
            released: Default::default(),
        })
    }

    fn of_lock(&self) -> OfLock {
        OfLock {
            lock: self.label.clone(),
            kind: MUTEX,
        }
    }
}

impl Ended {
    /// Its place in a row, and its word.
    fn result(self) -> Option<(usize, &'static str)> {
        match self {
            Self::Acquired => Some((0, "acquired")),
            Self::Busy => Some((1, "busy")),
            Self::TimedOut => Some((2, "timeout")),
            Self::Cancelled => Some((3, "cancelled")),
            Self::Failed => Some((4, "error")),
            Self::Refused => None,
        }
    }
}

impl Meters {
    pub(crate) fn new(registry: &mut Registry, locks: &Locks) -> Self {
        let waits: fn() -> Histogram = || Histogram::new(WAIT_BUCKETS);
        let holds: fn() -> Histogram = || Histogram::new(HOLD_BUCKETS);
        let shares: fn() -> Histogram = || Histogram::new(SHARE_BUCKETS);
        let inner = Inner {
            rows: RwLock::default(),
            other: Row::new(OTHER),
            acquired: Family::default(),
            waited: Family::new_with_constructor(waits),
            held_for: Family::new_with_constructor(holds),
            held: Family::default(),
            waiting: Family::default(),
            renewed: Family::default(),
            margins: client_metrics::register(registry, locks),
            margin_shares: Family::new_with_constructor(shares),
            released: Family::default(),
            lost: Family::default(),
            forced: Counter::default(),
            live: Family::default(),
            queued: Family::default(),
            is_up: Family::default(),
            woken: Family::default(),
            of_client: Family::default(),
        };
        inner.register(registry);
        Self(Arc::new(inner))
    }

    /// An attempt to acquire a lock starts.
    pub(crate) fn attempt(&self, name: &str) -> Attempt {
        let row = self.row(name);
        self.waiting(&row).inc();
        Attempt {
            of: Some((self.clone(), row)),
            begun: Instant::now(),
        }
    }

    /// A lease was granted.
    pub(crate) fn hold_begins(&self, name: &str) {
        self.held(&self.row(name)).inc();
    }

    /// A lease that was granted here has ended.
    pub(crate) fn hold_ends(&self, name: &str, held: Duration) {
        let row = self.row(name);
        self.held(&row).dec();
        let make = || self.0.held_for.get_or_create_owned(&row.of_lock());
        let held_for = row.held_for.get_or_init(make);
        held_for.observe(held.as_secs_f64());
    }

    pub(crate) fn renewed(&self, name: &str, outcome: Outcome) {
        let result = match outcome {
            Outcome::Done => "ok",
            Outcome::NotHeld => "not_owner",
            Outcome::Failed => "error",
        };
        let labels = self.with_result(name, result);
        self.0.renewed.get_or_create(&labels).inc();
    }

    /// How much of a lease of this length was left when it was renewed.
    pub(crate) fn renewal_margin(&self, name: &str, left: Duration, ttl: Duration) {
        let lock = self.label(name);
        let labels = OfLabel { lock };
        let left = left.as_secs_f64();
        self.0.margins.get_or_create(&labels).observe(left);
        let share = left / ttl.as_secs_f64().max(f64::EPSILON);
        let shares = self.0.margin_shares.get_or_create(&labels);
        shares.observe(share.min(1.0));
    }

    pub(crate) fn released(&self, name: &str, outcome: Outcome) {
        let (place, result) = match outcome {
            Outcome::Done => (0, "ok"),
            Outcome::NotHeld => (1, "not_held"),
            Outcome::Failed => (2, "error"),
        };
        let row = self.row(name);
        let make = || {
            let lock = row.label.clone();
            self.0
                .released
                .get_or_create_owned(&WithResult { lock, result })
        };
        row.released[place].get_or_init(make).inc();
    }

    pub(crate) fn lost(&self, name: &str, reason: &'static str) {
        let lock = self.label(name);
        self.0.lost.get_or_create(&Lost { lock, reason }).inc();
    }

    pub(crate) fn forced(&self) {
        self.0.forced.inc();
    }

    /// Updates the metrics that are read rather than counted.
    pub(crate) fn refresh(&self, node: &str, seen: &Seen, client: &StatsSnapshot) {
        let all = OfAll { kind: MUTEX };
        self.0.live.get_or_create(&all).set(seen.held);
        self.0.queued.get_or_create(&all).set(seen.waiting);
        let node = OfNode {
            node: node.to_owned(),
        };
        self.0.is_up.get_or_create(&node).set(i64::from(seen.is_up));
        for (source, count) in [
            ("push", client.woken_by_message),
            ("timer", client.woken_by_timer),
            ("poll", client.woken_by_poll),
        ] {
            let woken = self.0.woken.get_or_create(&Woken { source });
            woken.inner().store(count, Ordering::Relaxed);
        }
        for (event, count) in [
            ("renewal_failed", client.renewals_failed),
            ("outcome_unknown", client.unknown_outcomes),
            ("cancelled", client.cancelled),
            ("messages_refused", client.messages_refused),
            ("tracking_refused", client.tracking_refused),
            ("connected", client.connections),
            ("record_written", client.records_written),
        ] {
            let counter = self.0.of_client.get_or_create(&OfClient { event });
            counter.inner().store(count, Ordering::Relaxed);
        }
    }

    fn with_result(&self, name: &str, result: &'static str) -> WithResult {
        WithResult {
            lock: self.label(name),
            result,
        }
    }

    fn waiting<'a>(&self, row: &'a Row) -> &'a Gauge {
        let make = || self.0.waiting.get_or_create_owned(&row.of_lock());
        row.waiting.get_or_init(make)
    }

    fn held<'a>(&self, row: &'a Row) -> &'a Gauge {
        let make = || self.0.held.get_or_create_owned(&row.of_lock());
        row.held.get_or_init(make)
    }

    fn label(&self, name: &str) -> String {
        self.row(name).label.clone()
    }

    /// The metrics of a lock. Their label is the part of its name before the first colon, or the
    /// beginning: there are too many full names.
    fn row(&self, name: &str) -> Arc<Row> {
        let label = name.split(':').next().unwrap_or_default();
        let label = &label[..label.floor_char_boundary(LABEL_BYTES_MAX)];
        // Two rows with the same labels would make the whole page unreadable.
        if label == OWN || label == OTHER {
            return Arc::clone(&self.0.other);
        }
        let rows = &self.0.rows;
        let known = rows.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = known.get(label) {
            return Arc::clone(row);
        }
        let is_full = known.len() >= LABELS_MAX;
        drop(known);
        if is_full {
            return Arc::clone(&self.0.other);
        }
        let mut known = rows.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= LABELS_MAX && !known.contains_key(label) {
            return Arc::clone(&self.0.other);
        }
        let row = known.entry(label.to_owned());
        Arc::clone(row.or_insert_with(|| Row::new(label)))
    }
}

/// Counts of the board, over all locks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) held: i64,
    pub(crate) waiting: i64,
    pub(crate) is_up: bool,
}

impl Inner {
    fn register(&self, registry: &mut Registry) {
        let waited = self.waited.clone();
        registry.register(
            "tenure_acquire",
            "Attempts to acquire a lock",
            self.acquired.clone(),
        );
        registry.register(
            "tenure_acquire_wait_seconds",
            "Duration of attempts to acquire a lock",
            waited,
        );
        let held_for = self.held_for.clone();
        registry.register("tenure_hold_seconds", "Duration of holds", held_for);
        let held = self.held.clone();
        registry.register("tenure_held", "Live leases granted by this instance", held);
        let waiting = self.waiting.clone();
        registry.register("tenure_waiting", "Requests waiting for a lock", waiting);
        registry.register("tenure_renew", "Renewals", self.renewed.clone());
        let margin_shares = self.margin_shares.clone();
        registry.register(
            "tenure_renew_margin_ratio",
            "Remaining share of the ttl at renewal, for leases renewed over HTTP",
            margin_shares,
        );
        registry.register("tenure_release", "Releases", self.released.clone());
        let lost = self.lost.clone();
        registry.register("tenure_lost", "Leases lost before release", lost);
        let forced = self.forced.clone();
        registry.register(
            "tenure_force_release",
            "Locks force-released by an administrator",
            forced,
        );
        let live = self.live.clone();
        registry.register("tenure_live_locks", "Held locks of all clients", live);
        let queued = self.queued.clone();
        registry.register("tenure_queue_length", "Waiters of all clients", queued);
        let is_up = self.is_up.clone();
        registry.register("tenure_redis_up", "Whether Redis responds", is_up);
        let woken = self.woken.clone();
        registry.register("tenure_wakeups", "Wake-ups of waiters by cause", woken);
        let of_client = self.of_client.clone();
        registry.register(
            "tenure_client_events",
            "Events of the lock client",
            of_client,
        );
    }
}

impl Attempt {
    pub(crate) fn end(mut self, ended: Ended, waited: Duration) {
        self.count(ended, waited);
    }

    /// Takes this attempt, so that it is counted once.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            of: self.of.take(),
            begun: self.begun,
        }
    }

    fn count(&mut self, ended: Ended, waited: Duration) {
        let Some((meters, row)) = self.of.take() else {
            return;
        };
        meters.waiting(&row).dec();
        let Some((place, result)) = ended.result() else {
            return;
        };
        let make = || {
            let OfLock { lock, kind } = row.of_lock();
            let labels = Acquired { lock, kind, result };
            let counter = meters.0.acquired.get_or_create_owned(&labels);
            (counter, meters.0.waited.get_or_create_owned(&labels))
        };
        let (counter, waits) = row.acquired[place].get_or_init(make);
        counter.inc();
        waits.observe(waited.as_secs_f64());
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.count(Ended::Cancelled, self.begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_are_no_more_labels_than_prometheus_can_bear() {
        let locks = tenure::Tenure::connect("memory://").await.unwrap();
        let meters = Meters::new(&mut Registry::default(), locks.as_locks());
        assert_eq!(meters.label("order:1"), "order");
        assert_eq!(meters.label("nightly"), "nightly");
        assert_eq!(meters.label("_own:1"), OTHER, "that is the service's");
        let long = "é".repeat(100);
        assert_eq!(meters.label(&format!("x{long}")).len(), 63);
        for number in 0..LABELS_MAX {
            meters.label(&format!("name {number}"));
        }
        assert_eq!(meters.label("order:2"), "order");
        assert_eq!(meters.label("one more"), OTHER);
    }
}
