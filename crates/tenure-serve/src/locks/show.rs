//! Showing one lock, all locks, and their history.

use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tenure_view::changes::Change;
use tenure_view::holders::LockReport;
use tenure_view::time::moment;
use utoipa::{IntoParams, ToSchema};

use super::refusals;
use crate::extract::{Path, Query, TEXT_MAX, check_length};
use crate::lock_board::history::Hold;
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// Page size of a listing: default and maximum.
const PAGE_LENGTH: usize = 1_000;
const PAGE_LENGTH_MAX: usize = 10_000;
/// Time limit of a listing.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// Filter.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Prefix of the name.
    #[serde(default)]
    prefix: String,
    /// Text in name or holder, case-insensitive; at most 512 bytes.
    #[serde(default)]
    q: String,
    /// `held`, or `waiting` for locks with waiters.
    #[param(inline)]
    state: Option<InState>,
    /// Page size: default 1000, maximum 10000.
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum InState {
    Held,
    Waiting,
}

/// A page of locks, sorted by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page {
    at: String,
    locks: Vec<LockReport>,
    /// Cursor of the next page, if any.
    next_cursor: Option<String>,
    /// Total over all pages.
    total: usize,
    /// Leases that clients hold but do not list.
    unlisted: u64,
}

/// History of a lock, as seen by this instance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct History {
    pub(crate) name: String,
    /// The last holders, oldest first.
    pub(crate) holds: Vec<Hold>,
    /// The last events, oldest first.
    pub(crate) events: Vec<Change>,
}

/// The last events of all locks, as seen by this instance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Events {
    /// Oldest first.
    pub(crate) events: Vec<Change>,
}

/// Lists locks that are held for at least half a second or have waiters.
/// Lists locks of other libraries only if a Tenure client waits for them.
#[utoipa::path(
    get, path = "/api/v1/locks", tag = "locks", params(Wanted),
    responses(
        (status = 200, description = "A page of locks", body = Page),
        responses::Invalid, responses::StoreAway,
    )
)]
pub(crate) async fn list(
    State(app): State<AppState>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page>, Problem> {
    wanted.check()?;
    let wanted = wanted.folded();
    let _place = app.limits.heavy().await?;
    let prefix = wanted.prefix.clone();
    let listing = app
        .locks
        .list(move |name| name.as_str().starts_with(&prefix));
    let listing = tokio::time::timeout(LIST_WITHIN, listing)
        .await
        .map_err(|_| {
            let detail = format!("Redis did not list the locks within {LIST_WITHIN:?}");
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

/// Shows one lock.
#[utoipa::path(
    get, path = "/api/v1/locks/{name}", tag = "locks",
    params(("name" = String, Path, description = "Name of the lock")),
    responses(
        (status = 200, description = "Holder and waiters", body = LockReport),
        (status = 404, description = "The lock is free and has no waiters", body = Problem),
        (status = 409, description = "The key is not a lock", body = Problem),
        (status = 422, description = "Invalid lock name", body = Problem),
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
    let detail = format!("lock `{name}` is free and has no waiters");
    Err(Problem::new(Kind::NOT_FOUND, detail))
}

/// The last holders and events of a lock, as seen by this instance since it started.
#[utoipa::path(
    get, path = "/api/v1/locks/{name}/history", tag = "locks",
    params(("name" = String, Path, description = "Name of the lock")),
    responses((status = 200, description = "The history, possibly empty", body = History))
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

/// The last thousand lock events that this instance has seen.
#[utoipa::path(
    get, path = "/api/v1/history", tag = "locks",
    responses((status = 200, description = "The history, possibly empty", body = Events))
)]
pub(crate) async fn all_history(State(app): State<AppState>) -> Json<Events> {
    let events = app.board.recent();
    Json(Events { events })
}

impl Wanted {
    fn check(&self) -> Result<(), Problem> {
        let cursor = self.cursor.as_deref().unwrap_or_default();
        for (what, text) in [
            ("prefix", &*self.prefix),
            ("q", &*self.q),
            ("cursor", cursor),
        ] {
            check_length(what, text, TEXT_MAX)?;
        }
        Ok(())
    }

    /// With the searched text in lower case.
    fn folded(mut self) -> Self {
        self.q = self.q.to_lowercase();
        self
    }

    /// For [`folded`](Self::folded) wishes.
    fn wants(&self, lock: &LockReport) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.q);
        let is_in_state = match self.state {
            None => true,
            Some(InState::Held) => lock.held,
            Some(InState::Waiting) => lock.waiting > 0,
        };
        is_in_state && (self.q.is_empty() || has(&lock.name) || has(&lock.who))
    }
}
