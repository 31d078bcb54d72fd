//! Takes over what consumers that died have read: by whether they are alive, and not by how long ago
//! they read it. A consumer that waits for a slow ledger keeps its entries, and one that was killed
//! loses them within seconds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::settle::settle;
use crate::core::Core;
use crate::error::Result;
use crate::failpoint::bug;
use crate::relay;

/// So often within the time after which it counts as dead does a consumer say that it is alive.
const BEATS: u32 = 5;
/// Entries in one step.
const BATCH: usize = 500;

/// Says again and again that a consumer is alive, until it has stopped.
pub(super) async fn beat(core: Arc<Core>, name: String, dead_after: Duration) {
    if core.gate.is_memory() {
        return;
    }
    loop {
        if let Err(error) = core.gate.beat(&name, dead_after).await {
            debug!(%error, "a consumer could not tell that it is alive");
        }
        sleep(dead_after / BEATS).await;
    }
}

/// Settles entries of consumers that died.
pub(super) async fn look(
    core: &Arc<Core>,
    item: &str,
    name: &str,
    dead_after: Duration,
    deliveries_max: u64,
    stop: &CancellationToken,
) -> Result<()> {
    if bug("dead-consumers-unseen") {
        return Ok(());
    }
    let begun = Instant::now();
    while !stop.is_cancelled() {
        let claiming = core.gate.claim_from_dead(item, name, dead_after, BATCH);
        let entries = claiming.await?;
        if entries.is_empty() {
            return Ok(());
        }
        core.counters.claimed.add(entries.len());
        let settled = settle(core, item, &entries, deliveries_max).await?;
        if settled.released {
            relay::relay_if_possible(core, item).await;
        }
        debug!(item, entries = entries.len(), took = ?begun.elapsed(), "took over from a dead consumer");
    }
    Ok(())
}
