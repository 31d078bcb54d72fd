//! `/locks/{name}/lease`: renewing and releasing a lease.

use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tenure::{ErrorKind, Fence, Lease, LeaseId, Released};
use tenure_view::time::{millis, moment};
use utoipa::{IntoParams, ToSchema};

use super::acquire::{self, Granted};
use super::leases::Term;
use super::metrics::Outcome;
use super::refusals;
use crate::app::AppState;
use crate::extract::{Body, Path, Query};
use crate::problem::{Kind, Problem};
use crate::responses;

/// Which lease, and for how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renewal {
    /// As it was told when the lock was taken. It may as well be said after the question mark.
    pub(crate) lease_id: Option<String>,
    /// How long it lasts from now on; if it is not said, as long as it was taken for.
    pub(crate) ttl_ms: Option<u64>,
}

/// Which lease.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfLease {
    /// As it was told when the lock was taken.
    lease_id: String,
}

/// Which lease, unless the body says it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PerhapsOfLease {
    /// As it was told when the lock was taken.
    lease_id: Option<String>,
}

/// Gives a lease its ttl again, counted from now.
#[utoipa::path(
    put, path = "/locks/{name}/lease", tag = "locks", request_body = Renewal,
    params(("name" = String, Path, description = "The lock"), PerhapsOfLease),
    responses(
        (status = 200, description = "It goes on", body = Granted),
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
        let detail = "which lease is not said: send `lease_id`, as it was told with the lock";
        Problem::new(Kind::INVALID, detail)
    })?;
    let ttl = renewal.ttl_ms.map(acquire::ttl).transpose()?;
    let (lease, term) = find(&app, &name, &lease_id).await?;
    let ttl = ttl.unwrap_or_else(|| lease.ttl());
    let asked = SystemTime::now();
    let meters = &app.desk.meters;
    match app.locks.renew(&lease, ttl).await {
        Ok(_) => {
            meters.renewed(&name, Outcome::Done);
            if let Some(Term { ttl, ends }) = term {
                meters.renewal_margin(&name, ends.saturating_duration_since(Instant::now()), ttl);
            }
            app.stats.renewed();
            app.desk.leases.renewed(lease.id(), ttl);
            Ok(Json(Granted {
                lease_id,
                fence: lease.fence().get(),
                ttl_ms: millis(ttl),
                // A little less than the store says, as everywhere: clocks differ.
                expires_at: moment(asked + ttl.saturating_sub(ttl / 100)),
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

/// Lets go of a lease.
#[utoipa::path(
    delete, path = "/locks/{name}/lease", tag = "locks",
    params(("name" = String, Path, description = "The lock"), OfLease),
    responses(
        (status = 204, description = "It was held until now"),
        (status = 409, description = "The lock has another lease", body = Problem),
        (status = 410, description = "The lease had ended before", body = Problem),
        (status = 503, description = "The store did not say", body = Problem),
        responses::Invalid,
    )
)]
pub(crate) async fn release(
    State(app): State<AppState>,
    Path(name): Path<String>,
    Query(of): Query<OfLease>,
) -> Result<StatusCode, Problem> {
    let lease = Lease::from_parts(&name, LeaseId::new(&of.lease_id), Fence::new(0))?;
    let_go(&app, &name, lease.id()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Releases a lease, and counts it.
pub(crate) async fn let_go(app: &AppState, name: &str, id: &LeaseId) -> Result<(), Problem> {
    let meters = &app.desk.meters;
    match app.locks.release(name, id).await {
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
                "the store did not say whether lock `{name}` was released: the release is repeated, \
                 and the lease ends by itself"
            );
            Err(Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO))
        }
        Err(error) => {
            meters.released(name, Outcome::Failed);
            Err(error.into())
        }
    }
}

/// The lease with this id, and its term as far as it is known. Of one that another instance gave,
/// they are looked up.
async fn find(app: &AppState, name: &str, id: &str) -> Result<(Lease, Option<Term>), Problem> {
    let id = LeaseId::new(id);
    let known = app.desk.leases.find(name, &id);
    let fence = known.map_or(Fence::new(0), |(fence, _)| fence);
    let lease = Lease::from_parts(name, id.clone(), fence)?;
    if let Some((_, term)) = known {
        let term = present(app, &lease, term);
        return Ok((lease, term));
    }
    let found = app.locks.lock(name).glance().await?;
    if let Some(holder) = found.filter(|holder| holder.lease == id) {
        let fence = holder.fence.unwrap_or(Fence::new(0));
        let lease = Lease::from_parts(name, id, fence)?;
        let (ttl, now) = (lease.ttl(), Instant::now());
        let ends = holder.remaining.map(|left| now + left);
        return Ok((lease, ends.map(|ends| Term { ttl, ends })));
    }
    app.desk.meters.renewed(name, Outcome::NotHeld);
    Err(gone(app, name, &id).await)
}

/// The term of a lease that was given here. Other instances may have renewed it since then: the board
/// has perhaps seen that, and if the lease should have ended nothing is known of it.
fn present(app: &AppState, lease: &Lease, term: Term) -> Option<Term> {
    let now = Instant::now();
    let seen = app
        .board
        .left_of(lease.name().as_str(), lease.id().as_str());
    let ends = seen.map_or(term.ends, |left| term.ends.max(now + left));
    (now < ends).then_some(Term { ends, ..term })
}

/// What is told of a lease that is no longer there, and counted if it was given here.
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
