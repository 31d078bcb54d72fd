//! Finds leases that have expired.

use std::time::{Duration, Instant};

use crate::state::AppState;

/// How often to look for expired leases.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Leases shorter than this may have ended before the board could see them.
const SEEN_AFTER: Duration = Duration::from_secs(2);

/// Finds expired leases until the service stops.
pub(crate) async fn run(app: AppState) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => sweep(&app),
            () = app.stop.cancelled() => return,
        }
    }
}

/// Counts expired leases as lost. One that another instance renewed is kept, and one that another
/// instance released was not lost: the board knows which.
fn sweep(app: &AppState) {
    let (leases, meters) = (&app.desk.leases, &app.desk.meters);
    for (id, given) in leases.due(Instant::now()) {
        let left = app.board.left_of(&given.name, id.as_str());
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            leases.goes_on(&id, left);
            continue;
        }
        let is_lost = left.is_some() || given.ends - given.since < SEEN_AFTER;
        let held = leases.ended(&given.name, &id, meters);
        if is_lost {
            meters.lost(&given.name, "expired");
            app.stats.lost(held);
        }
    }
}
