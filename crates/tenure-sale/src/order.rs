//! Orders: what a buyer asks for, what the gate answers, and the states of an order.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::names::{buyer_name, item_name, request_id};

/// What a buyer asks for.
///
/// The buyer chooses the id of a request, unique per item: a request repeated with the same id
/// returns the same order, and never creates a second one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    item: String,
    buyer: String,
    id: String,
    units: u64,
}

impl Request {
    /// One unit of `item` for `buyer`.
    ///
    /// # Errors
    ///
    /// If a name is empty, too long or contains control characters.
    pub fn new(item: impl AsRef<str>, buyer: impl AsRef<str>, id: impl AsRef<str>) -> Result<Self> {
        Ok(Self {
            item: item_name(item.as_ref())?,
            buyer: buyer_name(buyer.as_ref())?,
            id: request_id(id.as_ref())?,
            units: 1,
        })
    }

    /// Sets the number of units, instead of one.
    ///
    /// # Errors
    ///
    /// If it is zero or more than [`ORDER_UNITS_MAX`].
    pub fn units(mut self, units: u64) -> Result<Self> {
        if units == 0 || units > ORDER_UNITS_MAX {
            let message = format!(
                "cannot order `{units}` units of `{}`: an order is for 1 to {ORDER_UNITS_MAX} units",
                self.item
            );
            return Err(Error::new(ErrorKind::InvalidUnits, message));
        }
        self.units = units;
        Ok(self)
    }

    /// The item's name.
    pub fn item(&self) -> &str {
        &self.item
    }

    /// The buyer's name.
    pub fn buyer(&self) -> &str {
        &self.buyer
    }

    /// The id that the buyer gave this request.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How many units are wanted.
    pub fn wanted(&self) -> u64 {
        self.units
    }
}

/// The maximum number of units of one order. An item may allow fewer.
pub const ORDER_UNITS_MAX: u64 = 1_000_000;

/// The gate's answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "only an accepted or replayed answer is an order"]
pub struct Answer {
    /// The decision.
    pub outcome: Outcome,
    /// The units left at the gate at that moment; `None` for an unlimited or unknown item. For an
    /// item spread over several shelves it is only set with *sold out*, because no other request
    /// asks all shelves; it may be too high then, if others bought while the shelves were read.
    pub left: Option<u64>,
}

/// The gate's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The order is queued and its units are reserved.
    Accepted(OrderId),
    /// The same request was accepted before: this is its order. Nothing was done again.
    Replayed(OrderId),
    /// The same request id was used for another number of units. Nothing was done.
    Conflict(OrderId),
    /// The gate does not know the item: it was never loaded. This is not the same as sold out.
    NoItem,
    /// The sale has not begun.
    NotStarted,
    /// The sale is over: its window ended, or it was closed.
    Ended,
    /// The sale is paused.
    Paused,
    /// The order exceeds the limit per buyer or per order.
    LimitReached,
    /// Fewer units are left than requested.
    SoldOut,
    /// Too many orders are queued for the ledger. Try again in a moment.
    Busy,
    /// The server is not the one that the item was loaded on, or it was restarted: its data may be
    /// outdated. The gate refuses orders until it is rebuilt from the ledger, which takes a moment.
    StaleEpoch,
}

impl Outcome {
    /// The order, if this request has one.
    pub fn order(&self) -> Option<&OrderId> {
        match self {
            Self::Accepted(order) | Self::Replayed(order) => Some(order),
            _ => None,
        }
    }
}

/// The id of an order: the item, the epoch of the gate that accepted it, and its number there.
///
/// Its text is `item.epoch.number`; an item's name may contain dots, the two numbers cannot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderId {
    item: String,
    epoch: u64,
    number: u64,
}

impl OrderId {
    pub(crate) fn new(item: impl Into<String>, epoch: u64, number: u64) -> Self {
        Self {
            item: item.into(),
            epoch,
            number,
        }
    }

    /// The item's name.
    pub fn item(&self) -> &str {
        &self.item
    }

    /// The epoch of the gate that accepted it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Its number among the orders of the item and epoch.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.item, self.epoch, self.number)
    }
}

impl FromStr for OrderId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let shown: String = text.chars().take(64).collect();
            let message = format!(
                "invalid order id `{}`: expected item.epoch.number, such as `sku-7.1.42`",
                shown.escape_debug()
            );
            Error::new(ErrorKind::InvalidOrder, message)
        };
        let mut parts = text.rsplitn(3, '.');
        let number = parts.next().and_then(plain_number).ok_or_else(wrong)?;
        let epoch = parts.next().and_then(plain_number).ok_or_else(wrong)?;
        let item = parts.next().ok_or_else(wrong)?;
        Ok(Self::new(item_name(item)?, epoch, number))
    }
}

/// A number in canonical form: no sign, no leading zero. So each order has exactly one text.
fn plain_number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text && i64::try_from(number).is_ok()).then_some(number)
}

/// The state of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OrderState {
    /// Accepted at the gate, not yet in the ledger.
    Queued,
    /// Committed in the ledger, with units reserved for the buyer. This is *confirmed*.
    Reserved,
    /// Paid for.
    Paid,
    /// Cancelled; its units were returned.
    Cancelled,
    /// Not paid for in time; its units were returned.
    Expired,
    /// Refused by the ledger: the gate had accepted more than there is, or more than the buyer may
    /// have.
    Rejected,
    /// Accepted at a gate whose server lost it before it reached the ledger.
    Lost,
    /// The ledger failed to accept it repeatedly. Its units stay reserved until an operator
    /// decides.
    Dead,
    /// Paid for after it had expired, with no units left: refund it.
    PaidUnfulfilled,
}

impl OrderState {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Reserved,
        Self::Paid,
        Self::Cancelled,
        Self::Expired,
        Self::Rejected,
        Self::Lost,
        Self::Dead,
        Self::PaidUnfulfilled,
    ];

    /// Its name, as stored in the ledger.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Reserved => "reserved",
            Self::Paid => "paid",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
            Self::Lost => "lost",
            Self::Dead => "dead",
            Self::PaidUnfulfilled => "paid-unfulfilled",
        }
    }

    /// Whether an order in this state holds units of the stock.
    pub fn holds_units(self) -> bool {
        matches!(
            self,
            Self::Queued | Self::Reserved | Self::Paid | Self::Dead
        )
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl fmt::Display for OrderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An order in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// Who ordered.
    pub buyer: String,
    /// The buyer's id of the request.
    pub request: String,
    /// How many units.
    pub units: u64,
    /// Its state.
    pub state: OrderState,
    /// When the gate accepted it, by the gate's clock.
    pub accepted_at: SystemTime,
    /// When it must be paid for.
    pub pay_by: Option<SystemTime>,
    /// Why it was rejected, buried or lost; `None` for other orders.
    pub note: Option<String>,
}
