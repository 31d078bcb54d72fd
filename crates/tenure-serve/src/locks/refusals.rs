//! What is told to those who do not get what they want: who has it.

use std::time::Duration;

use axum::http::StatusCode;
use tenure_view::holders::LockReport;
use tenure_view::time;

use crate::app::AppState;
use crate::problem::{Kind, Problem};

/// How long it may take to find out who holds a lock.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// When to come back at the latest: the holder may release at any moment.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// As busy, when nobody knows by whom.
const NOT_HAD: Kind = Kind::new(
    StatusCode::LOCKED,
    "busy",
    "the lock was not to be had in time",
);

/// That another holder has the lock, and who that is, if the store says so.
pub(crate) async fn busy(app: &AppState, name: &str, waited: Duration) -> Problem {
    let waited = time::millis(waited);
    let Ok(holder) = look(app, name).await else {
        let detail = format!(
            "lock `{name}` was not to be had in time, and the store does not say who holds it: try \
             again"
        );
        let refusal = Problem::new(NOT_HAD, detail).with("waited_ms", waited);
        return refusal.retry_after(Duration::ZERO);
    };
    held_by(app, holder, waited)
}

/// That this holder has the lock, or others were first.
fn held_by(app: &AppState, holder: LockReport, waited: u64) -> Problem {
    let name = &holder.name;
    let left = Duration::from_millis(holder.left_ms.unwrap_or(1_000));
    let by = if holder.held {
        format!("it is held by {}", holder.who)
    } else {
        "others were first".to_owned()
    };
    let refusal = Problem::new(Kind::BUSY, format!("lock `{name}` is not free: {by}"))
        .with("waited_ms", waited)
        .retry_after(left.min(RETRY_AFTER_MAX));
    let holder = holder.held.then(|| app.board.shown(holder));
    refusal.with("holder", holder)
}

/// The same for a wait that ran out: if the store is silent, nobody knows whether the lock is held.
pub(crate) async fn timed_out(app: &AppState, name: &str, waited: Duration) -> Problem {
    match look(app, name).await {
        Ok(holder) => held_by(app, holder, time::millis(waited)),
        Err(silent) => silent.causing(&perhaps_taken(name)),
    }
}

/// What comes of a store that does not answer whoever wants to take a lock.
pub(crate) fn perhaps_taken(name: &str) -> String {
    format!(
        "the store does not answer, so lock `{name}` may have been taken for this request; then it is \
         given back once the store answers, or ends by its ttl"
    )
}

/// That a lease is no longer there: another is, or none, or the store does not say which.
pub(crate) async fn not_held(app: &AppState, name: &str) -> Problem {
    let now = look(app, name).await.ok();
    if let Some(now) = now.filter(|now| now.held) {
        let detail = format!(
            "lock `{name}` has another lease by now, held by {}: nothing was touched",
            now.who
        );
        return Problem::new(Kind::LEASE_CHANGED, detail).with("holder", app.board.shown(now));
    }
    let detail =
        format!("the lease of lock `{name}` has ended: the work was not protected to its end");
    Problem::new(Kind::LEASE_GONE, detail)
}

/// How a lock is, if the store answers soon. What clients say of it is taken from the board: their
/// records list thousands of leases, and refusals are many.
pub(crate) async fn look(app: &AppState, name: &str) -> Result<LockReport, Problem> {
    let lock = app.locks.lock(name);
    if let Ok(looked) = tokio::time::timeout(LOOK_WITHIN, lock.glance()).await {
        let found = LockReport::of_holder(name, looked?.as_ref(), &[]);
        let found = app.board.completed(found);
        return Ok(app.desk.callers.named(&app.locks.id(), found));
    }
    let detail = format!("the store did not say within {LOOK_WITHIN:?} who holds `{name}`");
    Err(Problem::new(Kind::UNAVAILABLE, detail).retry_after(Duration::ZERO))
}

/// That the service stops.
pub(crate) fn stopping() -> Problem {
    let detail = "this service is stopping: ask another instance, or again in a moment";
    Problem::new(Kind::STOPPING, detail).retry_after(Duration::ZERO)
}
