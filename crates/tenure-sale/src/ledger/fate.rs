//! Results of settling an entry or changing a state.

use crate::order::{Order, OrderState};

/// The fate of an entry that was sent to the ledger. All but [`Refused`](Fate::Refused) and
/// [`Ahead`](Fate::Ahead) mean that the entry is settled and can be acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is now in the ledger, in this state (reserved, rejected, or cancelled if that was
    /// requested before).
    Settled(OrderState),
    /// It was already in the ledger, with the same content; this is its current state.
    Known(OrderState),
    /// A withdrawal that was done (`true`) or refused and returned to the gate (`false`).
    Withdrawal(bool),
    /// From an epoch older than the item's: only recorded as lost.
    Stale,
    /// From an epoch newer than the item's: the ledger was put back, for example restored from an
    /// older copy. Leave it where it is, and stop the gate.
    Ahead,
    /// It contradicts the ledger's data for the same order id, or cannot be read. Bury it.
    Refused(String),
}

/// The result of a state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It now has the requested state.
    Done(Order),
    /// It already had that state.
    Already(Order),
    /// Its state does not allow it; nothing was changed.
    Refused(Order),
    /// The ledger does not know the order (yet).
    Unknown,
}
