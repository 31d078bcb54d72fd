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

/// Changes fetched at once by who resumes.
const PAGE: usize = 100;
/// Between questions to a ledger that is away.
const PAUSE: Duration = Duration::from_millis(500);

/// What happened to an item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Orders are in this state now.
    Orders {
        /// Its number, to resume after.
        number: u64,
        /// When the ledger wrote it.
        at: SystemTime,
        /// Which orders.
        orders: Vec<OrderId>,
        /// What became of them.
        state: OrderState,
    },
    /// The stock was raised or lowered.
    Stock {
        /// Its number, to resume after.
        number: u64,
        /// When the ledger wrote it.
        at: SystemTime,
        /// By so many units.
        delta: i64,
        /// Why, as whoever did it said.
        reason: String,
    },
    /// The item was opened, paused or closed.
    State {
        /// Its number, to resume after.
        number: u64,
        /// When the ledger wrote it.
        at: SystemTime,
        /// What it is now.
        state: ItemState,
    },
    /// The item is sold on other terms.
    Terms {
        /// Its number, to resume after.
        number: u64,
        /// When the ledger wrote it.
        at: SystemTime,
        /// On which.
        terms: Box<Terms>,
    },
    /// So many units are left at the gate, `None` if it is unlimited. Told at most ten times a second.
    Left {
        /// So many.
        units: Option<u64>,
    },
    /// What came before this number is forgotten: whoever keeps a picture of the item should draw it
    /// anew.
    Missed {
        /// The last number that was missed.
        number: u64,
    },
}

impl Event {
    /// The number to resume after; `None` for what has none.
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

    /// `None` for changes that mean nothing to anybody but the gate.
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
            What::Moved { order, state } | What::Released { order, state, .. } => {
                orders(vec![order.clone()], *state)
            }
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

/// The events of one item, in the order in which they happened. All who watch an item in one process
/// share one look at ledger and gate; who is slow is not waited for and fetches what it missed from the
/// ledger, so that memory is bounded.
pub struct Events {
    sale: Sale,
    item: String,
    /// The last number that was told or passed over.
    cursor: u64,
    live: broadcast::Receiver<Live>,
    /// Whether the ledger must be asked before `live` goes on where `cursor` is.
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
    /// Waits for the next event. While the ledger is away there is none.
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

    /// Whoever looked for us is gone: only after a panic.
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
