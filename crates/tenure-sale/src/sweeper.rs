//! The sweeper: expires orders that were not paid for in time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::core::Core;
use crate::error::Result;
use crate::order::{OrderId, OrderState};
use crate::relay;

/// Orders in one ledger transaction.
const PAGE: usize = 500;

/// Sweeps periodically until it is stopped. Several sweepers share the work: the ledger expires
/// each order once.
pub(crate) async fn run(core: Arc<Core>, every: Duration, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(error) = sweep(&core).await {
            warn!(%error, "cannot check for overdue orders");
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(every)).await;
    }
}

/// Expires all overdue orders, and returns their units to the gates.
pub(crate) async fn sweep(core: &Arc<Core>) -> Result<usize> {
    let mut count = 0;
    loop {
        let expired = core.ledger.expire(PAGE).await?;
        count += expired.len();
        core.counters.expired.add(expired.len());
        core.hub
            .tell(expired.iter().map(|order| (order, OrderState::Expired)));
        let items: BTreeSet<&str> = expired.iter().map(OrderId::item).collect();
        for item in items {
            relay::relay_if_possible(core, item).await;
        }
        if expired.len() < PAGE {
            return Ok(count);
        }
    }
}
