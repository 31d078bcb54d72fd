//! Items of a sale: putting them on it and taking them off.

use std::sync::Arc;

use super::Sale;
use crate::error::Result;
use crate::item::{Item, ItemState, NewItem, Terms};
use crate::rebuild::{self, Need};
use crate::relay;

impl Sale {
    /// Puts an item into the ledger, as a draft: nothing is sold before it is
    /// [opened](Sale::open_item).
    ///
    /// # Errors
    ///
    /// [`ItemExists`](crate::ErrorKind::ItemExists) if there is one of that name, and
    /// [`InvalidSetting`](crate::ErrorKind::InvalidSetting) if its terms contradict each other.
    pub async fn create(&self, item: &NewItem) -> Result<Item> {
        self.core().ledger.create(item).await
    }

    /// An item as the ledger knows it; `None` if there is none of that name.
    pub async fn item(&self, name: &str) -> Result<Option<Item>> {
        self.core().ledger.item(name).await
    }

    /// All items, by name.
    pub async fn items(&self) -> Result<Vec<Item>> {
        self.core().ledger.items(&ItemState::ALL).await
    }

    /// Puts an item on sale: the gate is loaded from the ledger, unless it runs already. What a
    /// running gate has is never overwritten.
    ///
    /// # Errors
    ///
    /// [`NoItem`](crate::ErrorKind::NoItem), or if gate or ledger cannot be reached. Open it again
    /// then: whatever was done needs not be undone.
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

    /// Stops selling for a while: buyers are told *paused*. Orders in the queue are not touched.
    ///
    /// # Errors
    ///
    /// [`Conflict`](crate::ErrorKind::Conflict) if the item is not open. If the gate could not be
    /// told, it goes on until a consumer tells it.
    pub async fn pause(&self, name: &str) -> Result<Item> {
        let from = [ItemState::Open, ItemState::Paused];
        self.change_state(name, &from, ItemState::Paused).await
    }

    /// Ends the sale of an item: buyers are told *ended*. Orders in the queue are not touched, and
    /// can still be paid for and cancelled.
    ///
    /// # Errors
    ///
    /// As for [`pause`](Sale::pause).
    pub async fn close(&self, name: &str) -> Result<Item> {
        let from = [ItemState::Open, ItemState::Paused, ItemState::Closed];
        self.change_state(name, &from, ItemState::Closed).await
    }

    /// Sells an item on other terms from now on. Orders that were accepted keep theirs.
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

    /// Loads the gate from the ledger anew, also if it is in order. Two at once do no harm: one waits
    /// for the other.
    ///
    /// The gate refuses meanwhile. First all that stands in the queue is brought into the ledger, by
    /// this call if no consumer does it.
    ///
    /// # Errors
    ///
    /// [`Stale`](crate::ErrorKind::Stale) if another process is rebuilding it and does not get done;
    /// else what gate or ledger said. The gate may then refuse until somebody rebuilds it; consumers
    /// do so by themselves.
    pub async fn rebuild(&self, name: &str) -> Result<Item> {
        rebuild::in_background(self.core(), name, Need::Always).await?;
        self.core().item(name).await
    }

    /// Lets the gate forget a closed item whose queue is empty: it needs no memory on the server
    /// any more, and buyers who repeat an old request are told *ended*. `false` if it is not closed or
    /// entries are left. Consumers do it by themselves when the answers' time is over.
    pub async fn forget(&self, name: &str) -> Result<bool> {
        let forgotten = self.core().gate.forget(name).await?;
        if forgotten {
            self.core().commits.forget(name);
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
