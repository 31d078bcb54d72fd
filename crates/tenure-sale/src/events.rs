//! Events: what happens to an item and its orders, for live pages.

pub(crate) mod follower;
pub(crate) mod followers;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, SystemTime};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;

use self::followers::{Followers, Left, Live};
use crate::error::Result;
use crate::item::{ItemState, Terms};
use crate::ledger::{Change, What};
use crate::order::{OrderId, OrderState};
use crate::sale::Sale;

/// Changes fetched at once when resuming.
const PAGE: usize = 100;
/// Between reads while the ledger is unavailable.
const PAUSE: Duration = Duration::from_millis(500);

/// An event of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Orders have a new state.
    Orders {
        /// Its number, to resume after.
        number: u64,
        /// When the ledger wrote it.
        at: SystemTime,
        /// The orders.
        orders: Vec<OrderId>,
        /// Their state.
        state: OrderState,
    },
    /// The stock was raised or lowered.
    Stock {
        /// Its number, to resume after.
        number: u64,
        /// When the ledger wrote it.
        at: SystemTime,
        /// By this many units.
        delta: i64,
        /// The reason, as entered.
        reason: String,
    },
    /// The item was opened, paused or closed.
    State {
        /// Its number, to resume after.
        number: u64,
        /// When the ledger wrote it.
        at: SystemTime,
        /// Its new state.
        state: ItemState,
    },
    /// The item has new terms.
    Terms {
        /// Its number, to resume after.
        number: u64,
        /// When the ledger wrote it.
        at: SystemTime,
        /// The terms.
        terms: Box<Terms>,
    },
    /// The units left at the gate, `None` if unlimited. Sent at most ten times a second.
    Left {
        /// The units.
        units: Option<u64>,
    },
    /// Events up to this number are no longer available: a client that shows the item should reload
    /// it.
    Missed {
        /// The last number that was missed.
        number: u64,
    },
}

impl Event {
    /// The number to resume after; `None` for events without one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Orders { number, .. }
            | Self::Stock { number, .. }
            | Self::State { number, .. }
            | Self::Terms { number, .. }
            | Self::Missed { number } => Some(*number),
            Self::Left { .. } => None,
        }
    }

    /// `None` for changes that only concern the gate.
    fn of(change: &Change) -> Option<Self> {
        let (number, at) = (change.number, change.at);
        let orders = |orders, state| Self::Orders {
            number,
            at,
            orders,
            state,
        };
        let stock = |units: i64, reason: &str| Self::Stock {
            number,
            at,
            delta: units,
            reason: reason.to_owned(),
        };
        Some(match &change.what {
            What::Committed { orders: all, state } => orders(all.clone(), *state),
            What::Moved { order, state }
            | What::Released { order, state, .. }
            | What::Refused { order, state, .. } => orders(vec![order.clone()], *state),
            What::Added { units, reason } => stock(units.cast_signed(), reason),
            What::Withdrawn { units, reason } => stock(-units.cast_signed(), reason),
            What::Returned { .. } => return None,
            What::State(state) => Self::State {
                number,
                at,
                state: *state,
            },
            What::Terms(terms) => Self::Terms {
                number,
                at,
                terms: terms.clone(),
            },
        })
    }
}

/// The events of one item, in order. All watchers of an item in one process share one reader of
/// ledger and gate. A slow watcher does not hold up the others: it fetches the events it missed
/// from the ledger, so memory is bounded.
pub struct Events {
    sale: Sale,
    item: String,
    /// The last number that was delivered or skipped.
    cursor: u64,
    live: broadcast::Receiver<Live>,
    /// Whether the ledger must be read before `live` continues at `cursor`.
    behind: bool,
    ready: VecDeque<Event>,
}

impl Sale {
    /// Watches an item: from now on, or from after the event with the number `after`.
    ///
    /// ```
    /// # use tenure_sale::{Error, Event, NewItem, Request, Sale};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let sale = Sale::open("memory://", "sqlite::memory:").await?;
    /// # sale.create(&NewItem::new("sku-7", 1)?).await?;
    /// sale.open_item("sku-7").await?;
    /// let mut events = sale.events("sku-7", None).await?;
    /// assert!(sale.submit(&Request::new("sku-7", "anna", "1")?).await?.outcome.order().is_some());
    /// loop {
    ///     match events.next().await {
    ///         Event::Orders { orders, state, .. } => break println!("{} is {state}", orders[0]),
    ///         event => println!("{event:?}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`NoItem`](crate::ErrorKind::NoItem), or if the ledger cannot be reached.
    pub async fn events(&self, item: &str, after: Option<u64>) -> Result<Events> {
        let known = self.core().item(item).await?;
        let (live, left) = Followers::watch(self.core(), item);
        Ok(Events {
            sale: self.clone(),
            item: item.to_owned(),
            cursor: after.unwrap_or(known.change).min(known.change),
            live,
            behind: true,
            ready: left.map(Event::from).into_iter().collect(),
        })
    }
}

impl Events {
    /// Waits for the next event. There are none while the ledger is unavailable.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is skipped.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            if self.behind {
                self.catch_up().await;
                continue;
            }
            match self.live.recv().await {
                Ok(Live::Left(left)) => return left.into(),
                Ok(Live::Change(change)) if change.number <= self.cursor => {}
                Ok(Live::Change(change)) if change.number == self.cursor + 1 => self.take(&change),
                Ok(Live::Change(_)) | Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => self.watch_again().await,
            }
        }
    }

    /// Fetches the next changes from the ledger.
    async fn catch_up(&mut self) {
        let ledger = self.sale.ledger();
        let Ok(changes) = ledger.changes(&self.item, self.cursor, PAGE).await else {
            return sleep(PAUSE).await;
        };
        if let Some(first) = changes
            .first()
            .filter(|first| first.number > self.cursor + 1)
        {
            let number = first.number - 1;
            self.ready.push_back(Event::Missed { number });
        }
        for change in &changes {
            self.take(change);
        }
        self.behind = changes.len() == PAGE;
    }

    fn take(&mut self, change: &Change) {
        self.cursor = change.number;
        self.ready.extend(Event::of(change));
    }

    /// The follower is gone: only after a panic.
    async fn watch_again(&mut self) {
        sleep(PAUSE).await;
        (self.live, _) = Followers::watch(self.sale.core(), &self.item);
        self.behind = true;
    }
}

impl From<Left> for Event {
    fn from(Left(units): Left) -> Self {
        Self::Left { units }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("item", &self.item)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}
