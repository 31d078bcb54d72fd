//! Items on sale: what is sold, how much of it, when and to whom.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::Result;
use crate::names::item_name;

/// The most shelves of one item.
pub const SPREAD_MAX: u64 = 64;

/// An item to be put into the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    pub(crate) name: String,
    pub(crate) units: u64,
    pub(crate) unlimited: bool,
    pub(crate) spread: u64,
    pub(crate) terms: Terms,
}

/// On which terms an item is sold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Nobody may order before, by the gate's clock.
    pub starts_at: Option<SystemTime>,
    /// Nobody may order from then on, by the gate's clock.
    pub ends_at: Option<SystemTime>,
    /// The most units that one buyer may have, over all orders that hold units.
    pub limit_per_buyer: Option<u64>,
    /// The most units of one order.
    pub units_per_order: u64,
    /// An order not paid for within this time expires. Counted from its commit in the ledger.
    pub pay_within: Option<Duration>,
    /// With so many orders waiting for the ledger the gate answers busy. Of an item that is spread, so
    /// many of each shelf.
    pub backlog_max: u64,
    /// For how long after the end of a sale the gate still knows the answers it gave.
    pub answers_kept: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            starts_at: None,
            ends_at: None,
            limit_per_buyer: None,
            units_per_order: 1,
            pay_within: None,
            backlog_max: 100_000,
            answers_kept: Duration::from_hours(24),
        }
    }
}

impl NewItem {
    /// An item with so many units, on the default [`Terms`].
    ///
    /// # Errors
    ///
    /// If the name cannot be part of a key.
    pub fn new(name: impl AsRef<str>, units: u64) -> Result<Self> {
        Ok(Self {
            name: item_name(name.as_ref())?,
            units,
            unlimited: false,
            spread: 1,
            terms: Terms::default(),
        })
    }

    /// An item that never sells out.
    ///
    /// # Errors
    ///
    /// If the name cannot be part of a key.
    pub fn unlimited(name: impl AsRef<str>) -> Result<Self> {
        let mut item = Self::new(name, 0)?;
        item.unlimited = true;
        Ok(item)
    }

    /// On other terms.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Spreads the stock over so many shelves, 1 to [`SPREAD_MAX`]; 1 by default. The shelves of an
    /// item lie on different nodes of a Redis Cluster, if it has as many, so that one item is sold
    /// by all of them. Nothing else changes for buyers; but an answer does not say how many units
    /// are left, unless it is *sold out*.
    ///
    /// Each shelf costs every change of the stock a call, and the last units are moved between
    /// them. Worth it only for an item that one node cannot serve.
    ///
    /// Stop all processes of versions that know of no spread before: they would take one shelf for
    /// the whole item.
    #[must_use]
    pub fn spread(mut self, shelves: u64) -> Self {
        self.spread = shelves;
        self
    }
}

/// Whether an item is on sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemState {
    /// In the ledger, not at the gate.
    Draft,
    /// On sale, within its window.
    Open,
    /// Known at the gate, which refuses with *paused*.
    Paused,
    /// Over. It may be opened again.
    Closed,
}

impl ItemState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Draft, Self::Open, Self::Paused, Self::Closed];

    /// Its word, as it stands in the ledger and at the gate.
    pub fn word(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Closed => "closed",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl fmt::Display for ItemState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An item as the ledger knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Whether it is on sale.
    pub state: ItemState,
    /// All units there ever were, less those that were withdrawn. Meaningless if it is unlimited.
    pub total: u64,
    /// Whether it never sells out.
    pub unlimited: bool,
    /// Over how many shelves its stock is spread, see [`NewItem::spread`].
    pub spread: u64,
    /// Units of orders that hold units and are in the ledger.
    pub sold: u64,
    /// On which terms it is sold.
    pub terms: Terms,
    /// How often the gate was loaded from the ledger. Zero: never.
    pub epoch: u64,
    /// The number of its newest change, see [`Change`](crate::change::Change).
    pub(crate) change: u64,
}
