//! Metrics that the lock client measures itself, for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tenure::{Distribution, Locks};

use super::labels::{MUTEX, OWN, OfAll, OfLabel};

/// The buckets of the library, so that all rows of the metric have the same.
const MARGIN_BUCKETS: [f64; 13] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 3600.0,
];

/// How much of a lease was left at its renewal, by lock.
pub(crate) type Margins = Family<OfLabel, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCall {
    command: &'static str,
    node: Arc<str>,
    result: &'static str,
}

/// Registers the client's metrics and starts measuring. Returns the metric for renewals over HTTP.
pub(crate) fn register(registry: &mut Registry, locks: &Locks) -> Margins {
    let make: fn() -> Histogram = || Histogram::new(MARGIN_BUCKETS);
    let margins = Family::new_with_constructor(make);
    // Measuring starts with the first call.
    let _ = locks.timings();
    registry.register(
        "tenure_renew_margin_seconds",
        "Remaining lease time at renewal",
        AllMargins {
            over_http: margins.clone(),
            locks: locks.clone(),
        },
    );
    registry.register(
        "tenure_handover_seconds",
        "Time from release to the next waiter's acquire in this process",
        Handovers(locks.clone()),
    );
    registry.register(
        "tenure_redis_command_seconds",
        "Latency of Redis commands",
        Calls(locks.clone()),
    );
    margins
}

/// For leases that are renewed over HTTP, and for those that the service holds itself.
#[derive(Debug)]
struct AllMargins {
    over_http: Margins,
    locks: Locks,
}

#[derive(Debug)]
struct Handovers(Locks);

#[derive(Debug)]
struct Calls(Locks);

impl EncodeMetric for AllMargins {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let own = self.locks.timings().renewal_margins;
        if own.count() > 0 {
            let lock = OWN.to_owned();
            encode(&mut encoder, &OfLabel { lock }, &own)?;
        }
        self.over_http.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl EncodeMetric for Handovers {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let handovers = self.0.timings().handovers;
        encode(&mut encoder, &OfAll { kind: MUTEX }, &handovers)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl EncodeMetric for Calls {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for calls in self.0.timings().calls {
            let labels = OfCall {
                command: calls.call.as_str(),
                node: calls.node,
                result: calls.outcome.as_str(),
            };
            encode(&mut encoder, &labels, &calls.took)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn encode(
    encoder: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    measured: &Distribution,
) -> Result<(), fmt::Error> {
    let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
    let buckets = measured.buckets();
    let buckets: Vec<(f64, u64)> = buckets.map(|(upto, count)| (bound(upto), count)).collect();
    let sum = measured.sum().as_secs_f64();
    let mut row = encoder.encode_family(labels)?;
    row.encode_histogram::<NoLabelSet>(sum, measured.count(), &buckets, None)
}
