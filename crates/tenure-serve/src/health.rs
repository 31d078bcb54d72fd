//! Whether the process is alive, and whether it can serve.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::AppState;
use crate::problem::{Kind, Problem};

/// How long the store may take to answer and still count as ready.
const READY_WITHIN: Duration = Duration::from_millis(500);
/// A lock that is only looked at.
const PROBE: &str = "ready-probe";

/// That it is so.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    #[schema(example = "ok")]
    status: &'static str,
}

const OK: Json<Health> = Json(Health { status: "ok" });

/// Whether the process is alive; asks nobody else.
#[utoipa::path(get, path = "/livez", tag = "operations",
    responses((status = 200, description = "It is", body = Health)))]
pub(crate) async fn alive() -> Json<Health> {
    OK
}

/// Whether locks can be served: the store answers within half a second.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, description = "They can", body = Health),
        (status = 503, description = "They cannot", body = Problem)))]
pub(crate) async fn ready(State(app): State<AppState>) -> Result<Json<Health>, Problem> {
    if app.stop.is_cancelled() {
        return Err(Problem::new(Kind::STOPPING, "this service is stopping"));
    }
    let probe = app.locks.lock(PROBE);
    match tokio::time::timeout(READY_WITHIN, probe.is_locked()).await {
        Ok(Ok(_)) => Ok(OK),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            let detail = "the store of the locks did not answer within 500 ms";
            Err(Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::from_secs(1)))
        }
    }
}
