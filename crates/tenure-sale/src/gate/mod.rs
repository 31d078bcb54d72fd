//! The gate: accepts or refuses buyers' requests, immediately and in order.
//!
//! One atomic step per order checks everything, queues the order and reserves its units. The gate
//! may be too strict, but never too generous: the ledger is the source of truth, and a gate whose
//! server was restarted or replaced refuses orders until it is rebuilt from the ledger.
//!
//! The stock of an item that one node cannot serve is spread over several *shelves*, each in its
//! own slot: units move between them, buyers do not.

mod checks;
mod clock;
mod combiner;
mod fold;
mod load;
mod memory;
mod outcome;
mod pair;
mod redis;
mod spread;
mod standing;

use std::time::Duration;

use tenure::{Fence, Tenure};

pub(crate) use self::checks::check_spread;
use self::checks::of_item;
pub(crate) use self::load::{Ended, Page};
pub use self::load::{Load, Remembered};
use self::memory::MemoryGate;
pub use self::outcome::{Applied, Taken};
pub(crate) use self::pair::Pair;
use self::redis::RedisGate;
pub(crate) use self::standing::Given;
pub use self::standing::{ShelfStanding, Standing};
use crate::change::Change;
use crate::entry::Lost;
pub use crate::entry::{AcceptedTerms, Entry, Wanted};
use crate::error::{Error, ErrorKind, Result};
use crate::item::Item;
use crate::names::item_name;
use crate::order::{Answer, OrderId, Request};
use crate::stock::UNITS_MAX;

/// The gate of all items. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Gate {
    backend: Backend,
}

#[derive(Clone, Debug)]
enum Backend {
    Memory(MemoryGate),
    Redis(RedisGate),
}

/// The same call for both backends: the one in memory returns at once.
macro_rules! each {
    ($gate:expr, $item:expr, $method:ident($($argument:expr),*)) => {{
        item_name($item)?;
        match &$gate.backend {
            Backend::Memory(gate) => gate.$method($($argument),*),
            Backend::Redis(gate) => gate.$method($($argument),*).await,
        }
    }};
}

impl Gate {
    /// Connects to the gate at `url`: `memory://` for a private one, `memory://name` for one shared
    /// by this process under that name, otherwise any Redis as for
    /// [`Tenure::connect`](tenure::Tenure::connect).
    ///
    /// # Errors
    ///
    /// If the URL is invalid or the server cannot be reached.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        let backend = match url.as_ref().trim().strip_prefix("memory://") {
            Some(name) => Backend::Memory(MemoryGate::open(name)?),
            None => Backend::Redis(RedisGate::connect(url.as_ref()).await?),
        };
        Ok(Self { backend })
    }

    /// The gate over a shared connection.
    pub fn on(redis: tenure::redis::Client) -> Self {
        Self {
            backend: Backend::Redis(RedisGate::on(redis)),
        }
    }

    /// Uses `locks` for the lock under which units are moved between shelves; they must be on the
    /// same servers. A [connected](Self::connect) gate creates its own when it first needs one. A
    /// gate [over a shared connection](Self::on) moves units without a lock: no unit is lost, but
    /// processes that want the last ones may take them from each other.
    #[must_use]
    pub fn with_locks(self, locks: Tenure) -> Self {
        let backend = match self.backend {
            Backend::Redis(gate) => Backend::Redis(gate.with_locks(locks)),
            memory @ Backend::Memory(_) => memory,
        };
        Self { backend }
    }

    /// How many shelves this gate uses for an item with this spread: in memory there is only one
    /// place.
    pub(crate) fn shelves_of(&self, item: &Item) -> u64 {
        if self.is_memory() { 1 } else { item.spread }
    }

    /// Whether this gate exists only in this process.
    pub fn is_memory(&self) -> bool {
        matches!(self.backend, Backend::Memory(_))
    }

    /// The ids of this gate and of its ledger; `None` if it has none yet, or lost its data.
    pub(crate) async fn pair(&self) -> Result<Option<Pair>> {
        match &self.backend {
            Backend::Memory(_) => Ok(None),
            Backend::Redis(gate) => gate.pair().await,
        }
    }

    /// Gives the gate these ids, if it has none.
    pub(crate) async fn set_pair(&self, pair: &Pair) -> Result<()> {
        match &self.backend {
            Backend::Memory(_) => Ok(()),
            Backend::Redis(gate) => gate.set_pair(pair).await,
        }
    }

    /// Submits a request. Concurrent requests are batched.
    ///
    /// Dropping the future does not withdraw the request: it may have been sent. Submitting the
    /// same request id again returns its outcome.
    ///
    /// # Errors
    ///
    /// If the gate cannot be reached or does not reply in time. The outcome is then unknown: submit
    /// the same request id again.
    pub async fn ask(&self, request: &Request) -> Result<Answer> {
        match &self.backend {
            Backend::Memory(gate) => Ok(gate.ask(request)),
            Backend::Redis(gate) => gate.ask(request).await,
        }
    }

    /// The gate's state of an item; `None` if it does not know it. Does not include the units in
    /// the queue: see [`queued_units`](Self::queued_units).
    pub async fn standing(&self, item: &str) -> Result<Option<Standing>> {
        each!(self, item, standing(item))
    }

    /// What the gate knows of an order that it does not have; `None` if it does not currently sell the
    /// item under the epoch of that order. For a spread item only the shelf of the order is asked: no
    /// other could have it.
    pub(crate) async fn sells(&self, order: &OrderId) -> Result<Option<Given>> {
        each!(self, order.item(), sells(order))
    }

    /// The units reserved by all entries in the queue. Reads the whole queue, page by page, while
    /// it may change: exact only if nothing is sold or consumed meanwhile.
    pub async fn queued_units(&self, item: &str) -> Result<u64> {
        each!(self, item, queued_units(item))
    }

    /// Applies changes of the ledger, in the order of their numbers. They take effect only if the
    /// gate is at change `after` of that epoch, and then all at once.
    ///
    /// Also [`Applied::Stale`] if the gate would need to know what buyers have but does not: a
    /// limit where there was none, or an item that is reopened after its answers expired.
    ///
    /// # Errors
    ///
    /// If the gate cannot be reached, or if the changes do not follow `after` without a gap.
    pub async fn apply(
        &self,
        item: &str,
        epoch: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Applied> {
        each!(self, item, apply(item, epoch, after, changes))
    }

    /// Reserves units for an entry that is not a buyer's order, and queues it. Also works while the
    /// item is paused or closed.
    ///
    /// # Errors
    ///
    /// If the gate cannot be reached, if it is a buyer's order (submit a request instead), or if
    /// the same reference was used for other units.
    pub async fn take(&self, item: &str, wanted: &Wanted) -> Result<Taken> {
        each!(self, item, take(item, wanted))
    }

    /// Begins to load an item onto this many shelves: nothing is sold until
    /// [`finish_load`](Self::finish_load). The queue is not touched; remembered data about buyers
    /// is dropped, and keys that hold something else than what the gate writes there are deleted.
    /// `false`: a load with a greater fence or epoch came first, or one with this epoch
    /// is done.
    pub async fn begin_load(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        spread: u64,
    ) -> Result<bool> {
        check_spread(item, spread)?;
        if epoch == 0 || epoch > UNITS_MAX || fence.get() > UNITS_MAX {
            let message = format!(
                "cannot load `{item}` under epoch `{epoch}` and fence `{fence}`: out of bounds"
            );
            return Err(Error::new(ErrorKind::InvalidSetting, message));
        }
        each!(self, item, begin_load(item, epoch, fence, spread))
    }

    /// Stops the sale of an item until an operator has it rebuilt. A gate in memory is never ahead of
    /// its ledger.
    pub(crate) async fn stop(&self, item: &str) -> Result<()> {
        match &self.backend {
            Backend::Memory(_) => Ok(()),
            Backend::Redis(gate) => gate.stop(item).await,
        }
    }

    /// What the shelves of an item whose load has begun know of the epoch before. A shelf that lost
    /// data is not among them.
    pub(crate) async fn ended(&self, item: &str) -> Result<Vec<Ended>> {
        each!(self, item, ended(item))
    }

    /// Some of the answers of the epoch that a load has ended, with the orders and whose they are,
    /// and where to continue.
    pub(crate) async fn before(
        &self,
        item: &str,
        from: Page,
    ) -> Result<(Vec<(OrderId, Lost)>, Option<Page>)> {
        match &self.backend {
            Backend::Memory(_) => Ok((Vec::new(), None)),
            Backend::Redis(gate) => gate.before(item, from).await,
        }
    }

    /// Deletes these answers, when they are not needed any more.
    pub(crate) async fn forget_before(&self, item: &str) -> Result<()> {
        match &self.backend {
            Backend::Memory(_) => Ok(()),
            Backend::Redis(gate) => gate.forget_before(item).await,
        }
    }

    /// Adds what buyers have, and answers to remember, to a load with that epoch and fence.
    /// `false`: another load came in between.
    pub async fn load_buyers(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        buyers: &[(String, u64)],
        answers: &[Remembered],
    ) -> Result<bool> {
        each!(self, item, load_buyers(item, epoch, fence, buyers, answers))
    }

    /// Finishes a load: from now on the item is sold here. Refused (`false`) if another load came
    /// in between, or if the server is not the one that the load began on. Repeating it changes
    /// nothing.
    pub async fn finish_load(&self, item: &str, load: &Load) -> Result<bool> {
        if load.left.is_some_and(|left| left > UNITS_MAX) {
            let message = format!(
                "cannot load `{item}` with `{}` units: the most is {UNITS_MAX}",
                load.left.unwrap_or_default()
            );
            return Err(Error::new(ErrorKind::InvalidUnits, message));
        }
        check_spread(item, load.spread)?;
        each!(self, item, finish_load(item, load))
    }

    /// Delivers entries that were not delivered yet, waiting for some up to `patience`.
    ///
    /// Cancel safe in that nothing is lost: entries delivered to a dropped future are found by
    /// [`claim`](Self::claim).
    pub async fn read(
        &self,
        item: &str,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Entry>> {
        item_name(item)?;
        match &self.backend {
            Backend::Memory(gate) => Ok(gate.read(item, consumer, count, patience).await),
            Backend::Redis(gate) => gate.read(item, consumer, count, patience).await,
        }
    }

    /// As [`read`](Self::read), from one shelf of a spread item: a caller that waits for entries
    /// waits for each shelf separately.
    pub(crate) async fn read_shelf(
        &self,
        item: &str,
        shelf: u64,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Entry>> {
        match &self.backend {
            Backend::Memory(gate) => Ok(gate.read(item, consumer, count, patience).await),
            Backend::Redis(gate) => {
                gate.read_shelf(item, shelf, consumer, count, patience)
                    .await
            }
        }
    }

    /// As [`claim`](Self::claim), from one shelf.
    pub(crate) async fn claim_shelf(
        &self,
        item: &str,
        shelf: u64,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        match &self.backend {
            Backend::Memory(gate) => gate.claim(item, consumer, idle, count),
            Backend::Redis(gate) => gate.claim_shelf(item, shelf, consumer, idle, count).await,
        }
    }

    /// Finishes moves of units between shelves that their process abandoned. Buyers that find their
    /// shelf empty do so too. Harmless if that process is still alive.
    pub async fn finish_moves(&self, item: &str) -> Result<()> {
        item_name(item)?;
        match &self.backend {
            Backend::Memory(_) => Ok(()),
            Backend::Redis(gate) => gate.finish_moves(item).await,
        }
    }

    /// Delivers entries that were delivered at least `idle` ago and not acknowledged, oldest first.
    /// With zero: all of them. The delivery counts of the entries are exact.
    pub async fn claim(
        &self,
        item: &str,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        each!(self, item, claim(item, consumer, idle, count))
    }

    /// Tells that a consumer is alive, and will be for this long.
    pub(crate) async fn beat(&self, consumer: &str, lasts: Duration) -> Result<()> {
        match &self.backend {
            Backend::Memory(_) => Ok(()),
            Backend::Redis(gate) => gate.beat(consumer, lasts).await,
        }
    }

    /// Delivers entries of consumers that are not alive, if they were delivered at least `idle` ago.
    pub(crate) async fn claim_from_dead(
        &self,
        item: &str,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        match &self.backend {
            Backend::Memory(_) => Ok(Vec::new()),
            Backend::Redis(gate) => gate.claim_from_dead(item, consumer, idle, count).await,
        }
    }

    /// Removes entries from the queue for good, after their commit. Entries that are already gone
    /// do no harm.
    pub async fn acknowledge(&self, item: &str, entries: &[OrderId]) -> Result<()> {
        for entry in entries {
            of_item(item, entry)?;
        }
        each!(self, item, acknowledge(item, entries))
    }

    /// Moves an entry from the queue to the dead letters, where it stays until an operator decides.
    /// One step. Does nothing if it is not in the queue.
    pub async fn bury(&self, item: &str, entry: &OrderId, reason: &str) -> Result<()> {
        of_item(item, entry)?;
        each!(self, item, bury(item, entry, reason))
    }

    /// The dead letters of an item with their reasons, oldest first.
    pub async fn dead(&self, item: &str, count: usize) -> Result<Vec<(Entry, String)>> {
        each!(self, item, dead(item, count))
    }

    /// Removes a dead letter for good, after its fate is in the ledger. `false`: it was not there.
    pub async fn unbury(&self, item: &str, entry: &OrderId) -> Result<bool> {
        of_item(item, entry)?;
        each!(self, item, unbury(item, entry))
    }

    /// The entry of an order that is still in the queue or among the dead letters.
    pub async fn find(&self, order: &OrderId) -> Result<Option<Entry>> {
        each!(self, order.item(), find(order))
    }

    /// Removes a closed item with an empty queue and no dead letters. `false`: it is not closed, or
    /// entries are left.
    pub async fn forget(&self, item: &str) -> Result<bool> {
        each!(self, item, forget(item))
    }
}
