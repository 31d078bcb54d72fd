//! `GET /metrics`: the metrics, for Prometheus.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;

use crate::problem::{Kind, Problem};
use crate::state::AppState;

/// `GET /metrics`.
#[utoipa::path(
    get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "Counters and histograms in OpenMetrics text", body = String,
        content_type = "application/openmetrics-text"))
)]
pub(crate) async fn show(State(app): State<AppState>) -> Result<Response, Problem> {
    let mut text = String::new();
    look(&app);
    encode(&mut text, &app.registry)
        .map_err(|_| Problem::new(Kind::INTERNAL, "cannot encode the metrics"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
    Ok((kind, text).into_response())
}

/// Updates the metrics that are read rather than counted.
fn look(app: &AppState) {
    let seen = app.board.seen().unwrap_or_default();
    let meters = &app.desk.meters;
    meters.refresh(&app.place, &seen, &app.locks.stats());
}
