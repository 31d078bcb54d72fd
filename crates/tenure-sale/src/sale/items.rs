//! Managing the items of a sale.

use std::sync::Arc;

use super::Sale;
use crate::error::Result;
use crate::item::{Item, ItemState, NewItem, Terms};
use crate::rebuild::{self, Need};
use crate::relay;

impl Sale {
    /// Adds an item to the ledger, as a draft: it is not sold until it is
    /// [opened](Sale::open_item).
    ///
    /// # Errors
    ///
    /// [`ItemExists`](crate::ErrorKind::ItemExists) if there is one with that name, and
    /// [`InvalidSetting`](crate::ErrorKind::InvalidSetting) if its terms contradict each other.
    pub async fn create(&self, item: &NewItem) -> Result<Item> {
        self.core().ledger.create(item).await
    }

    /// An item in the ledger; `None` if it does not exist.
    pub async fn item(&self, name: &str) -> Result<Option<Item>> {
        self.core().ledger.item(name).await
    }

    /// All items, by name.
    pub async fn items(&self) -> Result<Vec<Item>> {
        self.core().ledger.items(&ItemState::ALL).await
    }

    /// Puts an item on sale: the gate is loaded from the ledger, unless it already sells the item.
    /// The data of a running gate is never overwritten.
    ///
    /// # Errors
    ///
    /// [`NoItem`](crate::ErrorKind::NoItem), or if the gate or the ledger cannot be reached. In
    /// that case open it again: nothing has to be undone.
    pub async fn open_item(&self, name: &str) -> Result<Item> {
        let core = self.core();
        core.ledger
            .set_state(name, &ItemState::ALL, ItemState::Open)
            .await?;
        rebuild::in_background(core, name, Need::Current).await?;
        relay::relay(core, name).await?;
        core.opened.notify_waiters();
        core.item(name).await
    }

    /// Pauses the sale of an item: the gate answers *paused*. Queued orders are not affected.
    ///
    /// # Errors
    ///
    /// [`Conflict`](crate::ErrorKind::Conflict) if the item is not open. If the gate could not be
    /// informed, it keeps selling until a consumer informs it.
    pub async fn pause(&self, name: &str) -> Result<Item> {
        let from = [ItemState::Open, ItemState::Paused];
        self.change_state(name, &from, ItemState::Paused).await
    }

    /// Ends the sale of an item: the gate answers *ended*. Queued orders are not affected, and
    /// orders can still be paid for and cancelled.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Sale::pause).
    pub async fn close(&self, name: &str) -> Result<Item> {
        let from = [ItemState::Open, ItemState::Paused, ItemState::Closed];
        self.change_state(name, &from, ItemState::Closed).await
    }

    /// Changes the terms of an item from now on. Accepted orders keep theirs.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](crate::ErrorKind::InvalidSetting) if the terms contradict each other.
    pub async fn set_terms(&self, name: &str, terms: &Terms) -> Result<Item> {
        let item = self.core().ledger.set_terms(name, terms).await?;
        if item.state != ItemState::Draft {
            relay::relay(self.core(), name).await?;
        }
        self.core().item(name).await
    }

    /// Reloads the gate from the ledger, even if it is in order, or if it knows more than a ledger
    /// that was put back: orders that only the gate knows become dead letters then. Concurrent calls are safe: one
    /// waits for the other.
    ///
    /// The gate refuses orders meanwhile. First everything in the queue is committed to the ledger,
    /// by this call if no consumer does it.
    ///
    /// # Errors
    ///
    /// [`Stale`](crate::ErrorKind::Stale) if another process is rebuilding it and does not finish;
    /// otherwise the error of the gate or ledger. The gate may then refuse orders until it is
    /// rebuilt; consumers do that by themselves.
    pub async fn rebuild(&self, name: &str) -> Result<Item> {
        rebuild::in_background(self.core(), name, Need::Decided).await?;
        self.core().item(name).await
    }

    /// Removes a closed item with an empty queue from the gate: it then uses no memory on the
    /// server, and repeated old requests are answered with *ended*. `false` if it is not closed or
    /// entries are left. Consumers do this by themselves when the time to keep answers is over.
    pub async fn forget(&self, name: &str) -> Result<bool> {
        let forgotten = self.core().gate.forget(name).await?;
        if forgotten {
            self.core().commits.forget(name);
            self.core().watched.forget(name);
        }
        Ok(forgotten)
    }

    async fn change_state(&self, name: &str, from: &[ItemState], to: ItemState) -> Result<Item> {
        let core = Arc::clone(self.core());
        let item = core.ledger.set_state(name, from, to).await?;
        relay::relay(&core, name).await?;
        Ok(item)
    }
}
