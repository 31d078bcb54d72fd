//! What came of an entry, or of a change of state.

use crate::order::{Order, OrderState};

/// What became of an entry that was brought to the ledger. All but [`Refused`](Fate::Refused) mean that
/// the entry is settled and can be acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the ledger now, in this state (reserved, rejected, cancelled because that was wished before).
    Settled(OrderState),
    /// It was in the ledger before, with the same content; this is its state today.
    Known(OrderState),
    /// A withdrawal that was done (`true`) or refused and returned to the gate (`false`).
    Withdrawal(bool),
    /// Of an epoch older than the item's: nothing was written but that it is lost.
    Stale,
    /// It contradicts what the ledger holds under the same order id, or cannot be read. Bury it.
    Refused(String),
}

/// What came of a change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is as wished now.
    Done(Order),
    /// It was so before.
    Already(Order),
    /// Its state does not allow it; nothing was changed.
    Refused(Order),
    /// The ledger does not know the order (yet).
    Unknown,
}
