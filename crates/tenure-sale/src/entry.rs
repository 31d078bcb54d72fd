//! Entries of the queue between gate and ledger.

use std::time::{Duration, SystemTime};

use crate::item::Terms;
use crate::order::{OrderId, Request};

/// One entry of an item's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the queue, and the id of the order if it is one: the gate numbers entries as
    /// `epoch-number`, so both are the same.
    pub id: OrderId,
    /// What it asks the ledger for; for an entry that cannot be read, the reason.
    pub what: Result<Wanted, String>,
    /// When the gate accepted it.
    pub accepted_at: SystemTime,
    /// The terms under which it was accepted, which it keeps; `None` if an older version wrote it.
    pub terms: Option<AcceptedTerms>,
    /// How often it was delivered to a consumer, including this time.
    pub deliveries: u64,
}

/// The terms under which an order was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedTerms {
    /// The maximum number of units that its buyer might have.
    pub limit_per_buyer: Option<u64>,
    /// How long after its commit it must be paid for.
    pub pay_within: Option<Duration>,
}

impl AcceptedTerms {
    pub(crate) fn of(terms: &Terms) -> Self {
        Self {
            limit_per_buyer: terms.limit_per_buyer,
            pay_within: terms.pay_within,
        }
    }
}

/// An entry that the gate gave a number and that never reached the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) number: u64,
    /// Empty if nobody knows whose order it was.
    pub(crate) buyer: String,
    pub(crate) request: String,
    pub(crate) units: u64,
    /// It is known to be something else than an order.
    pub(crate) is_no_order: bool,
}

impl Lost {
    /// An accepted order.
    pub(crate) fn of(order: &OrderId, request: &Request) -> Self {
        Self {
            number: order.number(),
            buyer: request.buyer().to_owned(),
            request: request.id().to_owned(),
            units: request.wanted(),
            is_no_order: false,
        }
    }

    /// An entry of which nothing but its number is known.
    pub(crate) fn unknown(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }
}

/// What an entry asks the ledger for. The gate has already reserved the units.
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
    /// A withdrawal from the stock.
    Withdrawal {
        /// The operator's id of this withdrawal; the ledger does it only once.
        reference: String,
        /// The reason, for people.
        reason: String,
        /// How many units.
        units: u64,
        /// Only if the stock's total still has this value.
        expected: Option<u64>,
    },
    /// A late payment for an expired or cancelled order, which gets units again.
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
    /// How many units the gate has reserved for it.
    pub fn units(&self) -> u64 {
        match self {
            Self::Order { units, .. }
            | Self::Withdrawal { units, .. }
            | Self::Again { units, .. } => *units,
        }
    }
}
