//! Submitting requests to the gate.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::Sale;
use crate::error::{Error, ErrorKind, Result};
use crate::events::followers::Followers;
use crate::failpoint::failpoint;
use crate::item::ItemState;
use crate::order::{Answer, OrderId, Outcome, Request};
use crate::rebuild::background;

/// Between two attempts at a gate that could not be rebuilt yet.
const PAUSE: Duration = Duration::from_millis(50);
/// Between reads of the ledger, while waiting for the hub.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Sale {
    /// Submits a request. Nothing is sold twice, and a repeated request gets the same answer.
    ///
    /// With a gate on Redis, accepted means that the order is queued and its units are reserved;
    /// [`wait`](Sale::wait) returns when it is in the ledger. With a gate in memory, accepted means
    /// that it is in the ledger.
    ///
    /// If the gate must be rebuilt, this call rebuilds it and waits for at most
    /// [`SaleBuilder::rebuild_within`](crate::SaleBuilder::rebuild_within).
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the gate cannot be reached, [`Ledger`](ErrorKind::Ledger) if
    /// it is in memory and the ledger does not commit in time. The outcome is then unknown: submit
    /// the same request again.
    ///
    /// # Cancel safety
    ///
    /// The order may have been accepted. Submit the same request again.
    pub async fn submit(&self, request: &Request) -> Result<Answer> {
        let counters = &self.core().counters;
        let answering = self.answer(request).await;
        match &answering {
            Ok(answer) => counters.answered(answer),
            Err(_) => counters.failed.one(),
        }
        answering
    }

    /// The rare paths are boxed: each order has a future, and most need little of it.
    async fn answer(&self, request: &Request) -> Result<Answer> {
        let core = self.core();
        core.pairing.check()?;
        let end = Instant::now() + core.limits.rebuild;
        loop {
            let mut answer = self.asked(request).await?;
            failpoint("gate.after_script");
            match &answer.outcome {
                Outcome::Accepted(order) | Outcome::Replayed(order) => {
                    self.accepted(order, request).await?;
                    return Ok(answer);
                }
                Outcome::StaleEpoch => {}
                Outcome::NoItem => match Box::pin(core.ledger.item(request.item())).await? {
                    Some(item) if item.state == ItemState::Closed => {
                        // The gate may have removed a closed item.
                        answer.outcome = Outcome::Ended;
                        return Ok(answer);
                    }
                    Some(item) if item.state != ItemState::Draft => {}
                    _ => return Ok(answer),
                },
                _ => return Ok(answer),
            }
            if Instant::now() >= end {
                answer.outcome = Outcome::StaleEpoch;
                return Ok(answer);
            }
            let rebuilding = Box::pin(background::join(core, request.item()));
            let _ = timeout_at(end, rebuilding).await;
            // If it was rebuilt, this short pause does not matter; if not, it prevents a flood of
            // retries.
            sleep(PAUSE.mul_f64(rand::random_range(0.0..1.0))).await;
        }
    }

    /// After a server restart, the first request may find a dead connection.
    async fn asked(&self, request: &Request) -> Result<Answer> {
        let gate = &self.core().gate;
        match gate.ask(request).await {
            Err(error) if error.kind() == ErrorKind::Store => gate.ask(request).await,
            answer => answer,
        }
    }

    async fn accepted(&self, order: &OrderId, request: &Request) -> Result<()> {
        let core = self.core();
        if core.gate.is_memory() {
            return Box::pin(self.committed(order)).await;
        }
        Followers::expect(core, order, request);
        Ok(())
    }

    /// Waits until the ledger has an order of this process's queue.
    async fn committed(&self, order: &OrderId) -> Result<()> {
        let core = self.core();
        let mut hearing = core.hub.hear(order);
        let end = Instant::now() + core.limits.confirm;
        loop {
            tokio::select! {
                _ = hearing.news() => return Ok(()),
                () = sleep(LOOK_EVERY) => {}
            }
            if let Ok(Some(_)) = core.ledger.order(order).await {
                return Ok(());
            }
            if Instant::now() >= end {
                let message = format!(
                    "the ledger did not commit order `{order}` within {:?}; it stays in the queue: \
                         submit the same request again",
                    core.limits.confirm
                );
                return Err(Error::new(ErrorKind::Ledger, message));
            }
        }
    }
}
