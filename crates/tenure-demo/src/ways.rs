//! Three ways to sell the same stock, to compare them under a rush.
//!
//! | way | is | under a rush |
//! |---|---|---|
//! | [`Way::Naive`] | read, think, write back | sells units twice |
//! | [`Way::Lock`] | the same under a lock, with its fence | sells each unit once, one buyer at a time |
//! | [`Way::Script`] | check, subtract and queue in one step at the gate | sells each unit once, as fast as the server answers |
//!
//! ```
//! use tenure_demo::ways::{Counter, Way};
//!
//! # #[tokio::main]
//! # async fn main() -> anyhow::Result<()> {
//! for way in Way::ALL {
//!     let counter = Counter::open(way, "memory://", "sku-7").await?;
//!     counter.load(1).await?;
//!     assert!(counter.sell("anna").await?);
//!     assert!(!counter.sell("ben").await?);
//!     assert_eq!(counter.left().await?, 0);
//!     counter.remove().await?;
//! }
//! # Ok(()) }
//! ```
//!
//! Real shops use [`tenure_sale::Sale`].

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure::{Fence, Guard, Lock, Tenure, Unordered};
use tenure_sale::gate::{Gate, Load};
use tenure_sale::{ItemState, Outcome, Request, Stock, Take, Terms};

/// How long a buyer waits for the lock by default.
const LOCK_WAIT_MAX: Duration = Duration::from_mins(1);
/// How many entries of the queue one step discards when the item is removed.
const PAGE: usize = 1000;
/// The epoch, and the fence, under which the gate sells an item.
const SELLING: u64 = 1;
/// The epoch and fence of a removed item: greater, so that the gate accepts the replacement.
const REMOVING: u64 = 2;

/// A way to sell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Read, think, write back.
    Naive,
    /// The same, under a lock.
    Lock,
    /// One step at the gate.
    Script,
}

impl Way {
    /// All of them, the worst first.
    pub const ALL: [Self; 3] = [Self::Naive, Self::Lock, Self::Script];

    /// Its name.
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

/// Sells one item in one way. Cheap to clone.
///
/// Several counters may sell one item, each with its own clients, like the processes of a shop. One
/// of them loads the item, and one removes it.
#[derive(Clone)]
pub struct Counter {
    till: Till,
    thinking: Duration,
    waiting_max: Duration,
}

/// An order in progress: the stock has been read, and nothing is written yet. In the lock way it
/// holds the lock.
///
/// Dropping it abandons the order: nothing is written, and the lock is released in the background.
#[derive(Debug)]
#[must_use = "nothing is sold until it is closed"]
pub struct Deal {
    way: Bargain,
}

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "only `Sold` is a sale"]
pub enum Closed {
    /// The buyer got a unit.
    Sold {
        /// The unit's number. Numbers count down to 1. Two buyers with the same number got the same
        /// unit.
        unit: u64,
    },
    /// No unit is left.
    SoldOut,
    /// The seller had lost the lock, and the stock has seen a greater fence: nothing was written.
    Stale {
        /// The greatest fence seen.
        seen: Fence,
    },
}

/// The item cannot be loaded, sold or removed: it is not on sale, or used by another program.
#[derive(Debug)]
pub struct CannotSell(String);

#[derive(Debug)]
enum Bargain {
    Naive { stock: Stock, left: u64 },
    Lock { stock: Stock, guard: Guard },
    Script { gate: Gate, item: Arc<str> },
}

#[derive(Clone)]
enum Till {
    Naive(Stock),
    Lock(Stock, Lock<Unordered>),
    Script(Gate, Arc<str>),
}

impl Counter {
    /// Sells the units of `stock` without any protection.
    pub fn naive(stock: Stock) -> Self {
        Self::with(Till::Naive(stock))
    }

    /// Sells the units of `stock` under `lock`.
    pub fn under_lock(stock: Stock, lock: Lock<Unordered>) -> Self {
        Self::with(Till::Lock(stock, lock))
    }

    /// Sells `item` at `gate`, without a ledger: orders stay in the queue.
    pub fn by_script(gate: Gate, item: impl AsRef<str>) -> Self {
        Self::with(Till::Script(gate, item.as_ref().into()))
    }

    /// Sells `item` with new clients in the store at `url`: `memory://` or a Redis server.
    ///
    /// # Errors
    ///
    /// If the URL or the name is wrong, or the server cannot be reached.
    pub async fn open(way: Way, url: impl AsRef<str>, item: impl AsRef<str>) -> Result<Self> {
        let (url, item) = (url.as_ref(), item.as_ref());
        match way {
            Way::Naive => Ok(Self::naive(Stock::open(url, item).await?)),
            Way::Lock => {
                let stock = Stock::open(url, item).await?;
                let connected = Tenure::connect(url).await;
                let locks = connected.context("cannot connect to the locks")?;
                let lock = locks.as_locks().lock(format!("ways:{{{item}}}"));
                Ok(Self::under_lock(stock, lock))
            }
            Way::Script => Ok(Self::by_script(Gate::connect(url).await?, item)),
        }
    }

    /// How long an order takes between reading the stock and writing it: a price, a payment. Zero by
    /// default. It does not apply to the script: there the work for an order is done later, from the
    /// queue.
    #[must_use]
    pub fn thinking(mut self, time: Duration) -> Self {
        self.thinking = time;
        self
    }

    /// How long a buyer waits for the lock; a minute by default.
    #[must_use]
    pub fn waiting_max(mut self, time: Duration) -> Self {
        self.waiting_max = time;
        self
    }

    /// The way it sells.
    pub fn way(&self) -> Way {
        match &self.till {
            Till::Naive(_) => Way::Naive,
            Till::Lock(..) => Way::Lock,
            Till::Script(..) => Way::Script,
        }
    }

    /// Puts the item on sale with this many units.
    ///
    /// # Errors
    ///
    /// If it is on sale already, or the store cannot be reached.
    pub async fn load(&self, units: u64) -> Result<()> {
        match &self.till {
            Till::Naive(stock) | Till::Lock(stock, _) => Ok(stock.load(units).await?),
            Till::Script(gate, item) => load_gate(gate, item, units).await,
        }
    }

    /// Sells one unit to `buyer`; `false` if none is left. Every call is a new order.
    ///
    /// # Errors
    ///
    /// If the item is not on sale or the store cannot be reached. If a reply was lost, a unit may have
    /// been sold.
    pub async fn sell(&self, buyer: &str) -> Result<bool> {
        let Some(deal) = self.begin().await? else {
            return Ok(false);
        };
        if self.way() != Way::Script {
            self.think().await;
        }
        let closed = deal.close(buyer).await?;
        Ok(matches!(closed, Closed::Sold { .. }))
    }

    /// Begins an order, for callers that do the work themselves: takes the lock if there is one and reads
    /// the stock. Returns `None` if no unit is left. The script way does nothing yet.
    ///
    /// ```
    /// use tenure_demo::ways::{Closed, Counter, Way};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> anyhow::Result<()> {
    /// let counter = Counter::open(Way::Lock, "memory://", "sku-7").await?;
    /// counter.load(1).await?;
    /// let deal = counter.begin().await?.expect("one is left");
    /// assert!(deal.guard().is_some_and(|guard| guard.is_valid()));
    /// assert_eq!(deal.close("anna").await?, Closed::Sold { unit: 1 });
    /// assert!(counter.begin().await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the item is not on sale, the lock is not free in time, or the store cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is sold, and the lock is not kept.
    pub async fn begin(&self) -> Result<Option<Deal>> {
        let way = match &self.till {
            Till::Naive(stock) => Bargain::Naive {
                left: stock.left().await?,
                stock: stock.clone(),
            },
            Till::Lock(stock, lock) => {
                let taken = lock.clone().wait(self.waiting_max).acquire().await;
                Bargain::Lock {
                    guard: taken.with_context(|| format!("cannot lock `{}`", lock.name()))?,
                    stock: stock.clone(),
                }
            }
            Till::Script(gate, item) => Bargain::Script {
                gate: gate.clone(),
                item: Arc::clone(item),
            },
        };
        Deal { way }.unless_sold_out().await
    }

    /// Units left according to the store.
    ///
    /// # Errors
    ///
    /// If the item is not on sale or the store cannot be reached.
    pub async fn left(&self) -> Result<u64> {
        match &self.till {
            Till::Naive(stock) | Till::Lock(stock, _) => Ok(stock.left().await?),
            Till::Script(gate, item) => {
                let standing = gate.standing(item).await?;
                let left = standing.and_then(|standing| standing.left);
                Ok(left.ok_or_else(|| CannotSell::not_loaded(item))?)
            }
        }
    }

    /// Removes the item from sale and its orders from the queue. Does nothing if it is not on sale.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached.
    pub async fn remove(&self) -> Result<()> {
        match &self.till {
            Till::Naive(stock) | Till::Lock(stock, _) => Ok(stock.remove().await?),
            Till::Script(gate, item) => remove_from_gate(gate, item).await,
        }
    }

    fn with(till: Till) -> Self {
        Self {
            till,
            thinking: Duration::ZERO,
            waiting_max: LOCK_WAIT_MAX,
        }
    }

    async fn think(&self) {
        if self.thinking.is_zero() {
            // The embedded store never waits, unlike a server: yield to other tasks here.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(self.thinking).await;
        }
    }
}

impl Deal {
    /// The lock it holds, if any.
    pub fn guard(&self) -> Option<&Guard> {
        match &self.way {
            Bargain::Lock { guard, .. } => Some(guard),
            Bargain::Naive { .. } | Bargain::Script { .. } => None,
        }
    }

    /// Writes the order and releases the lock. The buyer gets a unit, or the reason for the refusal.
    ///
    /// # Errors
    ///
    /// If the item is not on sale or the store cannot be reached. If a reply was lost, a unit may have
    /// been sold.
    pub async fn close(self, buyer: &str) -> Result<Closed> {
        match self.way {
            // The usual first version. Two buyers that read the same number buy the same unit.
            Bargain::Naive { stock, left } => {
                stock.set(left - 1).await?;
                Ok(Closed::Sold { unit: left })
            }
            Bargain::Lock { stock, guard } => {
                let taken = stock.take_one(guard.fence()).await;
                // The unit is sold whether or not the release succeeds: the lease expires anyway.
                let _ = guard.release().await;
                of_take(&stock, taken?)
            }
            Bargain::Script { gate, item } => sell_by_script(&gate, &item, buyer).await,
        }
    }

    /// Ends it as the death of its process would: nothing is written, and the lock stays held until its
    /// lease expires.
    ///
    /// # Errors
    ///
    /// If the lock was lost before.
    pub fn abandon(self) -> Result<()> {
        if let Bargain::Lock { guard, .. } = self.way {
            let name = guard.name().clone();
            let detached = guard.detach();
            let _never_adopted =
                detached.with_context(|| format!("cannot leave the lock `{name}`"))?;
        }
        Ok(())
    }

    async fn unless_sold_out(self) -> Result<Option<Self>> {
        let left = match &self.way {
            Bargain::Naive { left, .. } => *left,
            Bargain::Lock { stock, .. } => stock.left().await?,
            // Only the gate knows, once it is asked.
            Bargain::Script { .. } => return Ok(Some(self)),
        };
        if left > 0 {
            return Ok(Some(self));
        }
        if let Bargain::Lock { guard, .. } = self.way {
            let _ = guard.release().await;
        }
        Ok(None)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = match &self.till {
            Till::Naive(stock) | Till::Lock(stock, _) => stock.item(),
            Till::Script(_, item) => item,
        };
        f.debug_struct("Counter")
            .field("way", &self.way())
            .field("item", &item)
            .field("thinking", &self.thinking)
            .field("waiting_max", &self.waiting_max)
            .finish()
    }
}

impl CannotSell {
    fn not_loaded(item: &str) -> Self {
        Self(format!("item `{item}` is not loaded: load its units first"))
    }
}

impl fmt::Display for CannotSell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for CannotSell {}

fn of_take(stock: &Stock, take: Take) -> Result<Closed> {
    match take {
        Take::Taken { left } => Ok(Closed::Sold { unit: left + 1 }),
        Take::SoldOut => Ok(Closed::SoldOut),
        Take::Stale { seen } => Ok(Closed::Stale { seen }),
        Take::NotLoaded => Err(CannotSell::not_loaded(stock.item()).into()),
    }
}

async fn sell_by_script(gate: &Gate, item: &str, buyer: &str) -> Result<Closed> {
    // Random, because other counters generate ids too and a repeated id is a repeated order.
    let id = format!("{:032x}", rand::random::<u128>());
    let request = Request::new(item, buyer, id)?;
    let answer = gate.ask(&request).await?;
    match answer.outcome {
        Outcome::Accepted(_) | Outcome::Replayed(_) => Ok(Closed::Sold {
            unit: answer.left.unwrap_or_default() + 1,
        }),
        Outcome::SoldOut => Ok(Closed::SoldOut),
        Outcome::NoItem => Err(CannotSell::not_loaded(item).into()),
        refusal => {
            let message = format!("cannot sell `{item}`: the gate returned `{refusal:?}`");
            Err(CannotSell(message).into())
        }
    }
}

async fn load_gate(gate: &Gate, item: &str, units: u64) -> Result<()> {
    let load = load_of(SELLING, ItemState::Open, units);
    let begun = gate.begin_load(item, load.epoch, load.fence, 1).await?;
    if !begun || !gate.finish_load(item, &load).await? {
        let message = format!("item `{item}` is loaded already: change its units with `set`");
        return Err(CannotSell(message).into());
    }
    Ok(())
}

/// Reloads the item as closed, whatever its state, even if it was only partly loaded.
async fn remove_from_gate(gate: &Gate, item: &str) -> Result<()> {
    let load = load_of(REMOVING, ItemState::Closed, 0);
    // Refused if an interrupted caller already did this: then finish what that caller began.
    gate.begin_load(item, load.epoch, load.fence, 1).await?;
    gate.finish_load(item, &load).await?;
    while !empty_queue(gate, item).await? {}
    if gate.forget(item).await? {
        return Ok(());
    }
    let message = format!("cannot remove `{item}`: another program uses it");
    Err(CannotSell(message).into())
}

/// Discards one page of orders; `true` if there are none.
async fn empty_queue(gate: &Gate, item: &str) -> Result<bool> {
    let mut entries = gate.read(item, "ways", PAGE, Duration::ZERO).await?;
    if entries.is_empty() {
        // Entries that an interrupted caller has read.
        entries = gate.claim(item, "ways", Duration::ZERO, PAGE).await?;
    }
    let ids: Vec<_> = entries.into_iter().map(|entry| entry.id).collect();
    if !ids.is_empty() {
        gate.acknowledge(item, &ids).await?;
    }
    Ok(ids.is_empty())
}

fn load_of(number: u64, state: ItemState, units: u64) -> Load {
    let terms = Terms {
        // No consumer takes orders out of the queue.
        backlog_max: u64::from(u32::MAX),
        ..Terms::default()
    };
    Load {
        epoch: number,
        fence: Fence::new(number),
        state,
        left: Some(units),
        change: 0,
        spread: 1,
        terms,
    }
}
