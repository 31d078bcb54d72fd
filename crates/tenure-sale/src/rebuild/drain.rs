//! Draining a queue: committing everything that was accepted to the ledger.

use std::time::Duration;

use tenure::Guard;
use tokio::time::{Instant, sleep};

use super::{stale, still_ours};
use crate::consumer::settle;
use crate::core::Core;
use crate::error::Result;

const BATCH: usize = 500;
/// A queue at its limit of 100 000 takes a few seconds.
const DRAIN_MAX: Duration = Duration::from_mins(2);
/// Between checks of a queue that other consumers are emptying.
const PAUSE: Duration = Duration::from_millis(5);

/// Empties the queue of a gate that accepts nothing. Entries that consumers hold are claimed from
/// them: both commit them, and the ledger accepts them once.
pub(super) async fn drain(core: &Core, item: &str, guard: &Guard) -> Result<()> {
    let consumer = format!("{}-rebuild", core.name);
    let end = Instant::now() + DRAIN_MAX;
    while Instant::now() < end {
        still_ours(item, guard)?;
        let mut entries = core
            .gate
            .claim(item, &consumer, Duration::ZERO, BATCH)
            .await?;
        if entries.is_empty() {
            let reading = core.gate.read(item, &consumer, BATCH, Duration::ZERO);
            entries = reading.await?;
        }
        if !entries.is_empty() {
            settle(core, item, &entries, settle::DELIVERIES_MAX).await?;
            continue;
        }
        let standing = core.gate.standing(item).await?;
        if standing.is_none_or(|standing| standing.queued == 0) {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(stale(item, "its queue could not be emptied"))
}
