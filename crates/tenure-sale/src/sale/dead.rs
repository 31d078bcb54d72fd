//! Dead letters: entries that the ledger did not accept, and what to do about them.

use std::collections::HashSet;

use super::Sale;
use super::orders::no_order;
use crate::entry::{Entry, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Fate, Moved};
use crate::order::{Order, OrderId, OrderState};
use crate::rebuild::{self, Need};
use crate::relay;

/// How many dead letters are searched for one.
const LOOK_MAX: usize = 10_000;

/// An entry that the ledger failed to accept repeatedly. Its units stay reserved until it is
/// [requeued](Sale::requeue) or [discarded](Sale::discard).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The entry; its id is the order's.
    pub entry: Entry,
    /// Why the ledger did not accept it.
    pub reason: String,
}

impl Sale {
    /// The dead letters of an item, oldest first, at most `count`. After those of the gate come
    /// orders that are dead in the ledger and whose letter the gate has lost.
    pub async fn dead_letters(&self, item: &str, count: usize) -> Result<Vec<DeadLetter>> {
        let core = self.core();
        let dead = core.gate.dead(item, count).await?;
        let letter = |(entry, reason)| DeadLetter { entry, reason };
        let mut letters: Vec<DeadLetter> = dead.into_iter().map(letter).collect();
        let known: HashSet<OrderId> = letters.iter().map(|it| it.entry.id.clone()).collect();
        let in_ledger = core.ledger.dead_orders(item, count).await?.into_iter();
        let lost = in_ledger.filter(|(order, _)| !known.contains(&order.id));
        letters.extend(lost.map(|(order, reason)| letter((entry_of(order), reason))));
        letters.truncate(count);
        Ok(letters)
    }

    /// Retries a dead letter, after the cause was fixed. Returns the resulting order.
    ///
    /// # Errors
    ///
    /// [`NoOrder`](ErrorKind::NoOrder) if it is not a dead letter,
    /// [`Conflict`](ErrorKind::Conflict) if the ledger still does not accept it: it stays where it
    /// is.
    pub async fn requeue(&self, id: &OrderId) -> Result<OrderState> {
        let core = self.core();
        let entry = self.dead_letter(id).await?.entry;
        let row = self.row_of(&entry).await?;
        let state = match row.map(|order| order.state) {
            Some(OrderState::Dead) => self.revive(id).await?,
            // An earlier call decided, but did not finish.
            Some(state) => state,
            None => self.commit_again(&entry).await?,
        };
        core.gate.unbury(id.item(), id).await?;
        core.hub.tell([(id, state)]);
        relay::relay_if_possible(core, id.item()).await;
        Ok(state)
    }

    /// Discards a dead letter: the order is cancelled and its units are returned.
    ///
    /// # Errors
    ///
    /// [`NoOrder`](ErrorKind::NoOrder) if it is not a dead letter.
    pub async fn discard(&self, id: &OrderId) -> Result<()> {
        let core = self.core();
        let entry = self.dead_letter(id).await?.entry;
        if self.row_of(&entry).await?.is_some() {
            core.ledger.cancel(id).await?;
            relay::relay_if_possible(core, id.item()).await;
            core.gate.unbury(id.item(), id).await?;
            return Ok(());
        }
        // Its number is not missing then.
        core.ledger.discard(id).await?;
        core.gate.unbury(id.item(), id).await?;
        // Only the gate knows of units that it reserved: the ledger has the number that is left.
        rebuild::in_background(core, id.item(), Need::Always).await
    }

    async fn dead_letter(&self, id: &OrderId) -> Result<DeadLetter> {
        let core = self.core();
        let dead = core.gate.dead(id.item(), LOOK_MAX).await?;
        if let Some((entry, reason)) = dead.into_iter().find(|(entry, _)| entry.id == *id) {
            return Ok(DeadLetter { entry, reason });
        }
        let order = core.ledger.order(id).await?;
        let dead = order.filter(|order| order.state == OrderState::Dead);
        let entry = entry_of(dead.ok_or_else(|| no_order(id))?);
        let reason = "its letter is gone from the gate".to_owned();
        Ok(DeadLetter { entry, reason })
    }

    /// The row of an entry: not of another order under the same id.
    async fn row_of(&self, entry: &Entry) -> Result<Option<Order>> {
        let Ok(Wanted::Order { buyer, request, .. }) = &entry.what else {
            return Ok(None);
        };
        let row = self.core().ledger.order(&entry.id).await?;
        Ok(row.filter(|row| row.buyer == *buyer && row.request == *request))
    }

    async fn revive(&self, id: &OrderId) -> Result<OrderState> {
        match self.core().ledger.revive(id).await? {
            Moved::Done(order) | Moved::Already(order) | Moved::Refused(order) => Ok(order.state),
            Moved::Unknown => Err(no_order(id)),
        }
    }

    async fn commit_again(&self, entry: &Entry) -> Result<OrderState> {
        let fates = self
            .core()
            .ledger
            .commit(std::slice::from_ref(entry))
            .await?;
        let cause = match fates.into_iter().next() {
            Some(Fate::Settled(state) | Fate::Known(state)) if state != OrderState::Dead => {
                return Ok(state);
            }
            Some(Fate::Withdrawal(done)) => {
                return Ok(if done {
                    OrderState::Reserved
                } else {
                    OrderState::Rejected
                });
            }
            Some(Fate::Stale) => return Ok(OrderState::Lost),
            Some(Fate::Refused(reason)) => reason,
            Some(Fate::Ahead) => {
                "its epoch is newer than the ledger's, which was put back: rebuild the item".into()
            }
            Some(Fate::Settled(_) | Fate::Known(_)) | None => "it is still dead".to_owned(),
        };
        let message = format!("the ledger still does not accept `{}`: {cause}", entry.id);
        Err(Error::new(ErrorKind::Conflict, message))
    }
}

/// The entry that an order came from.
fn entry_of(order: Order) -> Entry {
    Entry {
        id: order.id,
        what: Ok(Wanted::Order {
            buyer: order.buyer,
            request: order.request,
            units: order.units,
        }),
        accepted_at: order.accepted_at,
        terms: None,
        deliveries: 0,
    }
}
