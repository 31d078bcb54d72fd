//! The playground over HTTP: one stock sold in three ways, with faults, for people to watch.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tenure_demo::playground::{
    Fault, POINTS_MAX, Plan, Playground, RUNS_MAX, Refused, Run, RunList, RunReport, RunUpdate,
};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::event_stream::{Feed, Message, Source};
use crate::extract::{Body, Path};
use crate::problem::{Kind, Problem};
use crate::responses;

const RUNNING: Kind = Kind::new(StatusCode::CONFLICT, "running", "a run goes on already");

/// What is to be done to a running sale.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultBody {
    fault: Fault,
}

/// The playground, and the feed that tells how its runs go on.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) playground: Arc<Playground>,
    feed: Arc<Feed>,
}

impl Ground {
    pub(crate) fn new(urls: &[String]) -> Self {
        let feed = Feed::new();
        let told = Arc::clone(&feed);
        let tell = move |update: &RunUpdate| told.tell("playground.run", &update.run.id, update);
        let playground = Playground::new(urls, tell);
        Self { playground, feed }
    }

    fn find(&self, id: &str) -> Result<Arc<Run>, Problem> {
        self.playground.find(id).ok_or_else(|| {
            let detail = format!("there is no run `{id}`: the last {RUNS_MAX} are remembered");
            Problem::new(Kind::NOT_FOUND, detail)
        })
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        match refused {
            Refused::Invalid(_) => Self::new(Kind::INVALID, detail),
            Refused::Running(id) => Self::new(RUNNING, detail).with("id", id),
            Refused::Conflict(_) => Self::new(Kind::CONFLICT, detail),
            Refused::Store(error) => match error.downcast::<tenure_sale::Error>() {
                Ok(error) => error.into(),
                Err(_) => Self::new(Kind::CONFLICT, detail),
            },
            Refused::Internal => Self::new(Kind::INTERNAL, detail),
        }
    }
}

/// What of the playground is asked for under `/api/v1`.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, begin))
        .routes(routes!(show))
        .routes(routes!(strike))
        .routes(routes!(stop))
}

/// The runs for an event stream: `playground.snapshot`, then `playground.run`.
pub(crate) fn source(app: &AppState) -> Source {
    let playground = Arc::clone(&app.ground.playground);
    let snapshot = move || {
        let runs = playground.list();
        vec![Message::now("playground.snapshot", "", &runs)]
    };
    Source {
        snapshot: Box::new(snapshot),
        wanted: Box::new(|_| true),
        feed: Arc::clone(&app.ground.feed),
    }
}

/// Sell one stock: naively, under a lock, or by script.
///
/// Several instances sell at once, each a thread with clients of its own, in the service's own store
/// under names that nobody else uses. Afterwards nothing of it is left there.
#[utoipa::path(post, path = "/playground/runs", tag = "playground", request_body = Plan,
    responses((status = 201, description = "It runs", body = RunReport),
        (status = 403, description = "The store is a server, on which this makes load: start with \
            --demo or --allow-admin", body = Problem),
        (status = 409, description = "`running`: another run goes on", body = Problem),
        (status = 422, description = "A number is out of its limits", body = Problem),
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

/// Refuses to make load on a server unless the service was started for that.
fn check_allowed(app: &AppState) -> Result<(), Problem> {
    if app.ground.playground.is_memory() || app.settings.demo || app.settings.access.admin {
        return Ok(());
    }
    let detail = "the playground makes load on the Redis that the locks are on, where others may \
                  work: start `tenure serve` with --demo or --allow-admin, or without --url";
    Err(Problem::new(Kind::FORBIDDEN, detail))
}

/// The last runs, the newest first.
#[utoipa::path(get, path = "/playground/runs", tag = "playground",
    responses((status = 200, description = "At most 20, with a few points of each curve", body = RunList)))]
async fn list(State(app): State<AppState>) -> Json<RunList> {
    Json(app.ground.playground.list())
}

/// One run, with its curve.
#[utoipa::path(get, path = "/playground/runs/{id}", tag = "playground",
    params(("id" = String, Path, description = "Which run")),
    responses((status = 200, description = "The run", body = RunReport),
        (status = 404, description = "There is none, or it was forgotten", body = Problem)))]
async fn show(
    State(app): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<RunReport>, Problem> {
    let run = app.ground.find(&id)?;
    Ok(Json(run.report_with_curve(POINTS_MAX)))
}

/// Do something to whoever holds the lock next.
#[utoipa::path(post, path = "/playground/runs/{id}/faults", tag = "playground",
    params(("id" = String, Path, description = "Which run")), request_body = FaultBody,
    responses((status = 202, description = "It strikes the next holder", body = RunReport),
        (status = 404, description = "There is no such run", body = Problem),
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

/// End a run before its time. Ending one that is over changes nothing.
#[utoipa::path(post, path = "/playground/runs/{id}/stop", tag = "playground",
    params(("id" = String, Path, description = "Which run")),
    responses((status = 200, description = "It is over", body = RunReport),
        (status = 404, description = "There is no such run", body = Problem)))]
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
