//! Payments, in time and late.

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

/// Between attempts at a gate that is busy or must be rebuilt.
const PAUSE: Duration = Duration::from_millis(50);

impl Sale {
    /// Records that an order was paid for. Once paid it stays paid; paying again changes nothing.
    ///
    /// A payment for an expired or cancelled order buys the units again if there are enough;
    /// otherwise the order becomes [paid-unfulfilled](OrderState::PaidUnfulfilled): refund it.
    ///
    /// # Errors
    ///
    /// [`NoOrder`](ErrorKind::NoOrder); [`Conflict`](ErrorKind::Conflict) if its state does not
    /// allow it: refund it; [`Ledger`](ErrorKind::Ledger) or [`Stale`](ErrorKind::Stale) if the
    /// result is not known in time: pay again, which takes effect once.
    pub async fn pay(&self, id: &OrderId) -> Result<Order> {
        let core = self.core();
        let mut moved = core.ledger.pay(id).await?;
        if moved == Moved::Unknown {
            // Paid before it was even committed.
            let order = self.wait(id, core.limits.confirm).await?;
            match order.state {
                OrderState::Queued => return Err(not_yet(id, "it still waits for the ledger")),
                OrderState::Lost => return Err(refused("pay for", &order)),
                _ => {}
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

    /// Tries to get the units again for an order that has released them.
    async fn pay_late(&self, order: Order) -> Result<Order> {
        let (core, id) = (self.core(), &order.id);
        let wanted = Wanted::Again {
            order: id.clone(),
            buyer: order.buyer.clone(),
            units: order.units,
        };
        // Its released units may not be back at the gate yet, and are as good as any.
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
                "its units are reserved, but not yet in the ledger",
            ));
        }
        Ok(order)
    }

    async fn unfulfilled(&self, id: &OrderId) -> Result<Order> {
        match self.core().ledger.pay_unfulfilled(id).await? {
            Moved::Done(order) | Moved::Already(order) => Ok(order),
            // A concurrent payment of the same order got the units.
            Moved::Refused(order) if order.state == OrderState::Paid => Ok(order),
            Moved::Refused(order) => Err(refused("pay for", &order)),
            Moved::Unknown => Err(no_order(id)),
        }
    }

    /// Takes units at the gate for an entry that is not a buyer's order, after a rebuild if
    /// necessary.
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
    let message =
        format!("it is not known yet whether order `{id}` is paid for: {cause}; pay again");
    Error::new(ErrorKind::Ledger, message)
}
