//! Heartbeats of waiting callers, so that they keep their places in the store's queues.
//!
//! A release offers the lock to the first live waiter. Off the acquire path: one small command per
//! queued name every two seconds, in one batch per server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::core::Core;
use crate::seeded::{Bug, bug};
use crate::store::QueuedWaiter;

/// A third of the time after which a waiter counts as dead: one lost or late heartbeat does no
/// harm.
const INTERVAL: Duration = Duration::from_secs(2);
/// How soon to retry if the server did not reply.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Runs as long as the engine.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        core.queues.wait_until_queued().await;
        let mut pause = INTERVAL;
        // So that clients which started together do not stay in step.
        pause = pause.mul_f64(0.8 + 0.2 * rand::random::<f64>());
        loop {
            core.clock.sleep_until(core.clock.now() + pause).await;
            let waiters = core.queues.queued_waiters();
            if waiters.is_empty() || core.is_closed() {
                break;
            }
            let answered = bug(Bug::WaitersSilent) || heartbeat(&core, waiters).await;
            pause = if answered { INTERVAL } else { RETRY_AFTER };
        }
    }
}

/// Sends one heartbeat for all of these. False if a server did not reply.
async fn heartbeat(core: &Arc<Core>, waiters: Vec<QueuedWaiter>) -> bool {
    let mut by_server: HashMap<u64, Vec<QueuedWaiter>> = HashMap::new();
    for waiter in waiters {
        let server = core.store.node_of(&waiter.name);
        by_server.entry(server).or_default().push(waiter);
    }
    let limit = core.clock.now() + core.settings.response_timeout;
    let mut asked = JoinSet::new();
    for waiters in by_server.into_values() {
        let core = Arc::clone(core);
        asked.spawn(async move {
            let answers = core.store.heartbeat(&waiters, limit).await;
            let Ok(answers) = answers else { return false };
            for (waiter, answer) in waiters.into_iter().zip(answers) {
                if answer == Some(false) {
                    core.queues.lost_store_place(waiter);
                }
            }
            true
        });
    }
    let mut answered = true;
    while let Some(one) = asked.join_next().await {
        answered &= one.unwrap_or(false);
    }
    answered
}
