//! Supervises the health check of a leader: an unhealthy one resigns.
//!
//! The check is the caller's code, so it runs on the caller's runtime, or on a thread of its own. The
//! engine only asks for it and waits for the answer, so a check that hangs delays no renewal.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::hand_off::{self, HandOffOutcome};
use crate::belief::Belief;
use crate::client_handle::ClientHandle;
use crate::seeded::{Bug, bug};
use crate::standing::LostReason;

/// What a leader is checked with: true if it is healthy.
pub(crate) type HealthCheck =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// A request for one check.
type CheckRequest = oneshot::Sender<bool>;

/// How often a leader with leases of this ttl is checked, and how long a check may take.
pub(crate) fn interval(ttl: Duration) -> Duration {
    ttl / 3
}

/// Checks the leader until its lease is over, at once for the first time.
pub(crate) fn supervise(client: &Arc<ClientHandle>, belief: &Arc<Belief>, check: HealthCheck) {
    let (requests, requested) = mpsc::unbounded_channel();
    run_checks(check, requested, belief.no_longer_held().clone());
    // Not the client itself: only its handles and guards keep it alive.
    let (client, belief) = (Arc::downgrade(client), Arc::clone(belief));
    let Some(strong) = client.upgrade() else {
        return;
    };
    let core = Arc::clone(&strong.core);
    let checking = async move {
        let interval = interval(belief.held.ttl);
        while !belief.is_over() {
            let due_at = core.clock.now() + interval;
            let (request, answer) = oneshot::channel();
            let _ = requests.send(request);
            let is_healthy = tokio::select! {
                // It also fails if the check panicked, or its runtime is gone.
                answer = answer => answer.unwrap_or(false),
                () = core.clock.sleep_until(due_at) => false,
                () = belief.no_longer_held().cancelled() => return,
            };
            if !is_healthy && !bug(Bug::UnhealthyLeads) {
                if let Some(client) = client.upgrade() {
                    resign(&client, &belief);
                }
                return;
            }
            tokio::select! {
                () = core.clock.sleep_until(due_at) => {}
                () = belief.no_longer_held().cancelled() => return,
            }
        }
    };
    strong.engine.spawn(checking);
}

/// Ends the lease as its holder would, and tells the holder why.
fn resign(client: &Arc<ClientHandle>, belief: &Arc<Belief>) {
    tracing::warn!(lock = %belief.held.name, "election.unhealthy: the leader resigns");
    belief.mark_lost(LostReason::Unhealthy);
    if belief.end()
        && let HandOffOutcome::Release { dequeue } = hand_off::try_hand_off(client, belief)
    {
        client.release_in_background(belief, dequeue);
    }
}

/// Runs the check for each request, where the caller's own code may run.
fn run_checks(
    check: HealthCheck,
    mut requested: mpsc::UnboundedReceiver<CheckRequest>,
    over: CancellationToken,
) {
    let checking = async move {
        while let Some(request) = requested.recv().await {
            let checked = over.run_until_cancelled(check()).await;
            let _ = request.send(checked.unwrap_or(false));
        }
    };
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(checking);
        return;
    }
    let on_thread = move || {
        // If there is no runtime, the requests are dropped, and the leader counts as unhealthy.
        if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
            runtime.block_on(checking);
        }
    };
    let thread = thread::Builder::new().name("tenure-health".to_owned());
    drop(thread.spawn(on_thread));
}
