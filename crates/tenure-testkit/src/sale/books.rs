//! The final state of ledger and gate, as plain data.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::line::words;

/// The books of a sale.
#[derive(Debug, Clone, Default)]
pub struct Books {
    /// All items.
    pub items: Vec<Item>,
    /// All orders in the ledger.
    pub orders: Vec<Order>,
    /// The movements in the ledger, in commit order.
    pub journal: Vec<Posting>,
}

/// An item in ledger and gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// All units; `None` if it never sells out.
    pub total: Option<u64>,
    /// Units held by orders, as the ledger counts them.
    pub sold: u64,
    /// The maximum number of units per buyer.
    pub limit: Option<u64>,
    /// The state of the gate.
    pub counter: Counter,
    /// The units of each buyer according to the gate, if it tracks them. Buyers without units are left
    /// out.
    pub quotas: Option<BTreeMap<String, u64>>,
}

/// The state of an item at the gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counter {
    /// Units left to sell; a naive gate may go below zero. Meaningless if the item is unlimited.
    pub left: i64,
    /// Orders that wait for the ledger.
    pub queued: u64,
    /// Units of the queued orders.
    pub queued_units: u64,
    /// Orders delivered to a consumer and not acknowledged.
    pub pending: u64,
    /// Orders in the dead letter queue.
    pub dead: u64,
}

/// An order in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: String,
    /// The item.
    pub item: String,
    /// The buyer; unknown for a lost order.
    pub buyer: String,
    /// The buyer's id of the request.
    pub request: String,
    /// The number of units.
    pub units: u64,
    /// Its state.
    pub state: State,
}

/// A movement of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// The item.
    pub item: String,
    /// The movement.
    pub movement: Movement,
}

/// A change in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Movement {
    /// Units were reserved for an order.
    Reserved {
        /// The order.
        order: String,
        /// The buyer.
        buyer: String,
        /// The number of units.
        units: u64,
    },
    /// Units of an order were released.
    Released {
        /// The order.
        order: String,
        /// The buyer.
        buyer: String,
        /// The number of units.
        units: u64,
    },
    /// Units were added to the stock.
    Added(u64),
    /// Units were withdrawn from the stock.
    Withdrawn(u64),
}

words! {
    /// The state of an order.
    #[derive(Hash)]
    pub enum State {
        /// Not yet in the ledger.
        Queued = "queued",
        /// In the ledger: confirmed.
        Reserved = "reserved",
        /// Paid for.
        Paid = "paid",
        /// Cancelled by the buyer.
        Cancelled = "cancelled",
        /// Not paid for in time.
        Expired = "expired",
        /// Refused by the ledger.
        Rejected = "rejected",
        /// Lost by the gate's server before it reached the ledger.
        Lost = "lost",
        /// Given up by the consumers; its units stay reserved.
        Dead = "dead",
        /// Paid for after its units were gone.
        PaidUnfulfilled = "paid-unfulfilled",
    }
}

impl State {
    /// Whether an order in this state holds units in the ledger.
    pub fn holds_units(self) -> bool {
        matches!(self, Self::Reserved | Self::Paid | Self::Dead)
    }

    /// Whether an order in this state may later be in the other, after any number of steps.
    pub fn may_become(self, later: Self) -> bool {
        use State::{Cancelled, Dead, Expired, Paid, PaidUnfulfilled, Queued, Reserved};
        let next: &[Self] = match self {
            Queued => return true,
            Dead => &[Reserved, Paid, Cancelled, Expired, PaidUnfulfilled],
            Reserved => &[Paid, Cancelled, Expired, PaidUnfulfilled],
            // Paid for too late: it gets units again, or must be refunded.
            Cancelled | Expired => &[Paid, PaidUnfulfilled],
            Paid | Self::Rejected | Self::Lost | PaidUnfulfilled => &[],
        };
        self == later || next.contains(&later)
    }
}

impl Books {
    /// The orders of an item that hold units.
    pub(super) fn holding<'a>(&'a self, item: &'a str) -> impl Iterator<Item = &'a Order> {
        let of_it = self.orders.iter().filter(move |order| order.item == item);
        of_it.filter(|order| order.state.holds_units())
    }

    /// The movements of an item.
    pub(super) fn postings<'a>(&'a self, item: &'a str) -> impl Iterator<Item = &'a Movement> {
        let of_it = self.journal.iter().filter(move |entry| entry.item == item);
        of_it.map(|entry| &entry.movement)
    }

    /// The total units before the first movement.
    pub(super) fn first_total(&self, item: &Item, total: u64) -> u64 {
        let moved = self.postings(&item.name);
        let (mut added, mut withdrawn) = (0, 0);
        for movement in moved {
            match movement {
                Movement::Added(units) => added += units,
                Movement::Withdrawn(units) => withdrawn += units,
                Movement::Reserved { .. } | Movement::Released { .. } => {}
            }
        }
        (total + withdrawn).saturating_sub(added)
    }
}

impl Order {
    /// Identifies its request, like [`Operation::key`](super::Operation::key).
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.item, &self.buyer, &self.request)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "order `{}`: {} for `{}` as `{}`, {}",
            self.id, self.units, self.buyer, self.request, self.state
        )
    }
}

impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved {
                order,
                buyer,
                units,
            } => write!(f, "`{order}` reserves {units} for `{buyer}`"),
            Self::Released {
                order,
                buyer,
                units,
            } => write!(f, "`{order}` releases {units} of `{buyer}`"),
            Self::Added(units) => write!(f, "{units} added"),
            Self::Withdrawn(units) => write!(f, "{units} withdrawn"),
        }
    }
}
