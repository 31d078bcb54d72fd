//! The playground: one stock sold in three ways, with faults, for people to watch.

mod book;
mod crowd;
mod curve;
mod instance;
mod plan;
mod report;
mod run;
mod stage;
mod still;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::curve::POINTS_MAX;
use self::plan::{Fault, Mode, Plan};
use self::report::{RunList, RunReport, RunState};
use self::run::Run;
use self::stage::{Place, Stage};
use super::App;
use super::answers;
use super::extract::{Body, Path};
use super::problem::{Kind, Problem};
use super::stream::{Feed, Message, Source};

const RUNNING: Kind = Kind::new(StatusCode::CONFLICT, "running", "a run goes on already");

/// How many runs are remembered.
const RUNS_MAX: usize = 20;
/// How many points a curve has where several are shown.
const POINTS_SHOWN: usize = 200;

/// What the playground remembers.
pub struct Playground {
    /// The service's store, with passwords: not to be shown.
    urls: Vec<String>,
    /// One run at a time.
    turn: Arc<Semaphore>,
    /// The newest last.
    runs: Mutex<VecDeque<Arc<Run>>>,
    feed: Arc<Feed>,
}

/// What is to be done to a running sale.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultBody {
    fault: Fault,
}

impl Playground {
    pub fn new(urls: &[String]) -> Self {
        Self {
            urls: urls.to_vec(),
            turn: Arc::new(Semaphore::new(1)),
            runs: Mutex::default(),
            feed: Feed::new(),
        }
    }

    /// Waits until no run goes on.
    pub async fn settle(&self) {
        drop(self.turn.acquire().await);
    }

    /// The newest first.
    fn list(&self) -> RunList {
        let runs: Vec<Arc<Run>> = self.runs().iter().rev().cloned().collect();
        let report = |run: &Arc<Run>| run.report_with_curve(POINTS_SHOWN);
        RunList {
            runs: runs.iter().map(report).collect(),
        }
    }

    fn find(&self, id: &str) -> Result<Arc<Run>, Problem> {
        let found = self.runs().iter().find(|run| run.id == id).cloned();
        found.ok_or_else(|| {
            let detail = format!("there is no run `{id}`: the last {RUNS_MAX} are remembered");
            Problem::new(Kind::NOT_FOUND, detail)
        })
    }

    fn remember(&self, run: &Arc<Run>) {
        let mut runs = self.runs();
        if runs.len() == RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back(Arc::clone(run));
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let turn = Arc::clone(&self.turn).try_acquire_owned();
        turn.map_err(|_| {
            let detail = "one run at a time: wait until it is done, or stop it";
            let running = self.runs().back().map(|run| run.id.clone());
            Problem::new(RUNNING, detail).with("id", running)
        })
    }
}

/// Without the passwords.
impl fmt::Debug for Playground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Playground").finish_non_exhaustive()
    }
}

/// What of the playground is asked for under `/api/v1`.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, begin))
        .routes(routes!(show))
        .routes(routes!(strike))
        .routes(routes!(stop))
}

/// The runs for an event stream: `playground.snapshot`, then `playground.run`.
pub fn source(app: &App) -> Source {
    let snapshot = {
        let app = app.clone();
        move || {
            let runs = app.playground.list();
            vec![Message::now("playground.snapshot", "", &runs)]
        }
    };
    Source {
        snapshot: Box::new(snapshot),
        wanted: Box::new(|_| true),
        feed: Arc::clone(&app.playground.feed),
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
        answers::StoreAway))]
async fn begin(
    State(app): State<App>,
    Body(plan): Body<Plan>,
) -> Result<(StatusCode, Json<RunReport>), Problem> {
    check_allowed(&app)?;
    plan.check()?;
    if plan.mode == Mode::Script && app.playground.urls.len() > 1 {
        let detail = "cannot sell by script here: one step needs one server, and no script spans \
                      several";
        return Err(Problem::new(Kind::INVALID, detail));
    }
    let turn = app.playground.take_turn()?;
    // A task of its own: whoever asked may go away, and what was brought on sale must be taken off.
    let begun = tokio::spawn(async move { open(app, plan, turn).await }).await;
    let failed = |_| Problem::new(Kind::INTERNAL, "cannot begin the run");
    let run = begun.map_err(failed)??;
    Ok((StatusCode::CREATED, Json(run.report())))
}

/// Refuses to make load on a server unless whoever started the service wants it.
fn check_allowed(app: &App) -> Result<(), Problem> {
    let urls = &app.playground.urls;
    let is_memory = urls.iter().all(|url| url.trim().starts_with("memory:"));
    if is_memory || app.settings.demo || app.settings.access.admin {
        return Ok(());
    }
    let detail = "the playground makes load on the Redis that the locks are on, where others may \
                  work: start `tenure serve` with --demo or --allow-admin, or without --url";
    Err(Problem::new(Kind::FORBIDDEN, detail))
}

/// The last runs, the newest first.
#[utoipa::path(get, path = "/playground/runs", tag = "playground",
    responses((status = 200, description = "At most 20, with a few points of each curve", body = RunList)))]
async fn list(State(app): State<App>) -> Json<RunList> {
    Json(app.playground.list())
}

/// One run, with its curve.
#[utoipa::path(get, path = "/playground/runs/{id}", tag = "playground",
    params(("id" = String, Path, description = "Which run")),
    responses((status = 200, description = "The run", body = RunReport),
        (status = 404, description = "There is none, or it was forgotten", body = Problem)))]
async fn show(State(app): State<App>, Path(id): Path<String>) -> Result<Json<RunReport>, Problem> {
    let run = app.playground.find(&id)?;
    Ok(Json(run.report_with_curve(POINTS_MAX)))
}

/// Do something to whoever holds the lock next.
#[utoipa::path(post, path = "/playground/runs/{id}/faults", tag = "playground",
    params(("id" = String, Path, description = "Which run")), request_body = FaultBody,
    responses((status = 202, description = "It strikes the next holder", body = RunReport),
        (status = 404, description = "There is no such run", body = Problem),
        (status = 409, description = "The run is over", body = Problem)))]
async fn strike(
    State(app): State<App>,
    Path(id): Path<String>,
    Body(body): Body<FaultBody>,
) -> Result<(StatusCode, Json<RunReport>), Problem> {
    let run = app.playground.find(&id)?;
    run.arm(body.fault)?;
    Ok((StatusCode::ACCEPTED, Json(run.report())))
}

/// End a run before its time. Ending one that is over changes nothing.
#[utoipa::path(post, path = "/playground/runs/{id}/stop", tag = "playground",
    params(("id" = String, Path, description = "Which run")),
    responses((status = 200, description = "It is over", body = RunReport),
        (status = 404, description = "There is no such run", body = Problem)))]
async fn stop(State(app): State<App>, Path(id): Path<String>) -> Result<Json<RunReport>, Problem> {
    let run = app.playground.find(&id)?;
    if run.report().state == RunState::Running {
        run.stop.cancel();
        app.playground.settle().await;
    }
    Ok(Json(run.report()))
}

/// Brings the stock on sale and lets the run begin.
async fn open(app: App, plan: Plan, turn: OwnedSemaphorePermit) -> Result<Arc<Run>, Problem> {
    let id = format!("play-{:08x}", rand::random::<u32>());
    let place = Place::new(&app.playground.urls, &id, &plan);
    let stage = Stage::open(place, plan.stock).await?;
    let run = Run::new(&id, plan, app.stop.child_token());
    app.playground.remember(&run);
    let holding = Arc::clone(&run);
    tokio::spawn(async move {
        run::hold(&holding, &stage, &app.playground.feed).await;
        // Whoever hears that it is over can begin the next one.
        drop(turn);
        run::tell_end(&holding, &app.playground.feed);
    });
    Ok(run)
}
