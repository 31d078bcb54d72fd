//! Items on sale: what is sold, how many units, when and to whom.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::Result;
use crate::names::item_name;

/// The maximum number of shelves of one item.
pub const SPREAD_MAX: u64 = 64;

/// The longest time of a term: a hundred years.
pub(crate) const TERM_MAX: Duration = Duration::from_hours(24 * 36_525);

/// A new item for the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    pub(crate) name: String,
    pub(crate) units: u64,
    pub(crate) unlimited: bool,
    pub(crate) spread: u64,
    pub(crate) terms: Terms,
}

/// The terms of sale of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// No orders before this time, by the gate's clock. Before June 2255, as is the end.
    pub starts_at: Option<SystemTime>,
    /// No orders from this time on, by the gate's clock.
    pub ends_at: Option<SystemTime>,
    /// The maximum number of units that one buyer may have, over all orders that hold units.
    pub limit_per_buyer: Option<u64>,
    /// The maximum number of units of one order.
    pub units_per_order: u64,
    /// An order not paid for within this time expires. Counted from its commit in the ledger. At
    /// most a hundred years.
    pub pay_within: Option<Duration>,
    /// With this many orders queued for the ledger the gate answers busy. For a spread item, per
    /// shelf.
    pub backlog_max: u64,
    /// How long after the end of a sale the gate still remembers its answers: at most a hundred
    /// years.
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
    /// An item with this many units, on the default [`Terms`].
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

    /// Sets other terms.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Spreads the stock over this many shelves, 1 to [`SPREAD_MAX`]; 1 by default. The shelves of
    /// an item are on different nodes of a Redis Cluster, if it has enough, so that all of them
    /// sell the item. Nothing else changes for buyers, except that an answer has the number of
    /// units left only if it is *sold out*.
    ///
    /// Each shelf adds a call to every change of the stock, and the last units are moved between
    /// shelves. Use it only for an item that one node cannot serve.
    ///
    /// First stop all processes with versions that do not support spreading: they would take one
    /// shelf for the whole item.
    #[must_use]
    pub fn spread(mut self, shelves: u64) -> Self {
        self.spread = shelves;
        self
    }
}

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemState {
    /// In the ledger, not at the gate.
    Draft,
    /// On sale, between its start and end.
    Open,
    /// At the gate, which refuses orders with *paused*.
    Paused,
    /// Ended. It may be opened again.
    Closed,
}

impl ItemState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Draft, Self::Open, Self::Paused, Self::Closed];

    /// Its name, as stored in the ledger and at the gate.
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

/// An item in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: ItemState,
    /// All units ever added, minus those withdrawn. Meaningless if it is unlimited.
    pub total: u64,
    /// Whether it never sells out.
    pub unlimited: bool,
    /// The number of shelves of its stock, see [`NewItem::spread`].
    pub spread: u64,
    /// Units of orders in the ledger that hold units.
    pub sold: u64,
    /// Its terms of sale.
    pub terms: Terms,
    /// How often the gate was loaded from the ledger; zero if never.
    pub epoch: u64,
    /// The number of its newest change, see [`Change`](crate::change::Change).
    pub(crate) change: u64,
}
