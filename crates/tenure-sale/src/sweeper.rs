//! The sweeper: lets orders expire that were not paid for in time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::core::Core;
use crate::error::Result;
use crate::order::{OrderId, OrderState};
use crate::relay;

/// Orders in one transaction of the ledger.
const PAGE: usize = 500;

/// Sweeps every so often until it is stopped. Several sweepers at once share the work: the ledger lets
/// each order expire once.
pub(crate) async fn run(core: Arc<Core>, every: Duration, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Err(error) = sweep(&core).await {
            warn!(%error, "orders that are over could not be looked for");
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(every)).await;
    }
}

/// Lets all orders expire whose time is over, and brings their units back to the gates.
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
