//! Conducts a run from start to end: the instances sell, and their sales are recorded.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::MissedTickBehavior;

use super::instance;
use super::run::{Listener, Run};
use super::stage::Stage;

/// The maximum duration of a run, whatever the plan.
const RUN_MAX: Duration = Duration::from_mins(5);
/// How long the instances may take to stop.
const END_WITHIN: Duration = Duration::from_secs(1);
/// How often the stock is polled, and how many polls make one update.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLLS_PER_UPDATE: u32 = 2;

/// Sells until every buyer was served or the run is stopped, then counts and cleans up.
pub(super) async fn conduct(run: &Arc<Run>, stage: &Stage, listener: &Listener) {
    tokio::select! {
        () = sell(run, stage) => {}
        () = look(run, stage, listener) => {}
    }
    match stage.left().await {
        Ok(left) => run.book().left = left,
        Err(error) => run.fail(format!("cannot read the remaining stock: {error:#}")),
    }
    let swept = stage.clear().await;
    if let Err(error) = swept {
        run.fail(format!("{error:#}"));
    }
    let mut book = run.book();
    book.note_point(&run.plan);
    book.close(run.stop.is_cancelled());
}

/// All instances sell until they are done.
async fn sell(run: &Arc<Run>, stage: &Stage) {
    let instances = 0..run.plan.instances;
    let instances = instances.map(|number| instance::start(run, stage.place(), number));
    let mut selling = pin!(join_all(instances));
    tokio::select! {
        _ = &mut selling => return,
        () = run.stop.cancelled() => {}
        () = tokio::time::sleep(RUN_MAX) => {
            run.book().detail.get_or_insert_with(|| "stopped after five minutes, the \
                                                     maximum".to_owned());
            run.stop.cancel();
        }
    }
    run.pauses.end();
    let _ = tokio::time::timeout(END_WITHIN, selling).await;
}

/// Records the curve and sends updates while the run is in progress.
async fn look(run: &Run, stage: &Stage, listener: &Listener) {
    let mut polls = tokio::time::interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u32.. {
        polls.tick().await;
        // Errors are ignored: the instances report a store that is unavailable.
        let left = stage.left().await.ok();
        let mut book = run.book();
        book.left = left.unwrap_or(book.left);
        book.note_point(&run.plan);
        drop(book);
        if number % POLLS_PER_UPDATE == 0 {
            run.send_update(listener);
        }
    }
}
