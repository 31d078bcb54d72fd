//! Looking at orders, waiting for them, cancelling them.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::Sale;
use crate::entry::{Entry, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::events::follower::announce_lost;
use crate::events::followers::Followers;
use crate::ledger::Moved;
use crate::order::{Order, OrderId, OrderState};
use crate::relay;

/// Between questions for an order that somebody waits for, while the hub is to tell.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_LONGEST: Duration = Duration::from_secs(2);

impl Sale {
    /// An order, wherever it is: in the ledger, still in the queue, or lost.
    ///
    /// # Errors
    ///
    /// [`NoOrder`](ErrorKind::NoOrder) if there is none of that id, [`Stale`](ErrorKind::Stale) if that
    /// cannot be said before the gate is rebuilt.
    pub async fn order(&self, id: &OrderId) -> Result<Order> {
        let core = self.core();
        if let Some(order) = core.ledger.order(id).await? {
            return Ok(order);
        }
        // Mostly it is there, and nothing need be proven.
        if let Some(entry) = core.gate.find(id).await? {
            return Ok(queued(entry));
        }
        // Before and after: only a gate that sold all the time can say that it never had an order. One
        // that was replaced between the questions has forgotten some.
        let sold_before = core.gate.sells(id).await?;
        if let Some(entry) = core.gate.find(id).await? {
            return Ok(queued(entry));
        }
        // It may have gone from the queue into the ledger between the two questions.
        if let Some(order) = core.ledger.order(id).await? {
            return Ok(order);
        }
        let sells = sold_before && core.gate.sells(id).await?;
        let item = core.item(id.item()).await?;
        if id.epoch() < item.epoch {
            announce_lost(core, id).await?;
            let lost = core.ledger.order(id).await?;
            return lost.ok_or_else(|| no_order(id));
        }
        if id.epoch() == item.epoch && !sells {
            let message = format!(
                "cannot say what became of order `{id}` before the gate is rebuilt: ask again in a \
                 moment"
            );
            return Err(Error::new(ErrorKind::Stale, message));
        }
        Err(no_order(id))
    }

    /// Waits until an order is no longer queued, or until the time is over: then it is returned as it
    /// is, which is [queued](OrderState::Queued).
    ///
    /// # Errors
    ///
    /// As for [`order`](Sale::order), after the time is over; [`NoOrder`](ErrorKind::NoOrder) at once.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn wait(&self, id: &OrderId, limit: Duration) -> Result<Order> {
        let arrived = |order: &Order| order.state != OrderState::Queued;
        self.wait_until(id, limit, arrived).await
    }

    /// A buyer's orders that are in the ledger, newest first, at most `count`.
    pub async fn orders_of(&self, buyer: &str, count: usize) -> Result<Vec<Order>> {
        self.core().ledger.orders_of(buyer, count).await
    }

    /// The order that a request became, if it is in the ledger.
    pub async fn order_of(&self, item: &str, buyer: &str, request: &str) -> Result<Option<Order>> {
        self.core().ledger.order_of(item, buyer, request).await
    }

    /// Cancels an order that is not paid for; its units go back, once. If it still stands in the queue
    /// the wish is kept and takes effect when it arrives: it may be returned as queued.
    ///
    /// # Errors
    ///
    /// [`NoOrder`](ErrorKind::NoOrder), and [`Conflict`](ErrorKind::Conflict) if it is in a state that
    /// does not allow it.
    pub async fn cancel(&self, id: &OrderId) -> Result<Order> {
        // A wish is kept for any id that is not in the ledger: not for those that never were.
        self.order(id).await?;
        let core = self.core();
        match core.ledger.cancel(id).await? {
            Moved::Done(order) => {
                core.hub.tell([(id, order.state)]);
                relay::relay_if_possible(core, id.item()).await;
                Ok(order)
            }
            Moved::Already(order) => Ok(order),
            Moved::Refused(order) => Err(refused("cancel", &order)),
            Moved::Unknown => self.order(id).await,
        }
    }

    /// Waits until an order is as wished, or until the time is over: then it is returned as it is.
    pub(super) async fn wait_until(
        &self,
        id: &OrderId,
        limit: Duration,
        wished: impl Fn(&Order) -> bool,
    ) -> Result<Order> {
        let core = self.core();
        let end = Instant::now() + limit;
        let mut pause = LOOK_FIRST;
        loop {
            // Before looking, so that nothing is missed between.
            let mut hearing = core.hub.hear_next(id);
            if !core.gate.is_memory() {
                Followers::listen(core, id.item());
            }
            let found = self.order(id).await;
            match &found {
                Ok(order) if wished(order) => return found,
                Err(error) if error.kind() == ErrorKind::NoOrder => return found,
                _ if Instant::now() >= end => return found,
                _ => {}
            }
            tokio::select! {
                _ = hearing.news() => {}
                () = sleep(pause) => {}
                () = sleep_until(end) => {}
            }
            pause = (pause * 2).min(LOOK_LONGEST);
        }
    }
}

/// An order that is not in the ledger yet.
fn queued(entry: Entry) -> Order {
    let (buyer, request, units, state) = match entry.what {
        Ok(Wanted::Order {
            buyer,
            request,
            units,
        }) => (buyer, request, units, OrderState::Queued),
        // No buyer was given the id of such an entry.
        Ok(Wanted::Withdrawal {
            reference, units, ..
        }) => (String::new(), reference, units, OrderState::Queued),
        Ok(Wanted::Again { buyer, units, .. }) => (buyer, String::new(), units, OrderState::Queued),
        Err(_) => (String::new(), String::new(), 0, OrderState::Dead),
    };
    Order {
        id: entry.id,
        buyer,
        request,
        units,
        state,
        accepted_at: entry.accepted_at,
        pay_by: None,
    }
}

pub(super) fn no_order(id: &OrderId) -> Error {
    let message = format!("there is no order `{id}`");
    Error::new(ErrorKind::NoOrder, message)
}

pub(super) fn refused(wish: &str, order: &Order) -> Error {
    let (id, state) = (&order.id, order.state);
    let message = format!("cannot {wish} order `{id}`: it is {state}");
    Error::new(ErrorKind::Conflict, message)
}
