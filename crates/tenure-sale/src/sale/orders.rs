//! Reading orders, waiting for them, cancelling them.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, sleep_until};

use super::Sale;
use crate::entry::{Entry, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::events::followers::Followers;
use crate::failpoint::bug;
use crate::gate::Given;
use crate::ledger::{LOST, Moved};
use crate::order::{Order, OrderId, OrderState};
use crate::relay;

/// Between reads of an awaited order, while waiting for the hub.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_LONGEST: Duration = Duration::from_secs(2);

impl Sale {
    /// An order, wherever it is: in the ledger, still in the queue, or lost. Reading writes nothing:
    /// an order that is lost without the ledger knowing has no buyer here.
    ///
    /// # Errors
    ///
    /// [`NoOrder`](ErrorKind::NoOrder) if it does not exist, [`Stale`](ErrorKind::Stale) if that
    /// cannot be determined before the gate is rebuilt.
    pub async fn order(&self, id: &OrderId) -> Result<Order> {
        let core = self.core();
        if let Some(order) = core.ledger.order(id).await? {
            return Ok(order);
        }
        // Usually it is there, and nothing has to be proven.
        if let Some(entry) = core.gate.find(id).await? {
            return Ok(queued(entry));
        }
        // Before and after: only a gate that sold the whole time can prove that it never had an
        // order. One that was replaced between the two reads has lost some.
        let sold_before = core.gate.sells(id).await?;
        if let Some(entry) = core.gate.find(id).await? {
            return Ok(queued(entry));
        }
        // It may have moved from the queue into the ledger between the two reads.
        if let Some(order) = core.ledger.order(id).await? {
            return Ok(order);
        }
        let sells = match sold_before {
            Some(_) => core.gate.sells(id).await?,
            None => None,
        };
        let item = core.item(id.item()).await?;
        if id.epoch() < item.epoch {
            return self.of_ended_epoch(id).await;
        }
        if id.epoch() > item.epoch {
            return Err(no_order(id));
        }
        match sells {
            Some(Given::Never) => Err(no_order(id)),
            // Before and after: between the two it may have been queued, settled or buried.
            Some(Given::Gone) if sold_before == Some(Given::Gone) => self.lost(id).await,
            Some(Given::Gone | Given::Held) | None => {
                let message = format!(
                    "the state of order `{id}` is unknown until the gate is rebuilt: try again in \
                     a moment"
                );
                Err(Error::new(ErrorKind::Stale, message))
            }
        }
    }

    /// Everything in the queue was committed before its epoch ended: what is not in the ledger now
    /// never will be.
    async fn of_ended_epoch(&self, id: &OrderId) -> Result<Order> {
        let ledger = &self.core().ledger;
        if let Some(order) = ledger.order(id).await? {
            return Ok(order);
        }
        if bug("reading-writes") {
            ledger.mark_lost(id).await?;
        }
        if ledger.may_be_lost(id).await? {
            return self.lost(id).await;
        }
        Err(no_order(id))
    }

    /// An order that was given out and that nobody has, unless its id is that of another entry.
    async fn lost(&self, id: &OrderId) -> Result<Order> {
        if self.core().ledger.is_settled(id).await? {
            return Err(no_order(id));
        }
        Ok(lost(id))
    }

    /// Waits until an order is no longer queued, for at most this time. After that it is returned
    /// as it is, which is [queued](OrderState::Queued).
    ///
    /// # Errors
    ///
    /// As for [`order`](Sale::order), after the time is up; [`NoOrder`](ErrorKind::NoOrder) at
    /// once.
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

    /// The order of a request, if it is in the ledger.
    pub async fn order_of(&self, item: &str, buyer: &str, request: &str) -> Result<Option<Order>> {
        self.core().ledger.order_of(item, buyer, request).await
    }

    /// Cancels an unpaid order; its units are returned, once. If it is still in the queue, the
    /// cancellation is stored and takes effect when it arrives: it may be returned as queued.
    ///
    /// # Errors
    ///
    /// [`NoOrder`](ErrorKind::NoOrder), and [`Conflict`](ErrorKind::Conflict) if its state does not
    /// allow it.
    pub async fn cancel(&self, id: &OrderId) -> Result<Order> {
        // A cancellation is stored for any id that is not in the ledger, so check first that the
        // order exists.
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
            Moved::Unknown => match self.order(id).await? {
                lost if lost.state == OrderState::Lost => Err(refused("cancel", &lost)),
                order => Ok(order),
            },
        }
    }

    /// Waits until an order is in the wanted state, for at most this time. Then it is returned as
    /// it is.
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
            // Subscribe before reading, so that nothing is missed in between.
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
    let note = entry.what.as_ref().err().cloned();
    let (buyer, request, units, state) = match entry.what {
        Ok(Wanted::Order {
            buyer,
            request,
            units,
        }) => (buyer, request, units, OrderState::Queued),
        // The ids of such entries were never given to a buyer.
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
        note,
    }
}

/// An order of which nothing but its id is known.
fn lost(id: &OrderId) -> Order {
    Order {
        id: id.clone(),
        buyer: String::new(),
        request: String::new(),
        units: 0,
        state: OrderState::Lost,
        accepted_at: SystemTime::UNIX_EPOCH,
        pay_by: None,
        note: Some(LOST.to_owned()),
    }
}

pub(super) fn no_order(id: &OrderId) -> Error {
    let message = format!("order `{id}` does not exist");
    Error::new(ErrorKind::NoOrder, message)
}

pub(super) fn refused(wish: &str, order: &Order) -> Error {
    let (id, state) = (&order.id, order.state);
    let message = format!("cannot {wish} order `{id}`: it is {state}");
    Error::new(ErrorKind::Conflict, message)
}
