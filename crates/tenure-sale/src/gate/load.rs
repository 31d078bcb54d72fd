//! The data that a gate is loaded with.

use tenure::Fence;

use crate::item::{ItemState, Terms};
use crate::order::OrderId;

/// The data that a gate is loaded with, read from the ledger in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The new epoch, greater than all before.
    pub epoch: u64,
    /// The fence of the lock that protects the load: a lower one is refused.
    pub fence: Fence,
    /// The state of the item.
    pub state: ItemState,
    /// Units left: total minus sold. `None` if unlimited.
    pub left: Option<u64>,
    /// The number of the newest change that is included.
    pub change: u64,
    /// The number of shelves.
    pub spread: u64,
    /// The terms of sale.
    pub terms: Terms,
}

/// An answer for the gate to remember after a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Whose request.
    pub buyer: String,
    /// The buyer's id of the request.
    pub request: String,
    /// For how many units.
    pub units: u64,
    /// Its order.
    pub order: OrderId,
}

/// How many entries a shelf was given in an epoch that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) shelf: u64,
    pub(crate) epoch: u64,
    pub(crate) entries: u64,
}

/// Where to continue to read the answers of an epoch that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) shelf: u64,
    pub(crate) cursor: String,
}

impl Page {
    /// At the beginning of a shelf.
    pub(crate) fn at_shelf(shelf: u64) -> Self {
        Self {
            shelf,
            cursor: "0".to_owned(),
        }
    }
}
