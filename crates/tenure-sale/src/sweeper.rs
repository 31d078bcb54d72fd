//! The sweeper: expires orders that were not paid for in time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::consumer::backoff::Backoff;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::order::{OrderId, OrderState};
use crate::relay;

/// Orders in one ledger transaction.
const PAGE: usize = 500;

/// Sweeps periodically until it is stopped. Several sweepers share the work: the ledger expires
/// each order once.
pub(crate) async fn run(core: Arc<Core>, every: Duration, stop: CancellationToken) {
    let mut resting = Resting::default();
    while !stop.is_cancelled() {
        if let Err(error) = sweep(&core, &mut resting).await {
            warn!(%error, "cannot check for overdue orders");
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(every)).await;
    }
}

/// Expires all overdue orders, and returns their units to the gates.
async fn sweep(core: &Arc<Core>, resting: &mut Resting) -> Result<()> {
    loop {
        let expiry = core.ledger.expire_but(&resting.items(), PAGE).await?;
        let expired = expiry.expired;
        core.counters.expired.add(expired.len());
        core.hub
            .tell(expired.iter().map(|order| (order, OrderState::Expired)));
        let items: BTreeSet<&str> = expired.iter().map(OrderId::item).collect();
        for item in items {
            // A gate that does not respond must not keep the others waiting.
            let (core, item) = (Arc::clone(core), item.to_owned());
            tokio::spawn(async move { relay::relay_if_possible(&core, &item).await });
        }
        match expiry.failed {
            Some((item, error)) => resting.add(core, item, &error),
            None if expired.len() < PAGE => return Ok(()),
            None => {}
        }
    }
}

/// Items whose orders could not expire, and until when they are left alone: others come first.
#[derive(Default)]
struct Resting(HashMap<String, (Backoff, Instant)>);

impl Resting {
    fn items(&self) -> Vec<&str> {
        let now = Instant::now();
        let rests = self.0.iter().filter(|(_, (_, until))| now < *until);
        rests.map(|(item, _)| item.as_str()).collect()
    }

    fn add(&mut self, core: &Core, item: String, error: &Error) {
        core.counters.care_failed.one();
        warn!(item, %error, "the orders of an item cannot expire: it is tried again");
        let now = Instant::now();
        // One that has not failed again for a while starts afresh.
        self.0
            .retain(|_, (_, until)| now < *until + 2 * Backoff::LONGEST);
        let (backoff, until) = self.0.entry(item).or_insert((Backoff::new(), now));
        *until = now + backoff.next();
    }
}
