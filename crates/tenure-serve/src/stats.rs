//! Recent activity: what this instance did with locks each second, and how many locks there are.

mod columns;
mod point;
mod ring;
mod tally;
pub(crate) mod time_series;

use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_view::time::moment;
use tokio::time::MissedTickBehavior;
use utoipa::IntoParams;

use self::columns::Columns;
use self::point::Point;
use self::ring::Window;
use crate::extract::Query;
use crate::problem::Problem;
use crate::state::AppState;

/// Time limit of the request that measures the latency of the store.
const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// A lock that is only read.
const PROBE: &str = "ready-probe";
const SECOND: Duration = Duration::from_secs(1);

/// Time window.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Since {
    /// `5m` in steps of a second, `1h` of ten seconds, `24h` of two minutes.
    #[serde(default)]
    #[param(inline)]
    window: Window,
}

#[derive(Serialize)]
struct Sample {
    at: String,
    #[serde(flatten)]
    point: Point,
}

/// Time series for charts.
#[utoipa::path(
    get, path = "/api/v1/stats", tag = "locks", params(Since),
    responses((status = 200, description = "Columns, oldest first", body = Columns))
)]
pub(crate) async fn show(
    State(app): State<AppState>,
    Query(since): Query<Since>,
) -> Result<Json<Columns>, Problem> {
    Ok(Json(app.stats.columns(since.window)))
}

/// Counts seconds until the service stops.
pub(crate) async fn run(app: AppState) {
    let mut ticks = tokio::time::interval(SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let store_ms = tokio::select! {
            store_ms = async { ticks.tick().await; probe(&app).await } => store_ms,
            () = app.stop.cancelled() => return,
        };
        let seen = app.board.seen();
        let point = app.stats.tick(
            seen.map(|seen| seen.held),
            seen.map(|seen| seen.waiting),
            store_ms,
        );
        let at = moment(SystemTime::now());
        app.stats.feed.publish("stats", "", &Sample { at, point });
    }
}

/// How long the store takes to answer, in milliseconds.
async fn probe(app: &AppState) -> Option<f64> {
    let begun = Instant::now();
    let probe = app.locks.lock(PROBE);
    let answer = tokio::time::timeout(PROBE_WITHIN, probe.is_locked()).await;
    answer.ok()?.ok()?;
    Some(begun.elapsed().as_secs_f64() * 1_000.0)
}
