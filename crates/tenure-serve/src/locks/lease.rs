//! `/locks/{name}/lease`: renewing and releasing a lease.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tenure::{ErrorKind, Fence, Holder, Lease, LeaseId, Released};
use tenure_view::time::{millis, moment};
use utoipa::{IntoParams, ToSchema};

use super::acquire::{self, Granted};
use super::leases::Term;
use super::metrics::Outcome;
use super::refusals;
use crate::extract::{Body, Path, Query};
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// A renewal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renewal {
    /// From the acquire response; may be a query parameter instead.
    pub(crate) lease_id: Option<String>,
    /// How long it lasts from now; default: its original ttl.
    pub(crate) ttl_ms: Option<u64>,
}

/// The lease.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfLease {
    /// From the acquire response.
    lease_id: String,
}

/// The lease, if the body does not have it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PerhapsOfLease {
    /// From the acquire response.
    lease_id: Option<String>,
}

/// Renews a lease: its ttl counts from now.
#[utoipa::path(
    put, path = "/api/v1/locks/{name}/lease", tag = "locks", request_body = Renewal,
    params(("name" = String, Path, description = "Name of the lock"), PerhapsOfLease),
    responses(
        (status = 200, description = "Renewed", body = Granted),
        (status = 409, description = "The lock has another lease", body = Problem),
        (status = 410, description = "The lease has ended", body = Problem),
        responses::Invalid, responses::StoreAway,
    )
)]
pub(crate) async fn renew(
    State(app): State<AppState>,
    Path(name): Path<String>,
    Query(of): Query<PerhapsOfLease>,
    Body(renewal): Body<Renewal>,
) -> Result<Json<Granted>, Problem> {
    let lease_id = renewal.lease_id.or(of.lease_id).ok_or_else(|| {
        let detail = "`lease_id` is missing: send the one from the acquire response";
        Problem::new(Kind::INVALID, detail)
    })?;
    let ttl = renewal.ttl_ms.map(acquire::ttl).transpose()?;
    let (lease, term) = find(&app, &name, &lease_id).await?;
    let ttl = ttl.unwrap_or_else(|| lease.ttl());
    let meters = &app.desk.meters;
    match app.locks.renew(&lease, ttl).await {
        Ok(deadline) => {
            meters.renewed(&name, Outcome::Done);
            if let Some(Term { ttl, ends }) = term {
                meters.renewal_margin(&name, ends.saturating_duration_since(Instant::now()), ttl);
            }
            app.stats.renewed();
            app.desk.leases.renewed(lease.id(), ttl);
            Ok(Json(Granted {
                lease_id,
                // Not known for the first half second of a lease that another instance granted.
                fence: Some(lease.fence().get()).filter(|fence| *fence > 0),
                ttl_ms: millis(ttl),
                expires_at: moment(deadline.to_system_time()),
                waited_ms: None,
                name,
            }))
        }
        Err(error) if error.kind() == ErrorKind::Lost => {
            meters.renewed(&name, Outcome::NotHeld);
            Err(gone(&app, &name, lease.id()).await)
        }
        Err(error) => {
            if error.kind() != ErrorKind::InvalidSetting {
                meters.renewed(&name, Outcome::Failed);
            }
            Err(error.into())
        }
    }
}

/// Releases a lease.
#[utoipa::path(
    delete, path = "/api/v1/locks/{name}/lease", tag = "locks",
    params(("name" = String, Path, description = "Name of the lock"), OfLease),
    responses(
        (status = 204, description = "Released; it was held until now"),
        (status = 409, description = "The lock has another lease", body = Problem),
        (status = 410, description = "The lease had ended already", body = Problem),
        (status = 503, description = "Unknown outcome: Redis did not respond", body = Problem),
        responses::Invalid,
    )
)]
pub(crate) async fn release(
    State(app): State<AppState>,
    Path(name): Path<String>,
    Query(of): Query<OfLease>,
) -> Result<StatusCode, Problem> {
    let lease = Lease::from_parts(&name, LeaseId::new(&of.lease_id), Fence::new(0))?;
    release_and_count(&app, &lease).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Releases a lease, and counts it.
pub(crate) async fn release_and_count(app: &AppState, lease: &Lease) -> Result<(), Problem> {
    let meters = &app.desk.meters;
    let (name, id) = (lease.name().as_str(), lease.id());
    match app.locks.release(lease).await {
        Ok(Released::WasHeld) => {
            meters.released(name, Outcome::Done);
            app.stats.released(app.desk.leases.ended(name, id, meters));
            Ok(())
        }
        Ok(Released::AlreadyGone) => {
            meters.released(name, Outcome::NotHeld);
            Err(Box::pin(gone(app, name, id)).await)
        }
        Ok(_) => {
            meters.released(name, Outcome::Failed);
            let detail = format!(
                "unknown whether lock `{name}` was released: Redis did not respond; the release is \
                 retried, and the lease expires by itself"
            );
            Err(Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO))
        }
        Err(error) => {
            meters.released(name, Outcome::Failed);
            Err(error.into())
        }
    }
}

/// The lease with this id, and its term as far as it is known. A lease that another instance
/// granted is looked up.
async fn find(app: &AppState, name: &str, id: &str) -> Result<(Lease, Option<Term>), Problem> {
    let id = LeaseId::new(id);
    let known = app.desk.leases.find(name, &id);
    let fence = known.map_or(Fence::new(0), |(fence, _)| fence);
    let lease = Lease::from_parts(name, id.clone(), fence)?;
    if let Some((_, term)) = known {
        let term = present(app, &lease, term);
        return Ok((lease, term));
    }
    // With the record of its client, which tells the fence.
    let found = app.locks.lock(name).holder().await?;
    let has_it = |holder: &Holder| holder.lease == id || holder.reader_leases.contains(&id);
    if let Some(holder) = found.filter(has_it) {
        let fence = holder.fence.unwrap_or(Fence::new(0));
        let lease = Lease::from_parts(name, id, fence)?;
        let (ttl, now) = (lease.ttl(), Instant::now());
        let ends = holder.remaining.map(|left| now + left);
        return Ok((lease, ends.map(|ends| Term { ttl, ends })));
    }
    app.desk.meters.renewed(name, Outcome::NotHeld);
    Err(gone(app, name, &id).await)
}

/// The term of a lease that was granted here. Another instance may have renewed it since: the board
/// may have seen that, and if the lease should have ended, its term is unknown.
fn present(app: &AppState, lease: &Lease, term: Term) -> Option<Term> {
    let now = Instant::now();
    let seen = app
        .board
        .left_of(lease.name().as_str(), lease.id().as_str());
    let ends = seen.map_or(term.ends, |left| term.ends.max(now + left));
    (now < ends).then_some(Term { ends, ..term })
}

/// The problem for a lost lease, which is counted if it was granted here.
async fn gone(app: &AppState, name: &str, id: &LeaseId) -> Problem {
    let problem = refusals::not_held(app, name).await;
    if let Some(held) = app.desk.leases.ended(name, id, &app.desk.meters) {
        let taken = problem.status() == Kind::LEASE_CHANGED.status();
        let reason = if taken { "taken" } else { "expired" };
        app.desk.meters.lost(name, reason);
        app.stats.lost(Some(held));
    }
    problem
}
