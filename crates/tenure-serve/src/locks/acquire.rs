//! `POST /locks/{name}`: taking a lock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tenure::{ErrorKind, Guard, Lock, LockName, TTL_MAX, TTL_MIN};
use tenure_view::holders::OWNER;
use tenure_view::time::{millis, moment};
use utoipa::ToSchema;

use super::metrics::{Attempt, Ended};
use super::refusals;
use super::tickets::{Tickets, Waiting};
use crate::app::AppState;
use crate::extract::{Body, Path};
use crate::problem::{Kind, Problem};
use crate::responses;

/// What is wanted. Everything has a default.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wanted {
    /// How long the lease lasts unless it is renewed: 100 ms to 24 h.
    #[schema(example = 30_000)]
    pub(crate) ttl_ms: u64,
    /// How long to wait for it: not at all, unless it is said. A request waits for at most 30 s; then it
    /// is answered with a ticket. With a ticket: for as long as is left of what was asked for before.
    #[schema(example = 5_000)]
    pub(crate) wait_ms: Option<u64>,
    /// Who holds it, as it is shown to others.
    #[schema(example = "nightly-report")]
    pub(crate) owner: Option<String>,
    /// What else is shown to others: at most 16 entries and 4096 bytes.
    pub(crate) meta: BTreeMap<String, String>,
    /// The ticket of an earlier answer, to go on waiting at the same place. The lease is then the one
    /// that was asked for first.
    pub(crate) ticket: Option<String>,
    /// `exclusive`; others are not there yet.
    #[schema(example = "exclusive")]
    pub(crate) mode: String,
    /// 1; others are not there yet.
    pub(crate) slots: u64,
}

/// A lease. Show its fence to what the lock protects, which refuses a lower one than it has seen.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Granted {
    pub(crate) name: String,
    /// What renewing and releasing need: keep it to yourself.
    pub(crate) lease_id: String,
    pub(crate) fence: u64,
    pub(crate) ttl_ms: u64,
    /// Until when it may be believed.
    pub(crate) expires_at: String,
    /// How long it took to get it; not told of a renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            ttl_ms: 30_000,
            wait_ms: None,
            owner: None,
            meta: BTreeMap::new(),
            ticket: None,
            mode: "exclusive".to_owned(),
            slots: 1,
        }
    }
}

/// Takes a lock, waiting for it in the order of arrival.
///
/// The answer to a wait of more than 30 s is `423` with a `ticket`: whoever sends it again within 10 s
/// keeps its place. A request that breaks off leaves the queue at once. A lease whose answer could not
/// be delivered ends by its ttl.
#[utoipa::path(
    post, path = "/locks/{name}", tag = "locks", request_body = Wanted,
    params(("name" = String, Path, description = "The lock: 1 to 512 bytes, percent-encoded")),
    responses(
        (status = 201, description = "It is yours", body = Granted),
        (status = 409, description = "`not_a_lock`: the key is something else", body = Problem),
        (status = 410, description = "The place in the queue was given up", body = Problem),
        (status = 423, description = "Another holder has it", body = Problem),
        (status = 429, description = "Too many wait already", body = Problem),
        (status = 501, description = "There are only exclusive locks yet", body = Problem),
        responses::Invalid, responses::StoreAway,
    )
)]
pub(crate) async fn acquire(
    State(app): State<AppState>,
    Path(name): Path<String>,
    Body(wanted): Body<Wanted>,
) -> Result<(StatusCode, Json<Granted>), Problem> {
    let granted = take(&app, &name, wanted).await?;
    Ok((StatusCode::CREATED, Json(granted)))
}

/// The same for all who take locks.
pub(crate) async fn take(app: &AppState, name: &str, wanted: Wanted) -> Result<Granted, Problem> {
    check(&wanted)?;
    tokio::select! {
        biased;
        taken = pursue(app, name, wanted) => taken,
        () = app.stop.cancelled() => Err(refusals::stopping()),
    }
}

/// The length of a lease, as it was asked for.
pub(crate) fn ttl(ttl_ms: u64) -> Result<Duration, Problem> {
    let ttl = Duration::from_millis(ttl_ms);
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Ok(ttl);
    }
    let detail = format!("cannot use `{ttl_ms}` as ttl_ms: it must be from 100 ms to 24 h");
    Err(Problem::new(Kind::INVALID, detail))
}

fn check(wanted: &Wanted) -> Result<(), Problem> {
    ttl(wanted.ttl_ms)?;
    let (mode, slots) = (&wanted.mode, wanted.slots);
    if mode == "exclusive" && slots == 1 {
        return Ok(());
    }
    let detail = format!(
        "cannot take a lock with mode `{mode}` and {slots} slots: there are only exclusive locks with \
         one slot yet"
    );
    Err(Problem::new(Kind::NOT_IMPLEMENTED, detail))
}

/// What takes long is in boxes of its own: each request has a future, and most take a lock that is free.
async fn pursue(app: &AppState, name: &str, wanted: Wanted) -> Result<Granted, Problem> {
    let wait = wanted.wait_ms.map(Duration::from_millis);
    if let Some(ticket) = &wanted.ticket {
        let mut waiting = app.desk.tickets.claim(ticket, name)?;
        if let Some(wait) = wait {
            waiting.wait_for(wait);
        }
        return Box::pin(wait_in_turns(app, waiting)).await;
    }
    let wait = wait.unwrap_or_default();
    // What can be no lock is counted nowhere.
    LockName::new(name)?;
    let attempt = app.desk.meters.attempt(name);
    let owner = wanted.owner.clone();
    let lock = lock(app, name, wanted);
    if wait.is_zero() {
        return try_once(app, &lock, attempt).await;
    }
    let permit = app.limits.wait()?;
    let caller = owner.map(|owner| app.desk.callers.wait(name, &owner));
    if wait > app.settings.limits.max_wait {
        let waiting = Waiting::join(lock, wait, attempt, caller, permit);
        return Box::pin(wait_in_turns(app, waiting)).await;
    }
    // In this very future: whoever breaks off gives up the place with it.
    let begun = Instant::now();
    match tokio::time::timeout(wait, Box::pin(lock.acquire())).await {
        Ok(acquired) => hand_over(app, name, attempt, begun, acquired),
        Err(_) => refuse(app, name, attempt, Ended::TimedOut, begun.elapsed()).await,
    }
}

fn lock(app: &AppState, name: &str, wanted: Wanted) -> Lock {
    let lock = app.locks.lock(name);
    let lock = lock.ttl(Duration::from_millis(wanted.ttl_ms));
    let owner = wanted.owner.map(|owner| (OWNER.to_owned(), owner));
    let meta = wanted.meta.into_iter().chain(owner);
    meta.fold(lock, |lock, (field, value)| lock.meta(field, value))
}

async fn try_once(app: &AppState, lock: &Lock, attempt: Attempt) -> Result<Granted, Problem> {
    let begun = Instant::now();
    match lock.try_acquire().await.transpose() {
        Some(acquired) => hand_over(app, lock.name(), attempt, begun, acquired),
        None => refuse(app, lock.name(), attempt, Ended::Busy, begun.elapsed()).await,
    }
}

/// Waits for as long as one request may, and then keeps the place for the next request.
async fn wait_in_turns(app: &AppState, mut waiting: Waiting) -> Result<Granted, Problem> {
    let (wait, longest) = (waiting.left(), app.settings.limits.max_wait);
    match tokio::time::timeout(wait.min(longest), waiting.granted()).await {
        Ok(acquired) => {
            let broken = |_| Problem::new(Kind::INTERNAL, "the wait for the lock ended by a bug");
            let acquired = acquired.map_err(broken)?;
            let (attempt, since) = (waiting.attempt.take(), waiting.since);
            hand_over(app, &waiting.name, attempt, since, acquired)
        }
        Err(_) if wait <= longest => {
            let (attempt, since) = (waiting.attempt.take(), waiting.since);
            let name = waiting.name.clone();
            drop(waiting);
            refuse(app, &name, attempt, Ended::TimedOut, since.elapsed()).await
        }
        Err(_) => {
            let (name, since) = (waiting.name.clone(), waiting.since);
            // Before anything can go wrong: the place is kept whether or not the store answers.
            let ticket = Tickets::park(app, waiting);
            let refusal = refusals::busy(app, &name, since.elapsed()).await;
            Err(refusal.with("ticket", ticket).retry_after(Duration::ZERO))
        }
    }
}

/// Gives the lease away to whoever reads the answer.
fn hand_over(
    app: &AppState,
    name: &str,
    attempt: Attempt,
    begun: Instant,
    acquired: Result<Guard, tenure::Error>,
) -> Result<Granted, Problem> {
    let waited = begun.elapsed();
    let guard = match acquired {
        Ok(guard) => guard,
        Err(error) => {
            let is_ours = matches!(
                error.kind(),
                ErrorKind::InvalidName | ErrorKind::InvalidSetting
            );
            attempt.end(
                if is_ours {
                    Ended::Refused
                } else {
                    Ended::Failed
                },
                waited,
            );
            return Err(match error.kind() {
                ErrorKind::Unavailable => {
                    Problem::from(error).causing(&refusals::perhaps_taken(name))
                }
                _ => error.into(),
            });
        }
    };
    // In this order: it may be told to end too early, never too late.
    let now = SystemTime::now();
    let believed_for = guard.remaining();
    let lease = guard.detach().map_err(|error| {
        let detail = format!("{error}: it ended before it could be told; try again");
        Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO)
    })?;
    app.desk.leases.granted(&lease, &app.desk.meters);
    app.board.expect(name);
    app.stats.acquired(waited);
    attempt.end(Ended::Acquired, waited);
    Ok(Granted {
        name: lease.name().to_string(),
        lease_id: lease.id().to_string(),
        fence: lease.fence().get(),
        ttl_ms: millis(lease.ttl()),
        expires_at: moment(now + believed_for),
        waited_ms: Some(millis(waited)),
    })
}

async fn refuse(
    app: &AppState,
    name: &str,
    attempt: Attempt,
    ended: Ended,
    waited: Duration,
) -> Result<Granted, Problem> {
    app.stats.busy();
    attempt.end(ended, waited);
    Err(match ended {
        Ended::TimedOut => Box::pin(refusals::timed_out(app, name, waited)).await,
        _ => Box::pin(refusals::busy(app, name, waited)).await,
    })
}
