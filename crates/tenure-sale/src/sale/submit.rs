//! Asking the gate for an order.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::Sale;
use crate::error::{Error, ErrorKind, Result};
use crate::events::followers::Followers;
use crate::failpoint::failpoint;
use crate::item::ItemState;
use crate::order::{Answer, OrderId, Outcome, Request};
use crate::rebuild::background;

/// Between two questions to a gate that could not be rebuilt yet.
const PAUSE: Duration = Duration::from_millis(50);
/// Between questions to the ledger, while the hub is to tell.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Sale {
    /// Asks for an order. Nothing is sold twice, and whoever asks again with the same request gets the
    /// same answer.
    ///
    /// Accepted means: at a gate on Redis, that the order stands in the queue and its units are set
    /// aside; [`wait`](Sale::wait) says when the ledger has it. At a gate in memory, that the ledger has
    /// it.
    ///
    /// A gate that must be rebuilt is rebuilt meanwhile, if that does not take longer than
    /// [`SaleBuilder::rebuild_within`](crate::SaleBuilder::rebuild_within).
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the gate cannot be reached, [`Ledger`](ErrorKind::Ledger) if it is
    /// in memory and the ledger does not commit in time. What became of the request is unknown then: ask
    /// again with the same request.
    ///
    /// # Cancel safety
    ///
    /// The order may have been accepted. Ask again with the same request.
    pub async fn submit(&self, request: &Request) -> Result<Answer> {
        let counters = &self.core().counters;
        let answering = self.answer(request).await;
        match &answering {
            Ok(answer) => counters.answered(answer),
            Err(_) => counters.failed.one(),
        }
        answering
    }

    /// What happens rarely is in boxes of its own: each order has a future, and most need little of it.
    async fn answer(&self, request: &Request) -> Result<Answer> {
        let core = self.core();
        let end = Instant::now() + core.limits.rebuild;
        loop {
            let mut answer = self.asked(request).await?;
            failpoint("gate.after_script");
            match &answer.outcome {
                Outcome::Accepted(order) | Outcome::Replayed(order) => {
                    self.accepted(order).await?;
                    return Ok(answer);
                }
                Outcome::StaleEpoch => {}
                Outcome::NoItem => match Box::pin(core.ledger.item(request.item())).await? {
                    Some(item) if item.state == ItemState::Closed => {
                        // The gate may forget what is closed.
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
            // If it was rebuilt, nobody notices so short a pause; if not, it should not be a storm.
            sleep(PAUSE.mul_f64(rand::random_range(0.0..1.0))).await;
        }
    }

    /// The first who asks after a server was restarted may find a connection that is dead.
    async fn asked(&self, request: &Request) -> Result<Answer> {
        let gate = &self.core().gate;
        match gate.ask(request).await {
            Err(error) if error.kind() == ErrorKind::Store => gate.ask(request).await,
            answer => answer,
        }
    }

    async fn accepted(&self, order: &OrderId) -> Result<()> {
        let core = self.core();
        if core.gate.is_memory() {
            return Box::pin(self.committed(order)).await;
        }
        Followers::expect(core, order);
        Ok(())
    }

    /// Waits until the ledger has an order that stands in a queue of this process.
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
                    "the ledger did not take order `{order}` within {:?}; it stays in the queue: \
                     ask again with the same request",
                    core.limits.confirm
                );
                return Err(Error::new(ErrorKind::Ledger, message));
            }
        }
    }
}
