//! What a client measures, for metrics. It uses histograms, because a mean hides outliers.
//!
//! Nothing is measured until the timings are first read. From then on a measurement is two atomic
//! additions: no lock, no text, no allocation.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// Upper bounds in nanoseconds. The first ones are for a server on the same machine.
const CALL_BOUNDS: [u64; 13] = [
    50 * US,
    100 * US,
    250 * US,
    500 * US,
    MS,
    5 * MS,
    10 * MS,
    50 * MS,
    100 * MS,
    500 * MS,
    S,
    5 * S,
    10 * S,
];
const HANDOVER_BOUNDS: [u64; 13] = [
    100 * US,
    250 * US,
    500 * US,
    MS,
    5 * MS / 2,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    500 * MS,
    S,
    5 * S,
];
/// From the shortest lease to more than an hour.
const MARGIN_BOUNDS: [u64; 13] = [
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    S,
    5 * S / 2,
    5 * S,
    10 * S,
    20 * S,
    30 * S,
    60 * S,
    300 * S,
    3_600 * S,
];
/// The bounds of one histogram, plus one bucket for values above them.
const BOUNDS: usize = 13;
const BUCKETS: usize = BOUNDS + 1;
/// How many servers are distinguished. A cluster whose nodes come and go under new addresses must
/// not fill the memory of the metrics system.
const NODES_MAX: usize = 100;
const OTHER_NODES: &str = "_other";

/// What a client has measured since the timings were first read, as returned by
/// [`Locks::timings`](crate::Locks::timings).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimingsSnapshot {
    /// Server response times by server, call and outcome. Combinations that never occurred are left
    /// out.
    pub calls: Vec<CallTimings>,
    /// How long the lock was free between two holders, where the second was a waiter of this
    /// client: from the moment at which this client sent the release, or was notified of another
    /// client's release. Hand-offs within the process are not included:
    /// [`handed_off`](crate::StatsSnapshot::handed_off) counts those.
    pub handovers: Distribution,
    /// How much time was left before the deadline when a renewal succeeded: two thirds of the ttl
    /// in normal operation. Only for leases that a guard holds.
    pub renewal_margins: Distribution,
}

/// The response times of one server for one kind of call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallTimings {
    /// The server as host and port, without user and password; for a socket, its path.
    pub node: Arc<str>,
    /// The kind of call.
    pub call: Call,
    /// The outcome.
    pub outcome: CallOutcome,
    /// The response times.
    pub took: Distribution,
}

/// Measurements, counted in buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    bounds: &'static [u64; BOUNDS],
    counts: [u64; BUCKETS],
    sum_ns: u64,
}

impl Distribution {
    /// The number of measurements.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all measurements.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The buckets: for each its inclusive upper bound, and how many measurements are in it and not
    /// in an earlier bucket. The last one has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = self.bounds.iter().copied().map(Duration::from_nanos);
        bounds.map(Some).chain([None]).zip(self.counts)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of_word:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$of_word])* $variant,)*
        }

        impl $name {
            const ALL: &[Self] = &[$(Self::$variant),*];

            /// A stable name, for labels.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// A kind of call to a server.
    Call {
        /// Grant a lock.
        Acquire = "acquire",
        /// Release a lock.
        Release = "release",
        /// Decide whose turn it is after hand-offs within the process.
        Turn = "turn",
        /// Renew one lease or a batch.
        Renew = "renew",
        /// Adopt a lease.
        Adopt = "adopt",
        /// Share a lease that was exclusive.
        Downgrade = "downgrade",
        /// Make a shared lease exclusive.
        Upgrade = "upgrade",
        /// Change the limit of a semaphore.
        Resize = "resize",
        /// Change the value of a leader.
        Proclaim = "proclaim",
        /// Begin or complete a run for a fire time, or look at one.
        Once = "once",
        /// Arrive at a latch, or look at one.
        Latch = "latch",
        /// Vote, as one of several independent servers.
        Vote = "vote",
        /// Restore a lost lease, as one of several independent servers.
        Repair = "repair",
        /// Read who holds locks.
        Look = "look",
        /// Write this client's record.
        Record = "record",
        /// Read all clients' records.
        Clients = "clients",
        /// Check how long it has been the primary.
        Reign = "reign",
        /// Keep the places of living waiters in the queue.
        Stay = "stay",
        /// Read who waits for a lock.
        Waiters = "waiters",
        /// Wait until replicas have acknowledged a write.
        Confirm = "confirm",
        /// Subscribe to notifications about a lock.
        Listen = "listen",
        /// Anything else.
        Other = "other",
    }
}

words! {
    /// The outcome of a call to a server.
    CallOutcome {
        /// The server replied.
        Answered = "ok",
        /// The server refused, and did nothing.
        Refused = "error",
        /// No reply: whether the call took effect is unknown.
        Unanswered = "unknown",
    }
}

/// What a client measures.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    is_wanted: AtomicBool,
    nodes: Mutex<Vec<Arc<NodeTimings>>>,
    handovers: Histogram,
    renewal_margins: Histogram,
}

impl Timings {
    /// Whether timings were requested.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn handed_over(&self, took: Duration) {
        self.handovers.note(&HANDOVER_BOUNDS, took);
    }

    pub(crate) fn renewed(&self, left: Duration) {
        if self.is_wanted() {
            self.renewal_margins.note(&MARGIN_BOUNDS, left);
        }
    }

    /// The histograms of the calls to this server.
    pub(crate) fn node(&self, node: &str) -> Arc<NodeTimings> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = nodes.len() >= NODES_MAX;
        let known = |name: &str| nodes.iter().find(|it| *it.node == *name).cloned();
        let wanted = if is_full && known(node).is_none() {
            OTHER_NODES
        } else {
            node
        };
        known(wanted).unwrap_or_else(|| {
            let node = Arc::new(NodeTimings::new(wanted));
            nodes.push(Arc::clone(&node));
            node
        })
    }

    /// What was measured so far. Starts the measuring.
    pub(crate) fn snapshot(&self) -> TimingsSnapshot {
        self.is_wanted.store(true, Ordering::Relaxed);
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        TimingsSnapshot {
            calls: nodes.iter().flat_map(|node| node.snapshot()).collect(),
            handovers: self.handovers.snapshot(&HANDOVER_BOUNDS),
            renewal_margins: self.renewal_margins.snapshot(&MARGIN_BOUNDS),
        }
    }
}

/// The measurements of one server.
#[derive(Debug)]
pub(crate) struct NodeTimings {
    node: Arc<str>,
    /// By call and outcome.
    calls: [[Histogram; CallOutcome::ALL.len()]; Call::ALL.len()],
}

impl NodeTimings {
    fn new(node: &str) -> Self {
        Self {
            node: node.into(),
            calls: Default::default(),
        }
    }

    pub(crate) fn note(&self, call: Call, outcome: CallOutcome, took: Duration) {
        self.calls[call as usize][outcome as usize].note(&CALL_BOUNDS, took);
    }

    fn snapshot(&self) -> Vec<CallTimings> {
        let each = Call::ALL.iter().zip(&self.calls).flat_map(|(call, by)| {
            let outcomes = CallOutcome::ALL.iter().zip(by);
            outcomes.map(|(outcome, histogram)| CallTimings {
                node: Arc::clone(&self.node),
                call: *call,
                outcome: *outcome,
                took: histogram.snapshot(&CALL_BOUNDS),
            })
        });
        each.filter(|it| it.took.count() > 0).collect()
    }
}

#[derive(Debug, Default)]
struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Histogram {
    fn note(&self, bounds: &[u64; BOUNDS], length: Duration) {
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bounds.partition_point(|bound| *bound < length_ns);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(length_ns, Ordering::Relaxed);
    }

    fn snapshot(&self, bounds: &'static [u64; BOUNDS]) -> Distribution {
        Distribution {
            bounds,
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        for bounds in [&CALL_BOUNDS, &HANDOVER_BOUNDS, &MARGIN_BOUNDS] {
            assert!(bounds.is_sorted());
            let histogram = Histogram::default();
            for bound in bounds {
                histogram.note(bounds, Duration::from_nanos(*bound));
            }
            histogram.note(bounds, Duration::from_secs(24 * 60 * 60));
            let found = histogram.snapshot(bounds);
            assert!(found.buckets().all(|(_, count)| count == 1), "{found:?}");
            assert_eq!(found.buckets().last().unwrap().0, None);
            assert_eq!(found.count(), 14);
            assert!(found.sum() > Duration::from_secs(24 * 60 * 60));
        }
    }

    #[test]
    fn nothing_is_measured_until_somebody_asks() {
        let timings = Timings::default();
        timings.renewed(Duration::from_secs(1));
        assert_eq!(timings.snapshot().renewal_margins.count(), 0);
        timings.renewed(Duration::from_secs(1));
        assert_eq!(timings.snapshot().renewal_margins.count(), 1);
    }

    #[test]
    fn servers_are_told_apart_up_to_a_number() {
        let timings = Timings::default();
        for number in 0..NODES_MAX + 50 {
            let node = timings.node(&format!("10.0.0.1:{number}"));
            node.note(Call::Acquire, CallOutcome::Answered, Duration::ZERO);
        }
        let again = timings.node("10.0.0.1:0");
        again.note(Call::Acquire, CallOutcome::Answered, Duration::ZERO);
        let calls = timings.snapshot().calls;
        assert_eq!(calls.len(), NODES_MAX + 1);
        assert_eq!(calls[0].took.count(), 2);
        let (last, count) = (calls.last().unwrap(), calls.last().unwrap().took.count());
        assert_eq!((&*last.node, count), (OTHER_NODES, 50));
    }
}
