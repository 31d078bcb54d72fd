//! What ledger and gate say when all is quiet, as plain data.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::line::words;

/// The books of a sale.
#[derive(Debug, Clone, Default)]
pub struct Books {
    /// All items.
    pub items: Vec<Item>,
    /// All orders that the ledger knows.
    pub orders: Vec<Order>,
    /// What the ledger moved, in the order of the commits.
    pub journal: Vec<Posting>,
}

/// An item, as ledger and gate know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// All units that there are; `None` if it never sells out.
    pub total: Option<u64>,
    /// Units of orders that hold some, by the ledger's own count.
    pub sold: u64,
    /// The most units that one buyer may have.
    pub limit: Option<u64>,
    /// What the gate says.
    pub counter: Counter,
    /// What the gate believes each buyer to have, where it keeps that. Who has nothing is left out.
    pub quotas: Option<BTreeMap<String, u64>>,
}

/// What the gate says of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counter {
    /// Units left to sell; a naive one may go below zero. Means nothing if the item is unlimited.
    pub left: i64,
    /// Orders that wait for the ledger.
    pub queued: u64,
    /// Units of these.
    pub queued_units: u64,
    /// Orders that were handed to somebody who has not said what became of them.
    pub pending: u64,
    /// Orders that were given up.
    pub dead: u64,
}

/// An order in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: String,
    /// Of which item.
    pub item: String,
    /// By whom; nobody knows of an order that was lost.
    pub buyer: String,
    /// The buyer's own id of the request.
    pub request: String,
    /// For how many units.
    pub units: u64,
    /// What became of it.
    pub state: State,
}

/// Something that the ledger moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// Of which item.
    pub item: String,
    /// What.
    pub movement: Movement,
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Movement {
    /// Units were set aside for an order.
    Reserved {
        /// Which.
        order: String,
        /// For whom.
        buyer: String,
        /// How many.
        units: u64,
    },
    /// Units of an order went back.
    Released {
        /// Which.
        order: String,
        /// Whose.
        buyer: String,
        /// How many.
        units: u64,
    },
    /// Units came into the stock.
    Added(u64),
    /// Units were taken out of the stock.
    Withdrawn(u64),
}

words! {
    /// What became of an order.
    #[derive(Hash)]
    pub enum State {
        /// Not yet in the ledger.
        Queued = "queued",
        /// In the ledger: confirmed.
        Reserved = "reserved",
        /// Paid for.
        Paid = "paid",
        /// Called off.
        Cancelled = "cancelled",
        /// Not paid for in time.
        Expired = "expired",
        /// Refused by the ledger.
        Rejected = "rejected",
        /// Forgotten by the gate's server before the ledger heard of it.
        Lost = "lost",
        /// Given up by the consumers; its units stay set aside.
        Dead = "dead",
        /// Paid for when its units were gone.
        PaidUnfulfilled = "paid-unfulfilled",
    }
}

impl State {
    /// Whether an order in this state holds units by the ledger.
    pub fn holds_units(self) -> bool {
        matches!(self, Self::Reserved | Self::Paid | Self::Dead)
    }

    /// Whether an order may come from this state to the other, by one or more steps or none.
    pub fn may_become(self, later: Self) -> bool {
        use State::{Cancelled, Dead, Expired, Paid, PaidUnfulfilled, Queued, Reserved};
        let next: &[Self] = match self {
            Queued => return true,
            Dead => &[Reserved, Paid, Cancelled, Expired, PaidUnfulfilled],
            Reserved => &[Paid, Cancelled, Expired, PaidUnfulfilled],
            // Paid for too late: it gets units again, or is to be refunded.
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

    /// What was moved of an item.
    pub(super) fn postings<'a>(&'a self, item: &'a str) -> impl Iterator<Item = &'a Movement> {
        let of_it = self.journal.iter().filter(move |entry| entry.item == item);
        of_it.map(|entry| &entry.movement)
    }

    /// The units that there were before the first movement.
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
    /// What its request is known by, as [`Deed::key`](super::Deed::key).
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
