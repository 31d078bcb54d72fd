//! `DELETE /locks/{name}`: releasing a lock of another client.

use std::time::Duration;

use axum::extract::State;
use axum::http::{Extensions, StatusCode};
use serde::Deserialize;
use tenure::{LeaseId, Released};
use tenure_view::changes::{Change, Event};
use tenure_view::holders::{LockReport, printable};
use utoipa::IntoParams;

use super::refusals;
use crate::connections::Peer;
use crate::extract::{Path, Query};
use crate::problem::{Kind, Problem};
use crate::responses;
use crate::state::AppState;

/// The lease, and a confirmation.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Forced {
    /// As shown by `GET /locks/{name}`, so that a later holder is not released.
    lease_id: String,
    /// Must be `true`.
    #[serde(default)]
    force: bool,
}

/// Releases a lock that another client holds; for administrators.
/// The holder is notified at once if it has held the lock for a second, otherwise at its next
/// renewal.
#[utoipa::path(
    delete, path = "/api/v1/locks/{name}", tag = "locks",
    params(("name" = String, Path, description = "Name of the lock"), Forced),
    responses(
        (status = 204, description = "Released"),
        (status = 409, description = "The lock has another lease or none, or may not be a lock",
            body = Problem),
        (status = 422, description = "`force=true` is missing", body = Problem),
        (status = 503, description = "Unknown outcome: Redis did not respond", body = Problem),
        responses::NoAdmin,
    )
)]
pub(crate) async fn release(
    State(app): State<AppState>,
    extensions: Extensions,
    Path(name): Path<String>,
    Query(forced): Query<Forced>,
) -> Result<StatusCode, Problem> {
    app.settings.access.check_admin()?;
    if !forced.force {
        let detail = "refusing to release a lock of another client without force=true";
        return Err(Problem::new(Kind::INVALID, detail));
    }
    let found = refusals::look(&app, &name).await?;
    if found.lease_id.as_deref() != Some(&forced.lease_id) {
        return Err(changed(&app, found));
    }
    if found.left_ms.is_none() {
        let detail = format!(
            "refusing to delete `{name}`: it has no expiry, so it may not be a lock; if you are \
             sure, run `redis-cli DEL`"
        );
        return Err(Problem::new(Kind::NOT_A_LOCK, detail));
    }
    let id = LeaseId::new(&forced.lease_id);
    match app.locks.force_release(&name, &id).await? {
        Released::WasHeld => {}
        Released::AlreadyGone => return Err(changed(&app, refusals::look(&app, &name).await?)),
        _ => {
            let detail = format!(
                "unknown whether lock `{name}` was released: Redis did not respond; check again"
            );
            return Err(Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO));
        }
    }
    let (shown, who) = (printable(&name), &found.who);
    let from = Peer::of(&extensions);
    let from = from.map_or_else(|| "unknown address".to_owned(), |from| from.to_string());
    app.settings.log.line(format_args!(
        "tenure: force-released `{shown}` held by {who}, requested by `{from}`"
    ));
    note(&app, &id, &found);
    Ok(StatusCode::NO_CONTENT)
}

fn note(app: &AppState, id: &LeaseId, found: &LockReport) {
    let meters = &app.desk.meters;
    meters.forced();
    if let Some(held) = app.desk.leases.ended(&found.name, id, meters) {
        meters.lost(&found.name, "forced");
        app.stats.lost(Some(held));
    }
    app.board.note(Change::of(Event::Forced, found));
}

fn changed(app: &AppState, now: LockReport) -> Problem {
    let detail = if now.held {
        let (name, who) = (&now.name, &now.who);
        format!("lock `{name}` now has another lease, held by {who}: nothing was changed")
    } else {
        format!("lock `{}` is not held: nothing to release", now.name)
    };
    Problem::new(Kind::LEASE_CHANGED, detail).with("now", app.board.shown(now))
}
