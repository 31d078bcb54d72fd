//! How it went lately: what this instance did with locks each second, and how many locks there are.

mod ring;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_view::time::moment;
use tenure_view::timings::Timings;
use tokio::time::MissedTickBehavior;
use utoipa::{IntoParams, ToSchema};

use self::ring::Rings;
pub(crate) use self::ring::Window;
use crate::app::AppState;
use crate::event_stream::{Feed, Source};
use crate::extract::Query;
use crate::problem::Problem;

/// How long the store may take to answer what is asked only to see how long that takes.
const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// A lock that is only looked at.
const PROBE: &str = "ready-probe";
const SECOND: Duration = Duration::from_secs(1);

/// What is counted, and what it was.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) feed: Arc<Feed>,
    tally: Mutex<Tally>,
    rings: Mutex<Rings>,
}

/// What happened since somebody looked.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) acquired: u64,
    pub(crate) busy: u64,
    pub(crate) released: u64,
    pub(crate) lost: u64,
    pub(crate) renewed: u64,
    pub(crate) waits: Timings,
    pub(crate) holds: Timings,
}

/// How it was at one moment, and in the step before.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Point {
    #[serde(skip)]
    pub(crate) at_ms: u64,
    /// Locks held and callers waiting, wherever; null while the store does not answer.
    pub(crate) held: Option<i64>,
    pub(crate) waiting: Option<i64>,
    /// Of this instance's locks over HTTP, each second.
    pub(crate) acquired: f64,
    pub(crate) busy: f64,
    pub(crate) released: f64,
    pub(crate) lost: f64,
    pub(crate) renewed: f64,
    pub(crate) wait_p50_ms: Option<f64>,
    pub(crate) wait_p99_ms: Option<f64>,
    pub(crate) hold_p50_ms: Option<f64>,
    pub(crate) hold_p99_ms: Option<f64>,
    /// How long the store took to answer.
    pub(crate) store_ms: Option<f64>,
}

#[derive(Serialize)]
struct Told {
    at: String,
    #[serde(flatten)]
    point: Point,
}

/// How far back.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Since {
    /// `5m` in steps of a second, `1h` of ten seconds, `24h` of two minutes.
    #[serde(default)]
    #[param(inline)]
    window: Window,
}

/// Columns of equal length, oldest first.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Columns {
    step_ms: u64,
    /// Unix time in milliseconds.
    at: Vec<u64>,
    held: Vec<Option<i64>>,
    waiting: Vec<Option<i64>>,
    /// A second, as all that follow up to `renewed`.
    acquired: Vec<f64>,
    busy: Vec<f64>,
    released: Vec<f64>,
    lost: Vec<f64>,
    renewed: Vec<f64>,
    wait_p50_ms: Vec<Option<f64>>,
    wait_p99_ms: Vec<Option<f64>>,
    hold_p50_ms: Vec<Option<f64>>,
    hold_p99_ms: Vec<Option<f64>>,
    store_ms: Vec<Option<f64>>,
}

/// How it went lately, for charts.
#[utoipa::path(
    get, path = "/stats", tag = "locks", params(Since),
    responses((status = 200, description = "Columns, oldest first", body = Columns))
)]
pub(crate) async fn show(
    State(app): State<AppState>,
    Query(since): Query<Since>,
) -> Result<Json<Columns>, Problem> {
    Ok(Json(app.stats.columns(since.window)))
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self {
            feed: Feed::new(),
            tally: Mutex::new(Tally::new()),
            rings: Mutex::default(),
        }
    }

    pub(crate) fn acquired(&self, waited: Duration) {
        let mut tally = self.tally();
        tally.acquired += 1;
        tally.waits.note(waited);
    }

    pub(crate) fn busy(&self) {
        self.tally().busy += 1;
    }

    pub(crate) fn renewed(&self) {
        self.tally().renewed += 1;
    }

    /// A lease was released; how long it was held is known if it was given here.
    pub(crate) fn released(&self, held: Option<Duration>) {
        let mut tally = self.tally();
        tally.released += 1;
        tally.held(held);
    }

    /// A lease ended before it was released.
    pub(crate) fn lost(&self, held: Option<Duration>) {
        let mut tally = self.tally();
        tally.lost += 1;
        tally.held(held);
    }

    /// A point each second, as it comes.
    pub(crate) fn source(&self) -> Source {
        Source {
            snapshot: Box::new(Vec::new),
            wanted: Box::new(|_| true),
            feed: Arc::clone(&self.feed),
        }
    }

    fn columns(&self, window: Window) -> Columns {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut columns = Columns {
            step_ms: window.step_ms(),
            ..Columns::default()
        };
        for point in rings.points(window) {
            columns.push(point);
        }
        columns
    }

    /// Ends a second.
    fn tick(&self, held: Option<i64>, waiting: Option<i64>, store_ms: Option<f64>) -> Point {
        let tally = std::mem::replace(&mut *self.tally(), Tally::new());
        let now = SystemTime::now();
        let at_ms = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let seen = Point {
            at_ms: u64::try_from(at_ms.as_millis()).unwrap_or(0),
            held,
            waiting,
            store_ms,
            ..Point::default()
        };
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.push(seen, &tally)
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            acquired: 0,
            busy: 0,
            released: 0,
            lost: 0,
            renewed: 0,
            waits: Timings::new(),
            holds: Timings::new(),
        }
    }

    fn held(&mut self, held: Option<Duration>) {
        if let Some(held) = held {
            self.holds.note(held);
        }
    }
}

impl Columns {
    fn push(&mut self, point: &Point) {
        self.at.push(point.at_ms);
        self.held.push(point.held);
        self.waiting.push(point.waiting);
        self.acquired.push(point.acquired);
        self.busy.push(point.busy);
        self.released.push(point.released);
        self.lost.push(point.lost);
        self.renewed.push(point.renewed);
        self.wait_p50_ms.push(point.wait_p50_ms);
        self.wait_p99_ms.push(point.wait_p99_ms);
        self.hold_p50_ms.push(point.hold_p50_ms);
        self.hold_p99_ms.push(point.hold_p99_ms);
        self.store_ms.push(point.store_ms);
    }
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
        app.stats.feed.tell("stats", "", &Told { at, point });
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
