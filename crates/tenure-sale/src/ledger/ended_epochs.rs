//! What the ledger knows about epochs that have ended, and which of their orders were lost.

use std::collections::BTreeMap;

use super::lost::{Arrived, Stretch, Uncounted};
use super::{Ledger, epochs, lose, lost};
use crate::entry::Lost;
use crate::error::Result;
use crate::gate::Ended;
use crate::order::OrderId;

impl Ledger {
    /// Records how many entries the shelves of the current epoch were given, before the next one
    /// begins.
    pub(crate) async fn end_epoch(&self, item: &str, ended: &[Ended]) -> Result<()> {
        self.books.write(&epochs::EndEpoch { item, ended }).await
    }

    /// Whether an order that is not in the ledger may have been accepted in an epoch that has
    /// ended. Where the gate lost its data this is not known exactly: a queue holds no more than
    /// the terms allow.
    pub(crate) async fn may_be_lost(&self, order: &OrderId) -> Result<bool> {
        epochs::may_be_lost(&self.books, order).await
    }

    /// Items with epochs that have ended and whose lost orders were not looked for yet.
    pub(crate) async fn items_uncounted(&self) -> Result<Vec<String>> {
        lost::items(&self.books).await
    }

    /// The ended epochs of an item whose lost orders were not looked for yet, by shelf.
    pub(crate) async fn uncounted(&self, item: &str) -> Result<Vec<Uncounted>> {
        lost::uncounted(&self.books, item).await
    }

    /// How many entries of an epoch arrived, by shelf.
    pub(crate) async fn arrived(
        &self,
        item: &str,
        epoch: u64,
        spread: u64,
    ) -> Result<BTreeMap<u64, Arrived>> {
        lost::arrived(&self.books, item, epoch, spread).await
    }

    /// How many entries of a stretch arrived.
    pub(crate) async fn arrived_in(&self, item: &str, stretch: &Stretch) -> Result<u64> {
        lost::arrived_in(&self.books, item, stretch).await
    }

    /// Numbers in a stretch that did not arrive, at most `count`.
    pub(crate) async fn missing(
        &self,
        item: &str,
        stretch: &Stretch,
        count: usize,
    ) -> Result<Vec<u64>> {
        lost::missing(&self.books, item, stretch, count).await
    }

    /// Records orders of an ended epoch that never arrived, and returns those that were not known to
    /// be lost.
    pub(crate) async fn lose(
        &self,
        item: &str,
        epoch: u64,
        orders: &[Lost],
    ) -> Result<Vec<OrderId>> {
        let lose = lose::Lose {
            item,
            epoch,
            orders,
        };
        self.books.write(&lose).await
    }

    /// All lost orders of an ended epoch of a shelf are recorded: it had this many entries, as far
    /// as is known.
    pub(crate) async fn counted(&self, item: &str, ended: Uncounted, entries: u64) -> Result<()> {
        let counted = lost::Counted {
            item,
            ended,
            entries,
        };
        self.books.write(&counted).await
    }

    /// Whether an entry was processed that is no order.
    pub(crate) async fn is_settled(&self, id: &OrderId) -> Result<bool> {
        lost::is_settled(&self.books, id).await
    }

    /// Records that an entry was discarded which is no order here.
    pub(crate) async fn discard(&self, entry: &OrderId) -> Result<()> {
        self.books.write(&lose::Discard(entry)).await
    }
}
