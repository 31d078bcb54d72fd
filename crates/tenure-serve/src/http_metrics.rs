//! Metrics of requests and streams, for Prometheus.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

const HTTP_BUCKETS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

/// Metrics of all requests and streams. Areas have their own.
#[derive(Debug)]
pub(crate) struct HttpMetrics {
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    durations: Family<RouteLabels, Histogram>,
    streams: Gauge<i64, AtomicI64>,
    /// The metrics per route, found without creating labels.
    routes: RwLock<HashMap<String, Vec<Arc<RouteMeter>>>>,
}

/// The metrics of one route and method.
#[derive(Debug)]
pub(crate) struct RouteMeter {
    labels: RouteLabels,
    took: Histogram,
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    /// By status, created on first use.
    answers: RwLock<Vec<(u16, Counter<u64, AtomicU64>)>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// Counts a stream while it exists.
#[derive(Debug)]
pub(crate) struct CountedStream(Gauge<i64, AtomicI64>);

impl HttpMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let requests = Family::default();
        let make = || Histogram::new(HTTP_BUCKETS);
        let durations = Family::new_with_constructor(make as fn() -> Histogram);
        let streams = Gauge::default();
        let build: Family<BuildLabels, Gauge> = Family::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&BuildLabels { version }).set(1);
        registry.register("tenure_http_requests", "HTTP requests", requests.clone());
        registry.register(
            "tenure_http_request_duration_seconds",
            "Duration of HTTP requests, including waits",
            durations.clone(),
        );
        registry.register("tenure_sse_clients", "Open event streams", streams.clone());
        registry.register("tenure_build_info", "Version", build);
        Self {
            requests,
            durations,
            streams,
            routes: RwLock::default(),
        }
    }

    pub(crate) fn count_stream(&self) -> CountedStream {
        self.streams.inc();
        CountedStream(self.streams.clone())
    }

    /// The metrics of a route and a method.
    pub(crate) fn of_route(&self, route: &str, method: &Method) -> Arc<RouteMeter> {
        let method = word(method);
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let of_route = routes.get(route).into_iter().flatten();
        for meter in of_route {
            if meter.labels.method == method {
                return Arc::clone(meter);
            }
        }
        drop(routes);
        let labels = RouteLabels {
            route: route.to_owned(),
            method,
        };
        let meter = Arc::new(RouteMeter::new(self, labels));
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        // Two requests may both create it: both then use the same counters.
        let of_route = routes.entry(route.to_owned()).or_default();
        of_route.push(Arc::clone(&meter));
        meter
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl RouteMeter {
    fn new(of: &HttpMetrics, labels: RouteLabels) -> Self {
        Self {
            took: of.durations.get_or_create_owned(&labels),
            requests: of.requests.clone(),
            answers: RwLock::default(),
            labels,
        }
    }

    /// Counts a response.
    pub(crate) fn count(&self, status: StatusCode, took: Duration) {
        self.took.observe(took.as_secs_f64());
        let status = status.as_u16();
        let answers = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counter)) = answers.iter().find(|(known, _)| *known == status) {
            counter.inc();
            return;
        }
        drop(answers);
        let RouteLabels { route, method } = self.labels.clone();
        let labels = RequestLabels {
            route,
            method,
            status,
        };
        let counter = self.requests.get_or_create_owned(&labels);
        counter.inc();
        let answers = self.answers.write();
        let mut answers = answers.unwrap_or_else(PoisonError::into_inner);
        // Two requests may both create it: both then use the same counters.
        answers.push((status, counter));
    }
}

/// The method as a label; requests may send any method.
fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        _ => "other",
    }
}
