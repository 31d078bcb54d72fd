//! Three ways to sell the same stock, side by side: to see what each does under a rush.
//!
//! | way | is | under a rush |
//! |---|---|---|
//! | [`Way::Naive`] | read, subtract, write back | sells units twice |
//! | [`Way::Lock`] | the same under a lock, with its fence | sells each unit once, one buyer at a time |
//! | [`Way::Script`] | check, queue and subtract in one step at the gate | sells each unit once, as fast as the server answers |
//!
//! ```
//! use tenure_sale::ways::{Counter, Way};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), tenure_sale::Error> {
//! for way in Way::ALL {
//!     let counter = Counter::open(way, "memory://", "sku-7", 1).await?;
//!     assert!(counter.sell("anna").await?);
//!     assert!(!counter.sell("ben").await?);
//!     assert_eq!(counter.orders(), 1);
//!     assert_eq!(counter.oversold(), 0);
//!     counter.close().await?;
//! }
//! # Ok(()) }
//! ```
//!
//! For teaching and for `tenure demo`; what a shop uses is [`Sale`](crate::Sale).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tenure::{Fence, Tenure};

use crate::change::{Change, What};
use crate::error::{Error, Result};
use crate::gate::{Gate, Load};
use crate::item::{ItemState, Terms};
use crate::names::item_name;
use crate::order::{Outcome, Request};
use crate::stock::{Stock, Take};

/// How long a buyer waits for the lock.
const LOCK_WAIT_MAX: Duration = Duration::from_mins(1);
/// Entries of the queue that are thrown away in one step when the counter closes.
const PAGE: usize = 1000;

/// A way to sell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Read, subtract, write back.
    Naive,
    /// The same, under a lock.
    Lock,
    /// One step at the gate.
    Script,
}

impl Way {
    /// All of them, from the worst on.
    pub const ALL: [Self; 3] = [Self::Naive, Self::Lock, Self::Script];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Lock => "lock",
            Self::Script => "script",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Sells one item in one way. Cheap to clone; clones share what they count.
#[derive(Clone, Debug)]
pub struct Counter {
    way: Way,
    item: String,
    units: u64,
    till: Till,
    sold: Arc<Sold>,
}

#[derive(Debug, Default)]
struct Sold {
    orders: AtomicU64,
    /// Requests need ids of their own.
    requests: AtomicU64,
}

#[derive(Clone)]
enum Till {
    Naive(Stock),
    Lock(Stock, Tenure),
    Script(Gate),
}

impl Counter {
    /// Loads `units` of `item` into the store that `url` names: `memory://`, or a Redis. The item should
    /// be of this run alone; [`close`](Counter::close) removes it.
    ///
    /// # Errors
    ///
    /// If the URL or the name is wrong, the server cannot be reached, or the item is there already.
    pub async fn open(
        way: Way,
        url: impl AsRef<str>,
        item: impl AsRef<str>,
        units: u64,
    ) -> Result<Self> {
        let (url, item) = (url.as_ref(), item_name(item.as_ref())?);
        let till = match way {
            Way::Naive => Till::Naive(loaded_stock(url, &item, units).await?),
            Way::Lock => {
                let connecting = Tenure::connect(url).await;
                let locks =
                    connecting.map_err(|error| Error::store("cannot reach the locks", error))?;
                Till::Lock(loaded_stock(url, &item, units).await?, locks)
            }
            Way::Script => Till::Script(loaded_gate(url, &item, units).await?),
        };
        Ok(Self {
            way,
            item,
            units,
            till,
            sold: Arc::default(),
        })
    }

    /// Which way it sells.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Sells one unit to `buyer`; `false` if it says that none is left. Every call is a new order.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached.
    pub async fn sell(&self, buyer: &str) -> Result<bool> {
        let taken = match &self.till {
            Till::Naive(stock) => sell_naively(stock).await?,
            Till::Lock(stock, locks) => self.sell_locked(stock, locks).await?,
            Till::Script(gate) => self.sell_at_gate(gate, buyer).await?,
        };
        if taken {
            self.sold.orders.fetch_add(1, Ordering::Relaxed);
        }
        Ok(taken)
    }

    /// Orders taken.
    pub fn orders(&self) -> u64 {
        self.sold.orders.load(Ordering::Relaxed)
    }

    /// Orders taken beyond what there was to sell.
    pub fn oversold(&self) -> u64 {
        self.orders().saturating_sub(self.units)
    }

    /// The units that the store says are left.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached.
    pub async fn left(&self) -> Result<u64> {
        match &self.till {
            Till::Naive(stock) | Till::Lock(stock, _) => stock.left().await,
            Till::Script(gate) => {
                let standing = gate.standing(&self.item).await?;
                let left = standing.and_then(|standing| standing.left);
                left.ok_or_else(|| Error::not_loaded(&self.item))
            }
        }
    }

    /// Removes the item from the store.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached.
    pub async fn close(self) -> Result<()> {
        match &self.till {
            Till::Naive(stock) | Till::Lock(stock, _) => stock.remove().await,
            Till::Script(gate) => remove_from_gate(gate, &self.item).await,
        }
    }

    async fn sell_locked(&self, stock: &Stock, locks: &Tenure) -> Result<bool> {
        let lock = locks.lock(format!("ways:{{{}}}", self.item));
        let failed = |error| Error::store(format!("cannot lock `{}`", self.item), error);
        let guard = lock.acquire_within(LOCK_WAIT_MAX).await.map_err(failed)?;
        let take = stock.take_one(guard.fence()).await;
        guard.release().await.map_err(failed)?;
        Ok(matches!(take?, Take::Taken { .. }))
    }

    async fn sell_at_gate(&self, gate: &Gate, buyer: &str) -> Result<bool> {
        let request = self.sold.requests.fetch_add(1, Ordering::Relaxed);
        let request = Request::new(&self.item, buyer, request.to_string())?;
        Ok(matches!(
            gate.ask(&request).await?.outcome,
            Outcome::Accepted(_)
        ))
    }
}

impl fmt::Debug for Till {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Naive(_) => "Naive",
            Self::Lock(..) => "Lock",
            Self::Script(_) => "Script",
        })
    }
}

/// What everybody writes first. Two buyers who read the same number sell the same unit.
async fn sell_naively(stock: &Stock) -> Result<bool> {
    let left = stock.left().await?;
    // A store in memory answers at once, and a server does not: others get their turn here.
    tokio::task::yield_now().await;
    let Some(less) = left.checked_sub(1) else {
        return Ok(false);
    };
    stock.set(less).await?;
    Ok(true)
}

async fn loaded_stock(url: &str, item: &str, units: u64) -> Result<Stock> {
    let stock = Stock::open(url, item).await?;
    stock.load(units).await?;
    Ok(stock)
}

/// A gate without a ledger behind it: orders stay in the queue.
async fn loaded_gate(url: &str, item: &str, units: u64) -> Result<Gate> {
    let gate = Gate::connect(url).await?;
    let load = Load {
        epoch: 1,
        fence: Fence::new(1),
        state: ItemState::Open,
        left: Some(units),
        change: 0,
        terms: Terms {
            backlog_max: u64::from(u32::MAX),
            ..Terms::default()
        },
    };
    let begun = gate.begin_load(item, load.epoch, load.fence).await?;
    if !begun || !gate.finish_load(item, &load).await? {
        return Err(Error::already_loaded(item));
    }
    Ok(gate)
}

async fn remove_from_gate(gate: &Gate, item: &str) -> Result<()> {
    let closed = Change {
        number: 1,
        at: SystemTime::now(),
        what: What::State(ItemState::Closed),
    };
    gate.apply(item, 1, 0, &[closed]).await?;
    loop {
        let entries = gate.read(item, "ways", PAGE, Duration::ZERO).await?;
        if entries.is_empty() {
            break;
        }
        let ids: Vec<_> = entries.into_iter().map(|entry| entry.id).collect();
        gate.acknowledge(item, &ids).await?;
    }
    gate.forget(item).await?;
    Ok(())
}
