//! Changes: what the ledger tells the gate and everyone who watches.
//!
//! Each transaction of the ledger that touches an item gives its changes the item's next numbers,
//! under the lock of the item's row, so that their order is the order of the commits. The gate keeps
//! the number up to which it has applied them and moves it by compare-and-set: every change takes
//! effect at the gate once, also if two relays send it, and also if a relay dies in between. A rebuild
//! starts the gate at the newest number and thereby covers all changes that were not sent.

use std::time::SystemTime;

use crate::item::{ItemState, Terms};
use crate::order::{OrderId, OrderState};

/// One change of an item, numbered without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number among the changes of the item, from one on.
    pub number: u64,
    /// When it was written, by the ledger's clock.
    pub at: SystemTime,
    /// What changed.
    pub what: What,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A batch of orders came into the ledger, all from the queue to one state.
    /// The gate has nothing to do.
    Committed {
        /// All of them, of one epoch.
        orders: Vec<OrderId>,
        /// Reserved, rejected because nothing is left, lost or dead.
        state: OrderState,
    },
    /// An order changed its state and keeps, or never had, its units. Nothing to do at the gate.
    Moved {
        /// Which.
        order: OrderId,
        /// What it is now.
        state: OrderState,
    },
    /// An order let go of its units: the gate adds them and lowers what the buyer has.
    Released {
        /// Which.
        order: OrderId,
        /// What it is now.
        state: OrderState,
        /// Whose it was.
        buyer: String,
        /// How many units.
        units: u64,
    },
    /// Units were added to the stock; the gate adds them.
    Added {
        /// How many.
        units: u64,
        /// Why, in somebody's words.
        reason: String,
    },
    /// Units that the gate had already set aside were taken out of the stock. Nothing to do.
    Withdrawn {
        /// How many.
        units: u64,
        /// Why, in somebody's words.
        reason: String,
    },
    /// Units that the gate had set aside in vain: for a withdrawal that the ledger refused, or as the part
    /// of an order that there would have been. The gate adds them.
    Returned {
        /// How many.
        units: u64,
        /// Why, in somebody's words.
        reason: String,
    },
    /// The item was opened, paused or closed.
    State(ItemState),
    /// The item is sold on other terms. The buyers' units must be known if a limit is new: the one
    /// who relays rebuilds in that case.
    Terms(Box<Terms>),
}
