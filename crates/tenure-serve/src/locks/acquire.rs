//! `POST /locks/{name}`: acquiring a lock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tenure::{ErrorKind, Guard, Lock, LockName, TTL_MAX, TTL_MIN, Unordered};
use tenure_view::holders::OWNER;
use tenure_view::time::{millis, moment};
use utoipa::ToSchema;

use super::metrics::{Attempt, Ended};
use super::refusals;
use super::tickets::Waiting;
use crate::extract::{Body, Path};
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// All fields are optional; unknown fields are refused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wanted {
    /// How long the lease lasts without renewal: 100 ms to 24 h.
    #[schema(example = 30_000)]
    pub(crate) ttl_ms: u64,
    /// How long to wait; default 0. One request waits at most 30 s and then returns a ticket. With
    /// a ticket, the default is the rest of the original time.
    #[schema(example = 5_000)]
    pub(crate) wait_ms: Option<u64>,
    /// `exclusive`, or `shared`: several clients hold it together, and none of them alone.
    #[schema(inline)]
    pub(crate) mode: InMode,
    /// Name of the holder, shown to others.
    #[schema(example = "nightly-report")]
    pub(crate) owner: Option<String>,
    /// Metadata shown to others: at most 16 entries and 4096 bytes.
    pub(crate) meta: BTreeMap<String, String>,
    /// The ticket of an earlier response, to keep waiting at the same place in the queue. The lease
    /// then has the ttl and metadata of the first request.
    pub(crate) ticket: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InMode {
    Exclusive,
    Shared,
}

/// A lease. Send its fence with every write, so that the receiver can reject an older one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Granted {
    pub(crate) name: String,
    /// Needed to renew and release: keep it secret.
    pub(crate) lease_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fence: Option<u64>,
    pub(crate) ttl_ms: u64,
    /// The deadline that the holder may rely on.
    pub(crate) expires_at: String,
    /// How long it took to acquire; left out for a renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            ttl_ms: 30_000,
            wait_ms: None,
            mode: InMode::Exclusive,
            owner: None,
            meta: BTreeMap::new(),
            ticket: None,
        }
    }
}

/// Acquires a lock, waiting in order of arrival.
/// After 30 s of waiting the response is `423` with a `ticket`: a request with this ticket within
/// 10 s keeps its place in the queue. A client that disconnects leaves the queue at once. A lease
/// whose response was not delivered expires after its ttl.
#[utoipa::path(
    post, path = "/api/v1/locks/{name}", tag = "locks", request_body = Wanted,
    params(("name" = String, Path, description = "Name of the lock: 1 to 512 bytes, \
             percent-encoded")),
    responses(
        (status = 201, description = "Acquired", body = Granted),
        (status = 409, description = "`not_a_lock`: the key holds something else", body = Problem),
        (status = 410, description = "The ticket has expired", body = Problem),
        (status = 423, description = "The lock is held", body = Problem),
        (status = 429, description = "Too many waiting requests", body = Problem),
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

/// Acquires a lock, for all kinds of requests.
pub(crate) async fn take(app: &AppState, name: &str, wanted: Wanted) -> Result<Granted, Problem> {
    ttl(wanted.ttl_ms)?;
    if tenure_sale::is_reserved_lock(name) {
        return Err(refusals::reserved(name));
    }
    if wanted.ticket.is_none() && wanted.wait_ms.unwrap_or(0) == 0 {
        // It does not wait, so a stop need not end it.
        return pursue(app, name, wanted).await;
    }
    tokio::select! {
        biased;
        taken = pursue(app, name, wanted) => taken,
        () = app.stop.cancelled() => Err(refusals::stopping()),
    }
}

/// Checks the requested length of a lease.
pub(crate) fn ttl(ttl_ms: u64) -> Result<Duration, Problem> {
    let ttl = Duration::from_millis(ttl_ms);
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Ok(ttl);
    }
    let detail = format!("invalid ttl_ms `{ttl_ms}`: expected 100 ms to 24 h");
    Err(Problem::new(Kind::INVALID, detail))
}

/// The slow paths are boxed: every request has this future, and most acquire a free lock.
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
    // An invalid name is not counted.
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
    // In this future: a client that disconnects leaves the queue with it.
    let begun = Instant::now();
    match tokio::time::timeout(wait, Box::pin(lock.acquire())).await {
        Ok(acquired) => hand_over(app, name, attempt, begun, acquired),
        Err(_) => refuse(app, name, attempt, Ended::TimedOut, begun.elapsed()).await,
    }
}

fn lock(app: &AppState, name: &str, wanted: Wanted) -> Lock<Unordered> {
    let lock = match wanted.mode {
        InMode::Exclusive => app.locks.lock(name),
        // Of an owner of its own: readers of one process share a lease, and this one is given away.
        InMode::Shared => app.locks.owner().lock(name).shared(),
    };
    let lock = lock.ttl(Duration::from_millis(wanted.ttl_ms));
    let owner = wanted.owner.map(|owner| (OWNER.to_owned(), owner));
    let meta = wanted.meta.into_iter().chain(owner);
    meta.fold(lock, |lock, (field, value)| lock.meta(field, value))
}

async fn try_once(
    app: &AppState,
    lock: &Lock<Unordered>,
    attempt: Attempt,
) -> Result<Granted, Problem> {
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
            let broken = |_| Problem::new(Kind::INTERNAL, "the wait for the lock failed");
            let acquired = acquired.map_err(broken)?;
            if let Ok(guard) = &acquired {
                // A lock that another process has just passed on is first held for two seconds at
                // most, and the client is told when its lease expires.
                let _ = guard.ensure(guard.ttl() / 2).await;
            }
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
            // Before anything can fail: the place is kept whether or not the store responds.
            let kept = app.settings.limits.keep_place;
            let ticket = app.desk.tickets.park(waiting, kept, app.stop.clone());
            let refusal = refusals::busy(app, &name, since.elapsed()).await;
            Err(refusal.with("ticket", ticket).retry_after(Duration::ZERO))
        }
    }
}

/// Returns the lease to the client.
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
    let deadline = guard.deadline();
    let lease = guard.detach().map_err(|error| {
        let detail = format!("{error}: the lease expired before the response; retry");
        Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO)
    })?;
    app.desk.leases.granted(&lease, &app.desk.meters);
    app.board.expect(name);
    app.stats.acquired(waited);
    attempt.end(Ended::Acquired, waited);
    Ok(Granted {
        name: lease.name().to_string(),
        lease_id: lease.id().to_string(),
        fence: Some(lease.fence().get()),
        ttl_ms: millis(lease.ttl()),
        expires_at: moment(deadline.to_system_time()),
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
