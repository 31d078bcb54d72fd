//! The playground over HTTP: one stock sold in three ways, with faults, for people to watch.

pub(crate) mod ground;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tenure_demo::playground::{Fault, POINTS_MAX, Plan, RunList, RunReport};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::extract::{Body, Path};
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// How long a run may take to end when the service stops.
const END_WITHIN: Duration = Duration::from_millis(1_500);

/// The fault to inject.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultBody {
    fault: Fault,
}

/// The playground routes.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, begin))
        .routes(routes!(show))
        .routes(routes!(strike))
        .routes(routes!(stop))
}

/// Stops a run in progress when the service stops, and deletes its keys.
pub(crate) async fn end_with_service(app: &AppState) {
    app.stop.cancelled().await;
    let settling = app.ground.playground.settle();
    let _ = tokio::time::timeout(END_WITHIN, settling).await;
}

/// Starts a run: sells one stock naively, with a lock, or with a script.
/// Several instances sell at once, each with its own thread and clients, on the service's Redis
/// under unique names. All keys are deleted afterwards.
#[utoipa::path(post, path = "/api/v1/playground/runs", tag = "playground", request_body = Plan,
    responses((status = 201, description = "Started", body = RunReport),
        (status = 403, description = "Off for a Redis server: start with --demo or --allow-admin",
            body = Problem),
        (status = 409, description = "`running`: another run is in progress", body = Problem),
        (status = 422, description = "A number is out of range", body = Problem),
        responses::StoreAway))]
async fn begin(
    State(app): State<AppState>,
    Body(plan): Body<Plan>,
) -> Result<(StatusCode, Json<RunReport>), Problem> {
    check_allowed(&app)?;
    let playground = &app.ground.playground;
    let run = playground.begin(plan, app.stop.child_token()).await?;
    Ok((StatusCode::CREATED, Json(run.report())))
}

/// Refuses to load a server unless the service was started for that.
fn check_allowed(app: &AppState) -> Result<(), Problem> {
    if app.ground.playground.is_memory() || app.settings.demo || app.settings.access.admin {
        return Ok(());
    }
    let detail = "the playground is off, because it would load the Redis server of the locks: \
                  start `tenure serve` with --demo or --allow-admin, or without --url";
    Err(Problem::new(Kind::FORBIDDEN, detail))
}

/// Lists the last runs, newest first.
#[utoipa::path(get, path = "/api/v1/playground/runs", tag = "playground",
    responses((status = 200, description = "At most 20, with few points of each curve", body = RunList)))]
async fn list(State(app): State<AppState>) -> Json<RunList> {
    Json(app.ground.playground.list())
}

/// Shows one run with its curve.
#[utoipa::path(get, path = "/api/v1/playground/runs/{id}", tag = "playground",
    params(("id" = String, Path, description = "Id of the run")),
    responses((status = 200, description = "The run", body = RunReport),
        (status = 404, description = "Run not found", body = Problem)))]
async fn show(
    State(app): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<RunReport>, Problem> {
    let run = app.ground.find(&id)?;
    Ok(Json(run.report_with_curve(POINTS_MAX)))
}

/// Injects a fault into the next holder.
#[utoipa::path(post, path = "/api/v1/playground/runs/{id}/faults", tag = "playground",
    params(("id" = String, Path, description = "Id of the run")), request_body = FaultBody,
    responses((status = 202, description = "Scheduled for the next holder", body = RunReport),
        (status = 404, description = "Run not found", body = Problem),
        (status = 409, description = "The run is over", body = Problem)))]
async fn strike(
    State(app): State<AppState>,
    Path(id): Path<String>,
    Body(body): Body<FaultBody>,
) -> Result<(StatusCode, Json<RunReport>), Problem> {
    let run = app.ground.find(&id)?;
    run.arm(body.fault)?;
    Ok((StatusCode::ACCEPTED, Json(run.report())))
}

/// Stops a run. Stopping a finished run has no effect.
#[utoipa::path(post, path = "/api/v1/playground/runs/{id}/stop", tag = "playground",
    params(("id" = String, Path, description = "Id of the run")),
    responses((status = 200, description = "Stopped", body = RunReport),
        (status = 404, description = "Run not found", body = Problem)))]
async fn stop(
    State(app): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<RunReport>, Problem> {
    let run = app.ground.find(&id)?;
    if run.is_running() {
        run.stop();
        app.ground.playground.settle().await;
    }
    Ok(Json(run.report()))
}
