//! The ledger: the source of truth about items and orders, in SQLite or PostgreSQL.

mod adjustments;
mod alone;
mod audit;
mod books;
mod change_text;
mod changes;
mod commit;
mod count;
mod decision;
mod ended_epochs;
mod epochs;
mod fate;
mod fault;
mod forgotten;
mod items;
mod lose;
mod lost;
mod moves;
mod orders;
mod pairing;
mod place;
mod postgres;
mod schema;
mod sql;
mod sqlite;
mod timestamps;

use std::fmt;
use std::time::{Duration, SystemTime};

use tenure::Fence;

pub use self::audit::Audit;
pub use self::count::Count;
pub use self::fate::{Fate, Moved};
pub(crate) use self::fault::was_kept_waiting;
pub(crate) use self::lose::LOST;
pub(crate) use self::lost::{Stretch, Uncounted};
pub(crate) use self::moves::Expiry;
pub(crate) use self::pairing::Paired;
pub use crate::change::{Change, What};
use crate::entry::{Entry, Lost, Wanted};
use crate::error::Result;
use crate::gate::{Load, Remembered};
use crate::item::{Item, ItemState, NewItem, Terms};
use crate::ledger::books::Books;
use crate::ledger::commit::Commit;
use crate::ledger::decision::Landing;
use crate::ledger::moves::{Move, Target};
use crate::ledger::place::Place;
use crate::order::{Order, OrderId, OrderState};

/// The ledger. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Ledger {
    books: Books,
}

/// The longest reason stored with an order, in characters.
const NOTE_CHARS_MAX: usize = 512;

impl Ledger {
    /// Opens the ledger at `url` and migrates its schema: `sqlite:path`, `sqlite::memory:`,
    /// `postgres://user@host/database`. A schema newer than this program is refused.
    pub async fn open(url: impl AsRef<str>) -> Result<Self> {
        Ok(Self {
            books: Books::open(Place::of_url(url.as_ref())?).await?,
        })
    }

    /// For a gate in memory: from now on only this process may use this ledger, until the ledger
    /// and its clones are dropped. Refused for PostgreSQL and for a file that another process uses.
    #[expect(
        clippy::unused_async,
        reason = "a ledger elsewhere would have to be asked"
    )]
    pub async fn claim_alone(&self) -> Result<()> {
        self.books.claim_alone()
    }

    /// Whether this ledger exists only in this process.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.books.place(), Place::Memory)
    }

    /// What it knows about its gate. It gets this id if it has none.
    pub(crate) async fn paired(&self, id: &str) -> Result<Paired> {
        loop {
            if let Some(paired) = pairing::paired(&self.books).await? {
                return Ok(paired);
            }
            self.books.write(&pairing::Identify(id)).await?;
        }
    }

    /// Records that a gate is in use. `false`: the ledger has another one, which was in use within
    /// this time.
    pub(crate) async fn see_gate(&self, gate: &str, unused_for: Duration) -> Result<bool> {
        self.books.write(&pairing::See { gate, unused_for }).await
    }

    /// Adds an item to the ledger, as a draft.
    pub async fn create(&self, item: &NewItem) -> Result<Item> {
        self.books.write(&items::Create(item)).await
    }

    /// One item.
    pub async fn item(&self, name: &str) -> Result<Option<Item>> {
        items::one(&self.books, name).await
    }

    /// All items, by name; those in one of `states`, or all.
    pub async fn items(&self, states: &[ItemState]) -> Result<Vec<Item>> {
        items::all(&self.books, states).await
    }

    /// Changes the state of an item from one of `from`. `Err(Conflict)` if it is in none of them.
    pub async fn set_state(&self, item: &str, from: &[ItemState], to: ItemState) -> Result<Item> {
        self.books.write(&items::SetState { item, from, to }).await
    }

    /// Changes the terms.
    pub async fn set_terms(&self, item: &str, terms: &Terms) -> Result<Item> {
        self.books.write(&items::SetTerms { item, terms }).await
    }

    /// Adds units, once per reference; with `expected` only if the total is that.
    pub async fn add_units(
        &self,
        item: &str,
        units: u64,
        reason: &str,
        reference: &str,
        expected: Option<u64>,
    ) -> Result<Item> {
        let add = adjustments::Add {
            item,
            units,
            reason,
            reference,
            expected,
        };
        self.books.write(&add).await
    }

    /// The result of a withdrawal: done, refused, or not yet known.
    pub async fn withdrawal(&self, item: &str, reference: &str) -> Result<Option<bool>> {
        adjustments::withdrawal(&self.books, item, reference).await
    }

    /// Commits a batch of entries of any items in one transaction, and returns the fate of each, in
    /// order. An error means that nothing was committed, or that the outcome is unknown: try again.
    pub async fn commit(&self, entries: &[Entry]) -> Result<Vec<Fate>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let landing = Landing::Reserved;
        self.books.write(&Commit { entries, landing }).await
    }

    /// Marks an entry as dead: its units stay reserved. Entries that cannot be read leave no row.
    pub async fn bury(&self, entry: &Entry, reason: &str) -> Result<()> {
        let note: String = reason
            .chars()
            .filter(|letter| !letter.is_control())
            .take(NOTE_CHARS_MAX)
            .collect();
        let commit = Commit {
            entries: std::slice::from_ref(entry),
            landing: Landing::Dead(&note),
        };
        if matches!(entry.what, Ok(Wanted::Order { .. })) {
            self.books.write(&commit).await?;
        }
        Ok(())
    }

    /// One order.
    pub async fn order(&self, id: &OrderId) -> Result<Option<Order>> {
        orders::one(&self.books, id).await
    }

    /// The order of a request.
    pub async fn order_of(&self, item: &str, buyer: &str, request: &str) -> Result<Option<Order>> {
        orders::of_request(&self.books, item, buyer, request).await
    }

    /// A buyer's orders, newest first.
    pub async fn orders_of(&self, buyer: &str, count: usize) -> Result<Vec<Order>> {
        orders::of_buyer(&self.books, buyer, count).await
    }

    /// The orders of an item, in one state or all, newest first.
    pub async fn orders_for(
        &self,
        item: &str,
        state: Option<OrderState>,
        count: usize,
    ) -> Result<Vec<Order>> {
        orders::of_item(&self.books, item, state, count).await
    }

    /// The dead orders of an item, oldest first, with the reasons.
    pub async fn dead_orders(&self, item: &str, count: usize) -> Result<Vec<(Order, String)>> {
        orders::dead(&self.books, item, count).await
    }

    /// Reserved → paid.
    pub async fn pay(&self, order: &OrderId) -> Result<Moved> {
        self.make(order, Target::Paid).await
    }

    /// Reserved (or dead) → cancelled, units released. For unknown orders the cancellation is
    /// stored, and the order is cancelled when it arrives; the result is [`Moved::Unknown`].
    pub async fn cancel(&self, order: &OrderId) -> Result<Moved> {
        self.make(order, Target::Cancelled).await
    }

    /// Expired or cancelled → paid-unfulfilled: paid for, but no units left.
    pub async fn pay_unfulfilled(&self, order: &OrderId) -> Result<Moved> {
        self.make(order, Target::PaidUnfulfilled).await
    }

    /// Dead → reserved: an operator accepted it.
    pub async fn revive(&self, order: &OrderId) -> Result<Moved> {
        self.make(order, Target::Revived).await
    }

    /// Overdue reserved orders → expired, units released. Returns them, at most `count`.
    pub async fn expire(&self, count: usize) -> Result<Vec<OrderId>> {
        let expiry = self.expire_but(&[], count).await?;
        match expiry.failed {
            Some((_, error)) if expiry.expired.is_empty() => Err(error),
            // Others have already expired, and must be announced.
            _ => Ok(expiry.expired),
        }
    }

    /// As [`expire`](Self::expire), without the orders of some items.
    pub(crate) async fn expire_but(&self, items: &[&str], count: usize) -> Result<Expiry> {
        moves::expire(&self.books, items, count).await
    }

    /// Records that an order of an older epoch never arrived. It is counted and announced once.
    pub async fn mark_lost(&self, order: &OrderId) -> Result<Moved> {
        self.make(order, Target::Lost).await
    }

    /// Starts the item's next epoch, and reads in the same transaction what the gate is to be
    /// loaded with. From now on entries of older epochs are refused. A lower fence than the last is
    /// refused with `Err(Conflict)`.
    pub async fn next_epoch(&self, item: &str, fence: Fence) -> Result<Load> {
        self.next_epoch_from(item, fence, 0).await
    }

    /// The same, under this epoch or a greater one.
    pub(crate) async fn next_epoch_from(
        &self,
        item: &str,
        fence: Fence,
        least: u64,
    ) -> Result<Load> {
        let next = epochs::NextEpoch { item, fence, least };
        self.books.write(&next).await
    }

    /// Makes the gate's epoch the item's, if it is greater: the ledger was put back.
    pub(crate) async fn adopt(&self, item: &str, epoch: u64) -> Result<()> {
        self.books.write(&forgotten::Adopt { item, epoch }).await
    }

    /// Stores those of these orders that the ledger has forgotten, as dead letters, and returns how
    /// many they were.
    pub(crate) async fn remember(&self, item: &str, orders: &[(OrderId, Lost)]) -> Result<u64> {
        self.books
            .write(&forgotten::Remember { item, orders })
            .await
    }

    /// What buyers have (orders that hold units), a page after the buyer `after`.
    pub async fn buyers(
        &self,
        item: &str,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<(String, u64)>> {
        epochs::buyers(&self.books, item, after, count).await
    }

    /// Answers to remember: orders accepted within `within`, and all that hold units; a page after
    /// the order `after`.
    pub async fn answers(
        &self,
        item: &str,
        within: Duration,
        after: Option<&OrderId>,
        count: usize,
    ) -> Result<Vec<Remembered>> {
        epochs::answers(&self.books, item, within, after, count).await
    }

    /// The changes of an item after a number, in order.
    pub async fn changes(&self, item: &str, after: u64, count: usize) -> Result<Vec<Change>> {
        changes::after(&self.books, item, after, count).await
    }

    /// Deletes changes older than `before` that the gate has applied, up to the given number.
    pub async fn forget_changes(
        &self,
        item: &str,
        applied: u64,
        before: SystemTime,
    ) -> Result<u64> {
        let forget = changes::Forget {
            item,
            applied,
            before,
        };
        self.books.write(&forget).await
    }

    /// Orders and units by state.
    pub async fn counts(&self, item: &str) -> Result<Vec<Count>> {
        orders::counts(&self.books, item).await
    }

    /// Sums an item's books in each of the ways that must agree, and finds orders of its current
    /// epoch that are missing. `None` if the item does not exist. Reads everything that the ledger
    /// has about the item.
    pub async fn audit(&self, item: &str) -> Result<Option<Audit>> {
        audit::audit(&self.books, item).await
    }

    async fn make(&self, order: &OrderId, to: Target) -> Result<Moved> {
        self.books.write(&Move { order, to }).await
    }
}

/// Without the password of its URL.
impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ledger").field(self.books.place()).finish()
    }
}
