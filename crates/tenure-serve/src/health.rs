//! Whether the process is alive, and whether it can serve.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::{Kind, Problem};
use crate::state::AppState;

/// How long the store may take to answer and still count as ready.
const READY_WITHIN: Duration = Duration::from_millis(500);
/// A lock of each instance's own, with its client id.
const PROBE: &str = "ready-probe";
/// How long it is locked if the instance dies just then.
const PROBE_TTL: Duration = Duration::from_millis(500);

/// The response of a passed check.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or `degraded` if background tasks fail: locks are served, but what they do is not done.
    #[schema(example = "ok")]
    status: &'static str,
    /// The background tasks that fail and are started again. Left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failing: Vec<&'static str>,
}

impl Health {
    /// A service whose background tasks with these names fail.
    fn with(failing: Vec<&'static str>) -> Json<Self> {
        let is_ok = failing.is_empty();
        let status = if is_ok { "ok" } else { "degraded" };
        Json(Self { status, failing })
    }
}

/// Liveness: whether the process runs.
#[utoipa::path(get, path = "/livez", tag = "operations",
    responses((status = 200, description = "Alive", body = Health)))]
pub(crate) async fn alive() -> Json<Health> {
    Health::with(Vec::new())
}

/// Readiness: whether a lock can be acquired within half a second. A server without memory still
/// answers those who only look. Names background tasks that fail.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, description = "Ready", body = Health),
        (status = 503, description = "Not ready", body = Problem)))]
pub(crate) async fn ready(State(app): State<AppState>) -> Result<Json<Health>, Problem> {
    if app.stop.is_cancelled() {
        return Err(Problem::new(Kind::STOPPING, "the service is shutting down"));
    }
    let probe = app.locks.lock(format!("{PROBE}:{}", app.locks.id()));
    let probe = probe.ttl(PROBE_TTL);
    match tokio::time::timeout(READY_WITHIN, probe.try_acquire()).await {
        // Dropping the guard releases it. Another probe of this instance may have it.
        Ok(Ok(_)) => Ok(Health::with(app.background.failing())),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            let detail = "Redis did not respond within 500 ms";
            Err(Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::from_secs(1)))
        }
    }
}
