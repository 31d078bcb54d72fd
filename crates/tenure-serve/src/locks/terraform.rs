//! `/terraform/{name}`: state locking for Terraform's `http` backend.

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use tenure::{Fence, Lease, LeaseId, TTL_MAX};
use tenure_view::holders::OWNER;
use tenure_view::time::millis;

use super::acquire::{self, Wanted};
use super::terraform_info::{self, ID, INFO};
use super::{lease, refusals};
use crate::extract::{Path, Raw};
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// Locks a Terraform state; also with the method `LOCK`.
/// The body is Terraform's lock info; if the state is locked, so is the response. A retry with the
/// same `ID` succeeds. Terraform does not renew, so the lease lasts 24 h unless it is released.
#[utoipa::path(
    post, path = "/api/v1/terraform/{name}", tag = "terraform", request_body = Object,
    params(("name" = String, Path, description = "Name of the lock")),
    responses(
        (status = 200, description = "Acquired"),
        (status = 409, description = "`not_a_lock`: the key holds something else", body = Problem),
        (status = 423, description = "Lock info of the holder", body = Object),
        (status = 422, description = "The body is not lock info", body = Problem),
        responses::StoreAway,
    )
)]
pub(crate) async fn lock(
    State(app): State<AppState>,
    Path(name): Path<String>,
    Raw(body): Raw,
) -> Result<Response, Problem> {
    let info = terraform_info::of_request(&body)?;
    let said = |field: &str| info[field].as_str().unwrap_or_default().to_owned();
    let wanted = Wanted {
        ttl_ms: millis(TTL_MAX),
        meta: [
            (OWNER.to_owned(), format!("{} (terraform)", said("Who"))),
            (ID.to_owned(), said("ID")),
            (INFO.to_owned(), info.to_string()),
        ]
        .into(),
        ..Wanted::default()
    };
    match acquire::take(&app, &name, wanted).await {
        Ok(_) => Ok(StatusCode::OK.into_response()),
        Err(problem) if problem.status() == Kind::BUSY.status() => {
            let holder = refusals::look(&app, &name).await?;
            if holder.meta.get(ID).is_some_and(|held| info["ID"] == **held) {
                return Ok(StatusCode::OK.into_response());
            }
            // With its `ID`, although that unlocks the state: Terraform shows it to users, who need
            // it for `terraform force-unlock`. No other response shows it to clients without
            // administration.
            Ok((StatusCode::LOCKED, Json(terraform_info::of_holder(&holder))).into_response())
        }
        Err(problem) => Err(problem),
    }
}

/// Unlocks a Terraform state; also with the method `UNLOCK`.
/// The body is the lock info of the lock request; a retry succeeds. `terraform force-unlock` sends
/// no body and needs administration.
#[utoipa::path(
    delete, path = "/api/v1/terraform/{name}", tag = "terraform", request_body = Object,
    params(("name" = String, Path, description = "Name of the lock")),
    responses(
        (status = 200, description = "Unlocked"),
        (status = 409, description = "Lock info of another holder", body = Object),
        (status = 410, description = "The state was not locked", body = Problem),
        (status = 422, description = "The body is not lock info", body = Problem),
        responses::NoAdmin, responses::StoreAway,
    )
)]
pub(crate) async fn unlock(
    State(app): State<AppState>,
    Path(name): Path<String>,
    Raw(body): Raw,
) -> Result<Response, Problem> {
    let id = if body.is_empty() {
        app.settings.access.check_admin()?;
        None
    } else {
        let info = terraform_info::of_request(&body)?;
        Some(info["ID"].as_str().unwrap_or_default().to_owned())
    };
    let holder = refusals::look(&app, &name).await?;
    let Some(lease_id) = &holder.lease_id else {
        return freed(id.is_some(), refusals::not_held(&app, &name).await);
    };
    if holder
        .meta
        .get(ID)
        .is_none_or(|held| id.as_ref().is_some_and(|id| id != held))
    {
        let holder = app.board.shown(holder);
        return Ok((
            StatusCode::CONFLICT,
            Json(terraform_info::of_holder(&holder)),
        )
            .into_response());
    }
    let lease = Lease::from_parts(&name, LeaseId::new(lease_id), Fence::new(0))?;
    match lease::release_and_count(&app, &lease).await {
        Ok(()) => Ok(StatusCode::OK.into_response()),
        Err(problem) => freed(id.is_some(), problem),
    }
}

/// A retried unlock finds the lock free: its first response may have been lost.
fn freed(is_named: bool, problem: Problem) -> Result<Response, Problem> {
    if is_named && problem.status() == Kind::LEASE_GONE.status() {
        return Ok(StatusCode::OK.into_response());
    }
    Err(problem)
}

/// Sorts requests by methods that only Terraform and `WebDAV` have.
pub(crate) async fn by_name(
    app: State<AppState>,
    method: Method,
    path: Path<String>,
    body: Raw,
) -> Result<Response, Problem> {
    match method.as_str() {
        "LOCK" => lock(app, path, body).await,
        "UNLOCK" => unlock(app, path, body).await,
        _ => {
            let detail = "method not allowed: see /openapi.json";
            Err(Problem::new(Kind::METHOD_NOT_ALLOWED, detail))
        }
    }
}
