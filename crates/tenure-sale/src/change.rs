//! Changes: what the ledger sends to the gate and to watchers.
//!
//! Each ledger transaction that touches an item numbers its changes consecutively, under the lock
//! of the item's row, so that their order is the commit order. The gate stores the number of the
//! last change it applied and advances it by compare-and-set: every change takes effect exactly
//! once, even if two relays send it or a relay dies halfway. A rebuild starts the gate at the
//! newest number and so covers all changes that were not sent.

use std::time::SystemTime;

use crate::item::{ItemState, Terms};
use crate::order::{OrderId, OrderState};

/// One change of an item. Numbers have no gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its number among the changes of the item, starting at one.
    pub number: u64,
    /// When it was written, by the ledger's clock.
    pub at: SystemTime,
    /// What changed.
    pub what: What,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A batch of orders was committed to the ledger, all from the queue to one state. Nothing to
    /// do at the gate.
    Committed {
        /// The orders, all of one epoch.
        orders: Vec<OrderId>,
        /// Reserved, rejected because nothing is left, lost or dead.
        state: OrderState,
    },
    /// An order changed its state and keeps its units, or never had any. Nothing to do at the gate.
    Moved {
        /// The order.
        order: OrderId,
        /// Its new state.
        state: OrderState,
    },
    /// An order released its units: the gate adds them and lowers the buyer's count.
    Released {
        /// The order.
        order: OrderId,
        /// Its new state.
        state: OrderState,
        /// Its buyer.
        buyer: String,
        /// How many units.
        units: u64,
    },
    /// The gate had accepted an order, or a late payment, for units that do not exist: it only
    /// lowers the buyer's count.
    Refused {
        /// The order.
        order: OrderId,
        /// Its new state.
        state: OrderState,
        /// Its buyer.
        buyer: String,
        /// How many units.
        units: u64,
    },
    /// Units were added to the stock; the gate adds them.
    Added {
        /// How many.
        units: u64,
        /// The reason, as entered.
        reason: String,
    },
    /// Units that the gate had already reserved were withdrawn from the stock. Nothing to do.
    Withdrawn {
        /// How many.
        units: u64,
        /// The reason, as entered.
        reason: String,
    },
    /// Units that the gate had reserved in vain: for a withdrawal that the ledger refused, or as
    /// the part of an order that was available. The gate adds them.
    Returned {
        /// How many.
        units: u64,
        /// The reason, as entered.
        reason: String,
    },
    /// The item was opened, paused or closed.
    State(ItemState),
    /// The item has new terms. If a limit is new, the gate must know what buyers have: the relay
    /// then rebuilds it.
    Terms(Box<Terms>),
}
