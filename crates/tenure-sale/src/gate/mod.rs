//! The gate: where buyers are let in or turned away, at once and one after the other.
//!
//! One atomic step per order checks everything, puts the order into the item's queue and sets its
//! units aside. The gate may be too strict, never too generous: the ledger is the truth, and a gate
//! whose server was restarted or replaced refuses until it is rebuilt from the ledger.
//!
//! The stock of an item that one node cannot serve is spread over several *shelves*, each in a slot of
//! its own: units move between them, buyers do not.

mod checks;
mod clock;
mod combiner;
mod fold;
mod load;
mod memory;
mod outcome;
mod redis;
mod spread;
mod standing;

use std::time::Duration;

use tenure::{Fence, Tenure};

pub(crate) use self::checks::check_spread;
use self::checks::of_item;
pub use self::load::{Load, Remembered};
use self::memory::MemoryGate;
pub use self::outcome::{Applied, Taken};
use self::redis::RedisGate;
pub use self::standing::{ShelfStanding, Standing};
use crate::change::Change;
pub use crate::entry::{Entry, Wanted};
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

/// The same call for every backend: the one in memory answers at once.
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
    /// Connects to the gate that `url` names: `memory://` for one of its own, `memory://name` for one
    /// that all of this process share who name it, else any Redis as for
    /// [`Tenure::connect`](tenure::Tenure::connect).
    ///
    /// # Errors
    ///
    /// If the URL is wrong or the server cannot be reached.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        let backend = match url.as_ref().trim().strip_prefix("memory://") {
            Some(name) => Backend::Memory(MemoryGate::open(name)?),
            None => Backend::Redis(RedisGate::connect(url.as_ref()).await?),
        };
        Ok(Self { backend })
    }

    /// The gate over a connection that others use too.
    pub fn on(redis: tenure::redis::Client) -> Self {
        Self {
            backend: Backend::Redis(RedisGate::on(redis)),
        }
    }

    /// Takes the lock under which units are moved between shelves from `locks`, which must be at the
    /// same servers. A gate that was [connected](Self::connect) connects its own when it first needs
    /// one, and one [over a connection](Self::on) moves units without: no unit is lost by that, but
    /// processes that want the last ones may take them from each other.
    #[must_use]
    pub fn with_locks(self, locks: Tenure) -> Self {
        let backend = match self.backend {
            Backend::Redis(gate) => Backend::Redis(gate.with_locks(locks)),
            memory @ Backend::Memory(_) => memory,
        };
        Self { backend }
    }

    /// Over how many shelves this gate spreads an item that is to be spread over so many: in memory
    /// there is only one place.
    pub(crate) fn shelves_of(&self, item: &Item) -> u64 {
        if self.is_memory() { 1 } else { item.spread }
    }

    /// Whether this gate lives in this process alone.
    pub fn is_memory(&self) -> bool {
        matches!(self.backend, Backend::Memory(_))
    }

    /// Asks for an order. Requests of concurrent callers travel together.
    ///
    /// Dropping the future does not take the request back: it may have been sent. Whoever asks again
    /// with the same request id learns what became of it.
    ///
    /// # Errors
    ///
    /// If the gate cannot be reached or does not answer in time. What became of the request is
    /// unknown then: ask again with the same request id.
    pub async fn ask(&self, request: &Request) -> Result<Answer> {
        match &self.backend {
            Backend::Memory(gate) => Ok(gate.ask(request)),
            Backend::Redis(gate) => gate.ask(request).await,
        }
    }

    /// What the gate knows of an item; `None` if it does not know it. The units in the queue are not
    /// counted: see [`queued_units`](Self::queued_units).
    pub async fn standing(&self, item: &str) -> Result<Option<Standing>> {
        each!(self, item, standing(item))
    }

    /// Whether the gate sells the item of an order now, under the epoch of that order. Of an item that
    /// is spread, only the shelf of the order is asked: no other could have it.
    pub(crate) async fn sells(&self, order: &OrderId) -> Result<bool> {
        each!(self, order.item(), sells(order))
    }

    /// The units that all entries in the queue have set aside. Reads the whole queue, page by page,
    /// while it may change: exact only if nothing is sold and nothing is consumed meanwhile.
    pub async fn queued_units(&self, item: &str) -> Result<u64> {
        each!(self, item, queued_units(item))
    }

    /// Tells the gate what changed in the ledger, in the order of the numbers. Takes effect only if the
    /// gate is at change `after` of that epoch, and then all of them at once.
    ///
    /// [`Applied::Stale`] also if the gate would have to know what buyers have and does not: a limit
    /// where there was none, or an item that is opened again after its answers' time was over.
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

    /// Sets units aside for something that is no buyer's order, and queues it. Works also while the
    /// item is paused or closed.
    ///
    /// # Errors
    ///
    /// If the gate cannot be reached, if it is a buyer's order (ask for that), or if the same
    /// reference stands for other units.
    pub async fn take(&self, item: &str, wanted: &Wanted) -> Result<Taken> {
        each!(self, item, take(item, wanted))
    }

    /// Begins to load an item, onto so many shelves: nothing is sold until
    /// [`finish_load`](Self::finish_load). The queue is left alone; what was remembered of buyers is dropped.
    /// `false`: a load with a greater fence or epoch was here before, or one with this epoch is done.
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

    /// Adds what buyers have, and answers to remember, to a load that has begun under that epoch and
    /// fence. `false`: another load came between.
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

    /// Ends a load: from now on the item is sold here. Refused (`false`) if another load came between,
    /// or if the server is not the one that the load began on. A repetition changes nothing.
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

    /// Hands out entries that nobody has yet, waiting for some up to `patience`.
    ///
    /// Cancel safe in that nothing is lost: what was handed out to a future that was dropped is found
    /// by [`claim`](Self::claim).
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

    /// As [`read`](Self::read), from one shelf of an item that is spread: who waits for entries waits for
    /// each shelf by itself.
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

    /// Finishes moves of units between shelves that somebody began who is gone. Buyers who find their
    /// shelf empty do so too. Does no harm to one who is not gone.
    pub async fn finish_moves(&self, item: &str) -> Result<()> {
        item_name(item)?;
        match &self.backend {
            Backend::Memory(_) => Ok(()),
            Backend::Redis(gate) => gate.finish_moves(item).await,
        }
    }

    /// Hands out entries that were handed to somebody at least `idle` ago and not acknowledged, from
    /// the oldest on. With zero: all of them. Entries' deliveries are true.
    pub async fn claim(
        &self,
        item: &str,
        consumer: &str,
        idle: Duration,
        count: usize,
    ) -> Result<Vec<Entry>> {
        each!(self, item, claim(item, consumer, idle, count))
    }

    /// Takes entries out of the queue for good, after their commit. Those that are not there any more
    /// do no harm.
    pub async fn acknowledge(&self, item: &str, entries: &[OrderId]) -> Result<()> {
        for entry in entries {
            of_item(item, entry)?;
        }
        each!(self, item, acknowledge(item, entries))
    }

    /// Moves an entry from the queue to the dead, where it stays until somebody decides. One step.
    /// Does nothing if it is not in the queue.
    pub async fn bury(&self, item: &str, entry: &OrderId, reason: &str) -> Result<()> {
        of_item(item, entry)?;
        each!(self, item, bury(item, entry, reason))
    }

    /// The dead of an item with the reasons, from the oldest on.
    pub async fn dead(&self, item: &str, count: usize) -> Result<Vec<(Entry, String)>> {
        each!(self, item, dead(item, count))
    }

    /// Takes an entry from the dead for good, after its fate is in the ledger. `false`: it was not there.
    pub async fn unbury(&self, item: &str, entry: &OrderId) -> Result<bool> {
        of_item(item, entry)?;
        each!(self, item, unbury(item, entry))
    }

    /// The entry of an order that still stands in the queue or among the dead.
    pub async fn find(&self, order: &OrderId) -> Result<Option<Entry>> {
        each!(self, order.item(), find(order))
    }

    /// Forgets a closed item whose queue is empty and that has no dead. `false`: it is not closed, or
    /// entries are left.
    pub async fn forget(&self, item: &str) -> Result<bool> {
        each!(self, item, forget(item))
    }
}
