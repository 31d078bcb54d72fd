//! Polls all locks for the board and its watchers.

pub(crate) mod board;
pub(crate) mod history;
mod locks_text;

use std::time::{Duration, Instant};

use tenure::{ErrorKind, Listing};
use tenure_view::changes::look_again;
use tenure_view::holders::LockReport;

use crate::state::AppState;

/// Polling interval with and without watchers.
const WATCHED_PACE: Duration = Duration::from_millis(250);
const IDLE_PACE: Duration = Duration::from_secs(2);
/// The pause after a poll is at least this many times as long as the poll: with a large number of
/// locks, polling must not become the store's main load.
const PAUSE_FACTOR: u32 = 4;
/// How long a poll may take before the store counts as unavailable.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// Polls all locks until the service stops.
pub(crate) async fn run(app: AppState) {
    loop {
        let begun = Instant::now();
        let looked = tokio::select! {
            looked = tokio::time::timeout(LOOK_WITHIN, app.locks.list(|_| true)) => looked,
            () = app.stop.cancelled() => return,
        };
        match looked {
            Ok(Ok(listing)) => take_in(&app, &listing).await,
            Ok(Err(error)) if error.kind() == ErrorKind::Closed => return,
            Ok(Err(error)) => app.board.store_is_away(&error.to_string()),
            Err(_) => {
                let detail = format!("no response within {LOOK_WITHIN:?}");
                app.board.store_is_away(&detail);
            }
        }
        let least = begun.elapsed() * PAUSE_FACTOR;
        let is_watched = app.board.feed.readers() > 0;
        let pace = if is_watched { WATCHED_PACE } else { IDLE_PACE };
        tokio::select! {
            () = tokio::time::sleep(pace.max(least.min(LOOK_WITHIN))) => {}
            () = app.board.watched.notified(), if !is_watched => {}
            () = app.stop.cancelled() => return,
        }
    }
}

async fn take_in(app: &AppState, listing: &Listing) {
    let mut reports: Vec<_> = listing.locks.iter().map(LockReport::of_listed).collect();
    let missing = app.board.missing(&reports);
    let again = look_again(&app.locks, missing, &reports).await;
    reports.extend(again);
    let here = app.locks.id();
    let named = |lock| app.desk.callers.named(&here, lock);
    app.board.update(reports.into_iter().map(named).collect());
}
