//! Responses when a lock is held or a lease is lost.

use std::time::Duration;

use axum::http::StatusCode;
use tenure_view::holders::LockReport;
use tenure_view::time;

use crate::problem::{Kind, Problem};
use crate::state::AppState;

/// How long it may take to find out who holds a lock.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// When to retry at the latest: the holder may release at any moment.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Like busy, with an unknown holder.
const NOT_HAD: Kind = Kind::new(
    StatusCode::LOCKED,
    "busy",
    "the lock was not acquired in time",
);

/// The problem that a lock with this name belongs to a sale.
pub(crate) fn reserved(name: &str) -> Problem {
    let detail = format!(
        "invalid name `{name}`: names with the prefix `sale:{{` are locks of sales: choose another"
    );
    Problem::new(Kind::INVALID, detail)
}

/// The problem that the lock is held, with its holder if the store responds.
pub(crate) async fn busy(app: &AppState, name: &str, waited: Duration) -> Problem {
    let waited = time::millis(waited);
    let Ok(holder) = look(app, name).await else {
        let detail = format!(
            "lock `{name}` was not acquired in time, and Redis does not report its holder: retry"
        );
        let refusal = Problem::new(NOT_HAD, detail).with("waited_ms", waited);
        return refusal.retry_after(Duration::ZERO);
    };
    held_by(app, holder, waited)
}

/// The problem that this holder has the lock, or that other waiters were first.
fn held_by(app: &AppState, holder: LockReport, waited: u64) -> Problem {
    let name = &holder.name;
    let left = Duration::from_millis(holder.left_ms.unwrap_or(1_000));
    let by = if holder.held {
        format!("it is held by {}", holder.who)
    } else {
        "other waiters were first".to_owned()
    };
    let refusal = Problem::new(Kind::BUSY, format!("lock `{name}` is not free: {by}"))
        .with("waited_ms", waited)
        .retry_after(left.min(RETRY_AFTER_MAX));
    let holder = holder.held.then(|| app.board.shown(holder));
    refusal.with("holder", holder)
}

/// The same for a wait that timed out: if Redis does not respond, it is unknown whether the lock is
/// held.
pub(crate) async fn timed_out(app: &AppState, name: &str, waited: Duration) -> Problem {
    match look(app, name).await {
        Ok(holder) => held_by(app, holder, time::millis(waited)),
        Err(silent) => silent.causing(&perhaps_taken(name)),
    }
}

/// The consequence for an acquire if Redis does not respond.
pub(crate) fn perhaps_taken(name: &str) -> String {
    format!(
        "Redis does not respond, so lock `{name}` may have been acquired for this request; then it \
         is released when Redis is back, or expires after its ttl"
    )
}

/// The problem that a lease has ended: the lock has another lease or none, or the store does not
/// respond.
pub(crate) async fn not_held(app: &AppState, name: &str) -> Problem {
    let now = look(app, name).await.ok();
    if let Some(now) = now.filter(|now| now.held) {
        let detail = format!(
            "lock `{name}` now has another lease, held by {}: nothing was changed",
            now.who
        );
        return Problem::new(Kind::LEASE_CHANGED, detail).with("holder", app.board.shown(now));
    }
    let detail =
        format!("the lease of lock `{name}` has ended: the work was not protected to its end");
    Problem::new(Kind::LEASE_GONE, detail)
}

/// The state of a lock, if the store responds soon. Client records are taken from the board: they
/// list thousands of leases, and refusals are frequent.
pub(crate) async fn look(app: &AppState, name: &str) -> Result<LockReport, Problem> {
    let lock = app.locks.lock(name);
    if let Ok(looked) = tokio::time::timeout(LOOK_WITHIN, lock.holder_brief()).await {
        let found = LockReport::of_holder(name, looked?.as_ref(), &[]);
        let found = app.board.completed(found);
        return Ok(app.desk.callers.named(&app.locks.id(), found));
    }
    let detail = format!("Redis did not report the holder of `{name}` within {LOOK_WITHIN:?}");
    Err(Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO))
}

/// The problem that the service is shutting down.
pub(crate) fn stopping() -> Problem {
    let detail = "the service is shutting down: use another instance, or retry in a moment";
    Problem::new(Kind::STOPPING, detail).retry_after(Duration::ZERO)
}
