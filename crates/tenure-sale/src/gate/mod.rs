//! The gate: where buyers are let in or turned away, at once and one after the other.
//!
//! One atomic step per order checks everything, puts the order into the item's queue and sets its
//! units aside. The gate may be too strict, never too generous: the ledger is the truth, and a gate
//! whose server was restarted or replaced refuses until it is rebuilt from the ledger.

mod memory;
mod redis;

use std::time::Duration;

use tenure::Fence;

pub use crate::entry::{Entry, Wanted};
use crate::error::Result;
use crate::item::{ItemState, Terms};
use crate::ledger::Change;
use crate::order::{Answer, OrderId, Request};

/// The gate of all items. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Gate {
    backend: Backend,
}

#[derive(Clone, Debug)]
enum Backend {
    Memory(memory::MemoryGate),
    Redis(redis::RedisGate),
}

/// What the gate knows of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether the server is the one that was loaded, so that orders may be accepted.
    pub current: bool,
    /// Whether it is on sale; `None` while it is being rebuilt.
    pub state: Option<ItemState>,
    /// Under which epoch it was loaded.
    pub epoch: u64,
    /// Units left; `None` if unlimited.
    pub left: Option<u64>,
    /// The number of the last change that the gate applied.
    pub change: u64,
    /// Entries in the queue, those handed to consumers included.
    pub queued: u64,
    /// Units that all entries in the queue have set aside, if it was asked for.
    pub queued_units: Option<u64>,
    /// Entries handed to consumers and not acknowledged.
    pub pending: u64,
    /// Entries that were buried as dead.
    pub dead: u64,
}

/// What came of telling the gate of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The gate is at the last of them now.
    Done,
    /// The gate is at another change than the caller thought: read the changes after it, and try again.
    At(u64),
    /// The gate is of another epoch, or does not know the item: nothing may be told to it before a rebuild.
    Stale,
}

/// What came of taking units out for something that is no buyer's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The units are set aside and the entry stands in the queue.
    Queued(OrderId),
    /// The same reference did so before.
    Replayed(OrderId),
    /// Fewer units are left.
    SoldOut {
        /// So many.
        left: u64,
    },
    /// Too many entries wait for the ledger.
    Busy,
    /// The gate does not know the item.
    NoItem,
    /// The gate must be rebuilt first.
    StaleEpoch,
}

/// What the gate is loaded with, read from the ledger in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The new epoch, above all before.
    pub epoch: u64,
    /// The fence of the lock under which the load is done: an older one is refused.
    pub fence: Fence,
    /// Whether it is on sale.
    pub state: ItemState,
    /// Units left: total less sold. `None` if unlimited.
    pub left: Option<u64>,
    /// The number of the newest change that is contained.
    pub change: u64,
    /// On which terms it is sold.
    pub terms: Terms,
}

/// An answer that the gate is to remember after a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Whose request.
    pub buyer: String,
    /// The buyer's id of it.
    pub request: String,
    /// For how many units.
    pub units: u64,
    /// The order it became.
    pub order: OrderId,
}

impl Gate {
    /// Connects to the gate that `url` names: `memory://` for one of this process alone, else any
    /// Redis as for [`Tenure::connect`](tenure::Tenure::connect).
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        todo!()
    }

    /// Whether this gate lives in this process alone.
    pub fn is_memory(&self) -> bool {
        matches!(self.backend, Backend::Memory(_))
    }

    /// Asks for an order. Requests of concurrent callers travel together.
    ///
    /// # Errors
    ///
    /// If the gate cannot be reached or does not answer in time. What became of the request is
    /// unknown then: ask again with the same request id.
    pub async fn ask(&self, request: &Request) -> Result<Answer> {
        todo!()
    }

    /// What the gate knows of an item; `None` if it does not know it.
    pub async fn standing(&self, item: &str) -> Result<Option<Standing>> {
        todo!()
    }

    /// Tells the gate what changed in the ledger, in the order of the numbers. Takes effect only if the
    /// gate is at change `after` of that epoch, and then all of them at once.
    pub async fn apply(
        &self,
        item: &str,
        epoch: u64,
        after: u64,
        changes: &[Change],
    ) -> Result<Applied> {
        todo!()
    }

    /// Sets units aside for something that is no buyer's order, and queues it.
    pub async fn take(&self, item: &str, wanted: &Wanted) -> Result<Taken> {
        todo!()
    }

    /// Begins to load an item: nothing is sold until [`finish_load`](Self::finish_load). The queue is
    /// left alone (a rebuild drains it first, see [`drained`](Self::drained)); what was remembered of buyers is dropped.
    /// `false`: a load with a greater fence or epoch was here before.
    pub async fn begin_load(&self, item: &str, epoch: u64, fence: Fence) -> Result<bool> {
        todo!()
    }

    /// Adds what buyers have, and answers to remember, to a load that has begun under that epoch and fence.
    pub async fn load_buyers(
        &self,
        item: &str,
        epoch: u64,
        fence: Fence,
        buyers: &[(String, u64)],
        answers: &[Remembered],
    ) -> Result<bool> {
        todo!()
    }

    /// Ends a load: from now on the item is sold here. Refused (`false`) if another load came between,
    /// or if the server is not the one that the load began on.
    pub async fn finish_load(&self, item: &str, load: &Load) -> Result<bool> {
        todo!()
    }

    /// Hands out entries that nobody has yet, waiting for some up to `patience`.
    pub async fn read(
        &self,
        item: &str,
        consumer: &str,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Entry>> {
        todo!()
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
        todo!()
    }

    /// Takes entries out of the queue for good, after their commit.
    pub async fn acknowledge(&self, item: &str, entries: &[OrderId]) -> Result<()> {
        todo!()
    }

    /// Moves an entry from the queue to the dead, where it stays until somebody decides. One step.
    pub async fn bury(&self, item: &str, entry: &OrderId, reason: &str) -> Result<()> {
        todo!()
    }

    /// The dead of an item with the reasons, from the oldest on.
    pub async fn dead(&self, item: &str, count: usize) -> Result<Vec<(Entry, String)>> {
        todo!()
    }

    /// Takes an entry from the dead for good, after its fate is in the ledger. `false`: it was not there.
    pub async fn unbury(&self, item: &str, entry: &OrderId) -> Result<bool> {
        todo!()
    }

    /// The entry of an order that still stands in the queue or among the dead.
    pub async fn find(&self, order: &OrderId) -> Result<Option<Entry>> {
        todo!()
    }

    /// Forgets a closed item whose queue is empty. `false`: it is not closed, or entries are left.
    pub async fn forget(&self, item: &str) -> Result<bool> {
        todo!()
    }
}
