//! Paying for orders, in time and late.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::Sale;
use super::orders::{no_order, refused};
use crate::entry::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Taken;
use crate::ledger::Moved;
use crate::order::{Order, OrderId, OrderState};
use crate::rebuild::background;
use crate::relay;

/// Between questions to a gate that is busy or must be rebuilt.
const PAUSE: Duration = Duration::from_millis(50);

impl Sale {
    /// Writes down that an order was paid for. Once paid it stays so; paying again changes nothing.
    ///
    /// Money that comes after the order expired or was cancelled buys the units again if there are
    /// some; else the order becomes [paid-unfulfilled](OrderState::PaidUnfulfilled): refund it.
    ///
    /// # Errors
    ///
    /// [`NoOrder`](ErrorKind::NoOrder); [`Conflict`](ErrorKind::Conflict) if it is in a state that
    /// does not allow it: refund it; [`Ledger`](ErrorKind::Ledger) or [`Stale`](ErrorKind::Stale) if
    /// that cannot be said in time: pay again, which is done once.
    pub async fn pay(&self, id: &OrderId) -> Result<Order> {
        let core = self.core();
        let mut moved = core.ledger.pay(id).await?;
        if moved == Moved::Unknown {
            // Paid before it was even committed.
            let order = self.wait(id, core.limits.confirm).await?;
            if order.state == OrderState::Queued {
                return Err(not_yet(id, "it still waits for the ledger"));
            }
            moved = core.ledger.pay(id).await?;
        }
        match moved {
            Moved::Done(order) => {
                core.hub.tell([(id, order.state)]);
                Ok(order)
            }
            Moved::Already(order) => Ok(order),
            Moved::Refused(order) => match order.state {
                OrderState::Expired | OrderState::Cancelled => self.pay_late(order).await,
                OrderState::PaidUnfulfilled => Ok(order),
                _ => Err(refused("pay for", &order)),
            },
            Moved::Unknown => Err(no_order(id)),
        }
    }

    /// Tries to get the units again for an order that has lost them.
    async fn pay_late(&self, order: Order) -> Result<Order> {
        let (core, id) = (self.core(), &order.id);
        let wanted = Wanted::Again {
            order: id.clone(),
            buyer: order.buyer.clone(),
            units: order.units,
        };
        // The units that it let go of may not be back at the gate yet, and are as good as any.
        relay::relay(core, id.item()).await?;
        match self.set_aside(id.item(), &wanted).await? {
            Taken::Queued(_) | Taken::Replayed(_) => {}
            Taken::SoldOut { .. } | Taken::LimitReached => return self.unfulfilled(id).await,
            Taken::Busy => return Err(not_yet(id, "too many orders wait for the ledger")),
            Taken::NoItem | Taken::StaleEpoch => {
                return Err(not_yet(id, "the gate was not rebuilt in time"));
            }
        }
        let waits = |state| matches!(state, OrderState::Expired | OrderState::Cancelled);
        let decided = |order: &Order| !waits(order.state);
        let order = self.wait_until(id, core.limits.confirm, decided).await?;
        if waits(order.state) {
            return Err(not_yet(
                id,
                "its units are set aside and wait for the ledger",
            ));
        }
        Ok(order)
    }

    async fn unfulfilled(&self, id: &OrderId) -> Result<Order> {
        match self.core().ledger.pay_unfulfilled(id).await? {
            Moved::Done(order) | Moved::Already(order) => Ok(order),
            // It got its units in the meantime, by a payment of the same order.
            Moved::Refused(order) if order.state == OrderState::Paid => Ok(order),
            Moved::Refused(order) => Err(refused("pay for", &order)),
            Moved::Unknown => Err(no_order(id)),
        }
    }

    /// Takes units out at the gate for something that is no buyer's order, after a rebuild if one is
    /// needed.
    pub(super) async fn set_aside(&self, item: &str, wanted: &Wanted) -> Result<Taken> {
        let core = self.core();
        let end = Instant::now() + core.limits.rebuild.max(core.limits.confirm);
        loop {
            let taken = core.gate.take(item, wanted).await?;
            let waits = matches!(taken, Taken::Busy | Taken::NoItem | Taken::StaleEpoch);
            if !waits || Instant::now() >= end {
                return Ok(taken);
            }
            if taken != Taken::Busy {
                let _ = timeout_at(end, background::join(core, item)).await;
            }
            sleep(PAUSE).await;
        }
    }
}

fn not_yet(id: &OrderId, cause: &str) -> Error {
    let message = format!("cannot say yet whether order `{id}` is paid for: {cause}; pay again");
    Error::new(ErrorKind::Ledger, message)
}
