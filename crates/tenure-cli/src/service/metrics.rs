//! What is counted, for Prometheus.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::App;
use super::problem::{Kind, Problem};

const HTTP_BUCKETS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];

/// Everything that the service counts itself. Areas add their own to the registry.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    durations: Family<RouteLabels, Histogram>,
    streams: Gauge<i64, AtomicI64>,
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

/// As long as it lives, a stream is counted.
#[derive(Debug)]
pub struct CountedStream(Gauge<i64, AtomicI64>);

impl Metrics {
    /// On a registry that has what the areas count.
    pub fn new(mut registry: Registry) -> Self {
        let requests = Family::default();
        let make = || Histogram::new(HTTP_BUCKETS);
        let durations = Family::new_with_constructor(make as fn() -> Histogram);
        let streams = Gauge::default();
        let build: Family<BuildLabels, Gauge> = Family::default();
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&BuildLabels { version }).set(1);
        registry.register(
            "tenure_http_requests",
            "Requests that were answered",
            requests.clone(),
        );
        registry.register(
            "tenure_http_request_duration_seconds",
            "How long answering took, waiting included",
            durations.clone(),
        );
        registry.register("tenure_sse_clients", "Open event streams", streams.clone());
        registry.register("tenure_build_info", "The version that runs", build);
        Self {
            registry,
            requests,
            durations,
            streams,
        }
    }

    pub fn count_stream(&self) -> CountedStream {
        self.streams.inc();
        CountedStream(self.streams.clone())
    }

    fn count(&self, route: String, method: &'static str, status: u16, took: Duration) {
        let labels = RouteLabels { route, method };
        let duration = self.durations.get_or_create(&labels);
        duration.observe(took.as_secs_f64());
        // One lock of the family at a time.
        drop(duration);
        let RouteLabels { route, method } = labels;
        let labels = RequestLabels {
            route,
            method,
            status,
        };
        self.requests.get_or_create(&labels).inc();
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts each request under the route that it matched, never under its path.
pub async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("none", MatchedPath::as_str).to_owned();
    let method = match request.method().as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        _ => "other",
    };
    let start = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    app.metrics.count(route, method, status, start.elapsed());
    response
}

/// `GET /metrics`.
#[utoipa::path(
    get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "Counters and histograms in OpenMetrics text", body = String,
        content_type = "application/openmetrics-text"))
)]
pub async fn show(State(app): State<App>) -> Result<Response, Problem> {
    let mut text = String::new();
    app.refresh_metrics();
    encode(&mut text, &app.metrics.registry)
        .map_err(|_| Problem::new(Kind::INTERNAL, "cannot write the metrics"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
    Ok((kind, text).into_response())
}
