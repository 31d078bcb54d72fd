//! Who holds what: one lock, all of them, and what was seen of them.

use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_view::changes::Change;
use tenure_view::holders::LockReport;
use tenure_view::time::moment;
use utoipa::{IntoParams, ToSchema};

use super::refusals;
use crate::app::AppState;
use crate::extract::{Path, Query};
use crate::lock_board::Hold;
use crate::problem::{Kind, Problem};
use crate::responses;

/// How many locks a page has, unless something else is said, and at most.
const PAGE_LENGTH: usize = 1_000;
const PAGE_LENGTH_MAX: usize = 10_000;
/// How long listing may take.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// Which locks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// What their names begin with.
    #[serde(default)]
    prefix: String,
    /// What their names, or the words for their holders, contain; in any case.
    #[serde(default)]
    q: String,
    /// `held`, or `waiting`: those that callers wait for.
    #[param(inline)]
    state: Option<InState>,
    /// How many at most: 1000 unless something else is said, 10000 at most.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum InState {
    Held,
    Waiting,
}

/// A page of locks, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page {
    at: String,
    locks: Vec<LockReport>,
    /// Where the next page begins, if there is one.
    next_cursor: Option<String>,
    /// How many there are on all pages.
    total: usize,
    /// How many more leases clients hold than they name.
    unlisted: u64,
}

/// What this instance has seen of a lock.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct History {
    pub(crate) name: String,
    /// The last ones to hold it, oldest first.
    pub(crate) holds: Vec<Hold>,
    /// The last events, oldest first.
    pub(crate) events: Vec<Change>,
}

/// What this instance has seen last of all locks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Events {
    /// Oldest first.
    pub(crate) events: Vec<Change>,
}

/// Lists the locks that are held for half a second or longer, or waited for.
///
/// Locks of other libraries are listed if a client of Tenure waits for them.
#[utoipa::path(
    get, path = "/locks", tag = "locks", params(Wanted),
    responses(
        (status = 200, description = "A page of them", body = Page),
        responses::StoreAway,
    )
)]
pub(crate) async fn list(
    State(app): State<AppState>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page>, Problem> {
    let _place = app.limits.heavy().await?;
    let prefix = wanted.prefix.clone();
    let listing = app
        .locks
        .list(move |name| name.as_str().starts_with(&prefix));
    let listing = tokio::time::timeout(LIST_WITHIN, listing)
        .await
        .map_err(|_| {
            let detail = format!("the store did not list the locks within {LIST_WITHIN:?}");
            Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO)
        })??;
    let found = listing.locks.iter().map(LockReport::of_listed);
    let found: Vec<LockReport> = found.filter(|lock| wanted.wants(lock)).collect();
    let total = found.len();
    let limit = wanted
        .limit
        .unwrap_or(PAGE_LENGTH)
        .clamp(1, PAGE_LENGTH_MAX);
    let is_next = |lock: &LockReport| wanted.cursor.as_ref().is_none_or(|last| lock.name > *last);
    let mut page = found.into_iter().filter(is_next);
    let locks: Vec<LockReport> = page.by_ref().take(limit).collect();
    let here = app.locks.id();
    let last = locks.last().map(|lock| lock.name.clone());
    Ok(Json(Page {
        at: moment(SystemTime::now()),
        next_cursor: last.filter(|_| page.next().is_some()),
        locks: locks
            .into_iter()
            .map(|lock| app.board.shown(app.desk.callers.named(&here, lock)))
            .collect(),
        total,
        unlisted: listing.more_leases,
    }))
}

/// One lock, whoever holds it.
#[utoipa::path(
    get, path = "/locks/{name}", tag = "locks",
    params(("name" = String, Path, description = "The lock")),
    responses(
        (status = 200, description = "Its holder and its waiters", body = LockReport),
        (status = 404, description = "Nobody holds it or waits for it", body = Problem),
        (status = 409, description = "The key is no lock", body = Problem),
        (status = 422, description = "No lock can have this name", body = Problem),
        responses::StoreAway,
    )
)]
pub(crate) async fn show(
    State(app): State<AppState>,
    Path(name): Path<String>,
) -> Result<Json<LockReport>, Problem> {
    let lock = refusals::look(&app, &name).await?;
    if lock.held || lock.waiting > 0 {
        return Ok(Json(app.board.shown(lock)));
    }
    let detail = format!("nobody holds lock `{name}` or waits for it");
    Err(Problem::new(Kind::NOT_FOUND, detail))
}

/// What this instance has seen of a lock since it was started: its last holders and events.
#[utoipa::path(
    get, path = "/locks/{name}/history", tag = "locks",
    params(("name" = String, Path, description = "The lock")),
    responses((status = 200, description = "What was seen, perhaps nothing", body = History))
)]
pub(crate) async fn history(
    State(app): State<AppState>,
    Path(name): Path<String>,
) -> Json<History> {
    let (holds, events) = app.board.history(&name);
    Json(History {
        name,
        holds,
        events,
    })
}

/// The last thousand events that this instance has seen.
#[utoipa::path(
    get, path = "/history", tag = "locks",
    responses((status = 200, description = "What was seen, perhaps nothing", body = Events))
)]
pub(crate) async fn all_history(State(app): State<AppState>) -> Json<Events> {
    let events = app.board.recent();
    Json(Events { events })
}

impl Wanted {
    fn wants(&self, lock: &LockReport) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.q.to_lowercase());
        let is_in_state = match self.state {
            None => true,
            Some(InState::Held) => lock.held,
            Some(InState::Waiting) => lock.waiting > 0,
        };
        is_in_state && (self.q.is_empty() || has(&lock.name) || has(&lock.who))
    }
}
