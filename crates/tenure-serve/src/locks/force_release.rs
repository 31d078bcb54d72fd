//! `DELETE /locks/{name}`: ending a lease that somebody else holds.

use std::time::Duration;

use axum::extract::State;
use axum::http::{Extensions, StatusCode};
use serde::Deserialize;
use tenure::{LeaseId, Released};
use tenure_view::changes::{Change, Event};
use tenure_view::holders::{LockReport, printable};
use utoipa::IntoParams;

use super::refusals;
use crate::app::AppState;
use crate::connections::Peer;
use crate::extract::{Path, Query};
use crate::problem::{Kind, Problem};
use crate::responses;

/// Which lease, and that it is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Forced {
    /// As `GET /locks/{name}` shows it, so that it cannot hit a later holder.
    lease_id: String,
    /// `true`: to be sure that this is meant.
    #[serde(default)]
    force: bool,
}

/// Ends a lease that somebody else holds: for administrators.
///
/// Its holder learns of it at once if it has held the lock for a second, otherwise at its next renewal.
#[utoipa::path(
    delete, path = "/locks/{name}", tag = "locks",
    params(("name" = String, Path, description = "The lock"), Forced),
    responses(
        (status = 204, description = "It has ended"),
        (status = 409, description = "The lock has another lease, or none, or is perhaps no lock", body = Problem),
        (status = 422, description = "It was not said that this is meant", body = Problem),
        (status = 503, description = "The store did not say", body = Problem),
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
        let detail =
            "refusing to end a lease that somebody else holds unless that is meant: add force=true";
        return Err(Problem::new(Kind::INVALID, detail));
    }
    let found = refusals::look(&app, &name).await?;
    if found.lease_id.as_deref() != Some(&forced.lease_id) {
        return Err(changed(&app, found));
    }
    if found.left_ms.is_none() {
        let detail = format!(
            "refusing to delete `{name}`: it has no end, so it is perhaps not a lock; if you know that \
             it is, type `redis-cli DEL`"
        );
        return Err(Problem::new(Kind::NOT_A_LOCK, detail));
    }
    let id = LeaseId::new(&forced.lease_id);
    match app.locks.force_release(&name, &id).await? {
        Released::WasHeld => {}
        Released::AlreadyGone => return Err(changed(&app, refusals::look(&app, &name).await?)),
        _ => {
            let detail =
                format!("the store did not say whether lock `{name}` was released: look again");
            return Err(Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO));
        }
    }
    let (shown, who) = (printable(&name), &found.who);
    let from = Peer::of(&extensions);
    let from = from.map_or_else(|| "an unknown address".to_owned(), |from| from.to_string());
    app.settings.log.line(format_args!(
        "tenure: ended the lease of `{shown}` that {who} held, as `{from}` asked"
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
        format!("lock `{name}` has another lease by now, held by {who}: nothing was touched")
    } else {
        format!("lock `{}` is not held: there is nothing to end", now.name)
    };
    Problem::new(Kind::LEASE_CHANGED, detail).with("now", app.board.shown(now))
}
