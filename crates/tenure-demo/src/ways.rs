//! Three ways to sell the same stock, side by side: to see what each does under a rush.
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
//! What a shop uses is [`tenure_sale::Sale`].

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure::{Fence, Guard, Lock, Tenure};
use tenure_sale::gate::{Gate, Load};
use tenure_sale::{ItemState, Outcome, Request, Stock, Take, Terms};

/// How long a buyer waits for the lock unless told otherwise.
const LOCK_WAIT_MAX: Duration = Duration::from_mins(1);
/// Entries of the queue that are thrown away in one step when the item is removed.
const PAGE: usize = 1000;
/// The epoch, and the fence, under which the gate sells an item.
const SELLING: u64 = 1;
/// Those under which it sells no more: above, so that the gate lets them replace the others.
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

/// Sells one item in one way. Cheap to clone.
///
/// Several counters may sell one item, each with clients of its own, as the processes of a shop do.
/// One of them loads it, and one removes it.
#[derive(Clone)]
pub struct Counter {
    till: Till,
    thinking: Duration,
    waiting_max: Duration,
}

/// An order between its beginning and its end: by then the stock was read, and nothing is written.
/// Under a lock it holds that.
///
/// Dropping it gives up: nothing is written, and the lock is let go of in the background.
#[derive(Debug)]
#[must_use = "nothing is sold until it is closed"]
pub struct Deal {
    way: Bargain,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "only `Sold` is a sale"]
pub enum Closed {
    /// The buyer has a unit.
    Sold {
        /// Which one: they count down, and the last has number 1. Two buyers with the same
        /// number have the same unit.
        unit: u64,
    },
    /// No unit is left.
    SoldOut,
    /// The seller had lost the lock, and a holder with a greater fence was at the stock: nothing was
    /// written.
    Stale {
        /// The greatest fence seen.
        seen: Fence,
    },
}

/// The item cannot be loaded, sold or removed as it is: it is not on sale, or in use elsewhere.
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
    Lock(Stock, Lock),
    Script(Gate, Arc<str>),
}

impl Counter {
    /// Sells the units of `stock` without any care.
    pub fn naive(stock: Stock) -> Self {
        Self::with(Till::Naive(stock))
    }

    /// Sells the units of `stock` under `lock`.
    pub fn under_lock(stock: Stock, lock: Lock) -> Self {
        Self::with(Till::Lock(stock, lock))
    }

    /// Sells `item` at `gate`, without a ledger behind it: orders stay in the queue.
    pub fn by_script(gate: Gate, item: impl AsRef<str>) -> Self {
        Self::with(Till::Script(gate, item.as_ref().into()))
    }

    /// Sells `item` with clients of its own in the store that `url` names: `memory://`, or a Redis.
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
                let locks = connected.context("cannot reach the locks")?;
                let lock = locks.lock(format!("ways:{{{item}}}"));
                Ok(Self::under_lock(stock, lock))
            }
            Way::Script => Ok(Self::by_script(Gate::connect(url).await?, item)),
        }
    }

    /// How long an order takes between reading the stock and writing it: a price, a payment. Nothing
    /// unless this is called. By script there is no such time: what is to be done for an order is done
    /// after it, from the queue.
    #[must_use]
    pub fn thinking(mut self, time: Duration) -> Self {
        self.thinking = time;
        self
    }

    /// How long a buyer waits for the lock: a minute unless this is called.
    #[must_use]
    pub fn waiting_max(mut self, time: Duration) -> Self {
        self.waiting_max = time;
        self
    }

    /// Which way it sells.
    pub fn way(&self) -> Way {
        match &self.till {
            Till::Naive(_) => Way::Naive,
            Till::Lock(..) => Way::Lock,
            Till::Script(..) => Way::Script,
        }
    }

    /// Brings the item on sale with so many units.
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
    /// If the item is not on sale or the store cannot be reached. When an answer was lost, a unit may
    /// have been sold.
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

    /// Begins an order, for those who do the thinking themselves: takes the lock where there is one,
    /// and reads the stock. `None` if no unit is left. By script nothing is done yet.
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
    /// If the item is not on sale, the lock is not to be had in time, or the store cannot be reached.
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
                let taken = lock.acquire_within(self.waiting_max).await;
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

    /// The units that the store says are left.
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

    /// Takes the item off sale, and its orders out of the queue. If it is not on sale, this does nothing.
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
            // A store in memory answers at once, and a server does not: others get their turn here.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(self.thinking).await;
        }
    }
}

impl Deal {
    /// The lock that it holds, if it sells under one.
    pub fn guard(&self) -> Option<&Guard> {
        match &self.way {
            Bargain::Lock { guard, .. } => Some(guard),
            Bargain::Naive { .. } | Bargain::Script { .. } => None,
        }
    }

    /// Writes it: the buyer has a unit, or learns why not. The lock is let go of.
    ///
    /// # Errors
    ///
    /// If the item is not on sale or the store cannot be reached. When an answer was lost, a unit may
    /// have been sold.
    pub async fn close(self, buyer: &str) -> Result<Closed> {
        match self.way {
            // What everybody writes first. Two buyers who read the same number sell the same unit.
            Bargain::Naive { stock, left } => {
                stock.set(left - 1).await?;
                Ok(Closed::Sold { unit: left })
            }
            Bargain::Lock { stock, guard } => {
                let taken = stock.take_one(guard.fence()).await;
                // What was taken is taken, whatever becomes of the lock: that ends by itself.
                let _ = guard.release().await;
                of_take(&stock, taken?)
            }
            Bargain::Script { gate, item } => sell_by_script(&gate, &item, buyer).await,
        }
    }

    /// Ends it as the death of its process would: nothing is written, and the lock stays taken until
    /// its lease ends.
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
            // Only the gate knows, when it is asked.
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
        Self(format!(
            "item `{item}` was never loaded: load its units first"
        ))
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
    // Other counters give ids too, and the same one again would be the same order again.
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
            let message = format!("cannot sell `{item}`: the gate says `{refusal:?}`");
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

/// Loads the item anew, as closed, whatever is there: also what was loaded by half.
async fn remove_from_gate(gate: &Gate, item: &str) -> Result<()> {
    let load = load_of(REMOVING, ItemState::Closed, 0);
    // Refused if it was done before, by a caller that did not come to the end: that one is repeated.
    gate.begin_load(item, load.epoch, load.fence, 1).await?;
    gate.finish_load(item, &load).await?;
    while !empty_queue(gate, item).await? {}
    if gate.forget(item).await? {
        return Ok(());
    }
    let message = format!("cannot remove `{item}`: somebody else uses it");
    Err(CannotSell(message).into())
}

/// Throws one page of orders away; `true` if there are none.
async fn empty_queue(gate: &Gate, item: &str) -> Result<bool> {
    let mut entries = gate.read(item, "ways", PAGE, Duration::ZERO).await?;
    if entries.is_empty() {
        // Those that an interrupted caller read.
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
