//! `/terraform/{name}`: what Terraform's `http` backend asks of whoever keeps its lock.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tenure::{LeaseId, TTL_MAX};
use tenure_view::holders::{LockReport, OWNER};
use tenure_view::time::millis;

use super::acquire::{self, Wanted};
use super::{lease, refusals};
use crate::app::AppState;
use crate::extract::{Path, Raw};
use crate::problem::{Kind, Problem};
use crate::responses;

/// Where in a lease's metadata Terraform's own words are, and its id among them.
const INFO: &str = "terraform";
const ID: &str = "terraform_id";

/// Takes the lock of a Terraform state: also by the method `LOCK`.
///
/// The body is Terraform's lock info, and so is the answer if another holder has it. Asked again with
/// the same `ID` it is yours still, as the answer may have been lost. Terraform renews nothing, so the
/// lease lasts for 24 h unless Terraform lets go of it.
#[utoipa::path(
    post, path = "/terraform/{name}", tag = "terraform", request_body = Object,
    params(("name" = String, Path, description = "The lock")),
    responses(
        (status = 200, description = "It is yours"),
        (status = 409, description = "`not_a_lock`: the key is something else", body = Problem),
        (status = 423, description = "The lock info of its holder", body = Object),
        (status = 422, description = "The body is no lock info", body = Problem),
        responses::StoreAway,
    )
)]
pub(crate) async fn lock(
    State(app): State<AppState>,
    Path(name): Path<String>,
    Raw(body): Raw,
) -> Result<Response, Problem> {
    let info = read(&body)?;
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
            // With its `ID`, though that is the key to the lock: Terraform shows it to people, who
            // need it for `terraform force-unlock`. Nothing else tells it to those who do not
            // administrate.
            Ok((StatusCode::LOCKED, Json(told(&holder))).into_response())
        }
        Err(problem) => Err(problem),
    }
}

/// Lets go of the lock of a Terraform state: also by the method `UNLOCK`.
///
/// The body is the lock info that it was taken with; asked again, it is free still. `terraform
/// force-unlock` sends none: that is for administrators.
#[utoipa::path(
    delete, path = "/terraform/{name}", tag = "terraform", request_body = Object,
    params(("name" = String, Path, description = "The lock")),
    responses(
        (status = 200, description = "It is free"),
        (status = 409, description = "The lock info of another holder", body = Object),
        (status = 410, description = "There was no lease to end", body = Problem),
        (status = 422, description = "The body is no lock info", body = Problem),
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
        Some(read(&body)?["ID"].as_str().unwrap_or_default().to_owned())
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
        return Ok((StatusCode::CONFLICT, Json(told(&holder))).into_response());
    }
    match lease::let_go(&app, &name, &LeaseId::new(lease_id)).await {
        Ok(()) => Ok(StatusCode::OK.into_response()),
        Err(problem) => freed(id.is_some(), problem),
    }
}

/// Whoever names its lease and finds the lock free has perhaps let go of it before, and not been told.
fn freed(is_named: bool, problem: Problem) -> Result<Response, Problem> {
    if is_named && problem.status() == Kind::LEASE_GONE.status() {
        return Ok(StatusCode::OK.into_response());
    }
    Err(problem)
}

/// Takes away what others could unlock a Terraform state with.
pub(crate) fn hide_id(meta: &mut BTreeMap<String, String>) {
    if meta.remove(ID).is_none() {
        return;
    }
    let Some(info) = meta.remove(INFO) else {
        return;
    };
    if let Ok(Value::Object(mut info)) = serde_json::from_str(&info) {
        info.remove("ID");
        meta.insert(INFO.to_owned(), Value::Object(info).to_string());
    }
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
            let detail = "this path has no such method: see /openapi.json";
            Err(Problem::new(Kind::METHOD_NOT_ALLOWED, detail))
        }
    }
}

fn read(body: &[u8]) -> Result<Value, Problem> {
    let refuse = |cause: &str| {
        let detail = format!("the body is not Terraform's lock info: {cause}");
        Problem::new(Kind::INVALID, detail)
    };
    let info: Value = serde_json::from_slice(body).map_err(|error| refuse(&error.to_string()))?;
    match info["ID"].as_str() {
        Some(id) if !id.is_empty() => Ok(info),
        _ => Err(refuse("it has no `ID`")),
    }
}

/// The holder in Terraform's words; of a holder that is not Terraform, as far as they go.
fn told(holder: &LockReport) -> Value {
    let own = holder.meta.get(INFO);
    let own = own.and_then(|info| serde_json::from_str(info).ok());
    own.unwrap_or_else(|| {
        serde_json::json!({
            "ID": "", "Operation": "", "Info": "held by something else than Terraform",
            "Who": holder.who, "Version": "", "Created": holder.since, "Path": holder.name,
        })
    })
}
