//! What came of changing the gate.

use crate::order::OrderId;

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
    /// The buyer would have more than one buyer may have.
    LimitReached,
    /// Too many entries wait for the ledger.
    Busy,
    /// The gate does not know the item.
    NoItem,
    /// The gate must be rebuilt first.
    StaleEpoch,
}
