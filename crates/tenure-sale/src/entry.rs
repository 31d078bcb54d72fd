//! Entries: what stands in the queue between gate and ledger.

use std::time::SystemTime;

use crate::order::OrderId;

/// One entry of an item's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the queue, and the id of the order if it is one: the gate numbers entries by
    /// `epoch-number`, so that both are the same.
    pub id: OrderId,
    /// What it asks the ledger for; an entry that cannot be read is kept as the reason why.
    pub what: Result<Wanted, String>,
    /// When the gate accepted it.
    pub accepted_at: SystemTime,
    /// How often it was handed to a consumer, this time included.
    pub deliveries: u64,
}

/// What an entry asks the ledger for. The gate has set the units aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A new order.
    Order {
        /// Who ordered.
        buyer: String,
        /// The buyer's id of the request.
        request: String,
        /// How many units.
        units: u64,
    },
    /// The stock is to become smaller.
    Withdrawal {
        /// The operator's id of this withdrawal; the ledger does it once.
        reference: String,
        /// Why, for people.
        reason: String,
        /// How many units.
        units: u64,
        /// Only if the stock's total is still this.
        expected: Option<u64>,
    },
    /// An order that expired or was cancelled has been paid for after all, and gets units again.
    Again {
        /// The order.
        order: OrderId,
        /// Whose order.
        buyer: String,
        /// How many units.
        units: u64,
    },
}

impl Wanted {
    /// How many units the gate has set aside for it.
    pub fn units(&self) -> u64 {
        match self {
            Self::Order { units, .. }
            | Self::Withdrawal { units, .. }
            | Self::Again { units, .. } => *units,
        }
    }
}
