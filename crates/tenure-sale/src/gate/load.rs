//! What the gate is loaded with.

use tenure::Fence;

use crate::item::{ItemState, Terms};
use crate::order::OrderId;

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
    /// Over how many shelves it is spread.
    pub spread: u64,
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
