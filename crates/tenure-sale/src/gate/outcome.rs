//! Results of changing the gate.

use crate::order::OrderId;

/// The result of applying changes at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The gate is now at the last of them.
    Done,
    /// The gate is at a different change than the caller thought: read the changes after it, and
    /// try again.
    At(u64),
    /// The gate has another epoch, or does not know the item: it must be rebuilt first.
    Stale,
}

/// The result of taking units for an entry that is not a buyer's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The units are reserved and the entry is queued.
    Queued(OrderId),
    /// The same reference already did so.
    Replayed(OrderId),
    /// Fewer units are left.
    SoldOut {
        /// The number of units left.
        left: u64,
    },
    /// The buyer would exceed the limit.
    LimitReached,
    /// Too many entries are queued for the ledger.
    Busy,
    /// The gate does not know the item.
    NoItem,
    /// The gate must be rebuilt first.
    StaleEpoch,
}
