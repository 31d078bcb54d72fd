//! The units of one item.

mod memory;
mod redis;

use std::fmt;
use std::sync::Arc;

use tenure::Fence;

use self::memory::MemoryShelf;
use self::redis::RedisShelf;
use crate::error::{Error, ErrorKind, Result};
use crate::names::item_name;

/// The maximum number of units of an item: the greatest integer that Lua represents exactly.
pub const UNITS_MAX: u64 = (1 << 53) - 1;

/// The units of one item. Cheap to clone; clones are the same stock.
///
/// `memory://` is a private stock; `memory://name` is shared by all stocks of this process with
/// that name, while at least one of them lives. Every other URL is a Redis server, as for
/// [`Tenure::connect`](tenure::Tenure::connect); the keys there are `tenure:sale:{item}:left` and
/// `tenure:sale:{item}:fence`, in one slot.
#[derive(Clone)]
pub struct Stock {
    item: Arc<str>,
    shelf: Shelf,
}

/// The result of trying to take a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "only `Taken` is a sale"]
pub enum Take {
    /// One unit was taken.
    Taken {
        /// The units that are left.
        left: u64,
    },
    /// No unit is left.
    SoldOut,
    /// A holder with a greater fence was here before: the caller no longer holds the lock.
    Stale {
        /// The greatest fence seen.
        seen: Fence,
    },
    /// The item was never loaded.
    NotLoaded,
}

/// Where the units are stored.
#[derive(Clone)]
enum Shelf {
    Memory(MemoryShelf),
    Redis(RedisShelf),
}

impl Stock {
    /// Opens the stock of `item` in the store that `url` names.
    ///
    /// # Errors
    ///
    /// If the URL or the item's name is invalid, or the server cannot be reached.
    pub async fn open(url: impl AsRef<str>, item: impl AsRef<str>) -> Result<Self> {
        let item = item_name(item.as_ref())?;
        let shelf = match url.as_ref().trim().strip_prefix("memory://") {
            Some(store) => Shelf::Memory(MemoryShelf::open(store, &item)?),
            None => Shelf::Redis(RedisShelf::open(url.as_ref(), &item).await?),
        };
        Ok(Self {
            item: item.into(),
            shelf,
        })
    }

    /// The stock of `item` over a shared connection.
    ///
    /// # Errors
    ///
    /// If the item's name is invalid. Sends nothing to the server.
    pub fn on(redis: tenure::redis::Client, item: impl AsRef<str>) -> Result<Self> {
        let item = item_name(item.as_ref())?;
        Ok(Self {
            shelf: Shelf::Redis(RedisShelf::new(redis, &item)),
            item: item.into(),
        })
    }

    /// The item's name.
    pub fn item(&self) -> &str {
        &self.item
    }

    /// Puts an item on sale with this many units.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyLoaded`] if it is already on sale: loading twice must not bring back
    /// sold units.
    pub async fn load(&self, units: u64) -> Result<()> {
        check_units(units)?;
        match &self.shelf {
            Shelf::Memory(shelf) => shelf.load(units),
            Shelf::Redis(shelf) => shelf.load(units).await,
        }
    }

    /// The units that are left.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotLoaded`] if the item was never loaded, which is not the same as zero.
    pub async fn left(&self) -> Result<u64> {
        match &self.shelf {
            Shelf::Memory(shelf) => shelf.left(),
            Shelf::Redis(shelf) => shelf.left().await,
        }
    }

    /// Overwrites the number of units: the second half of read, subtract, write back. Two callers
    /// that do this at once sell the same unit twice; use [`take_one`](Stock::take_one) to sell.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotLoaded`] if the item was never loaded.
    pub async fn set(&self, units: u64) -> Result<()> {
        check_units(units)?;
        match &self.shelf {
            Shelf::Memory(shelf) => shelf.set(units),
            Shelf::Redis(shelf) => shelf.set(units).await,
        }
    }

    /// Takes one unit for the holder of `fence`, in one atomic step. A fence lower than the
    /// greatest seen is refused; the same fence may take several units.
    ///
    /// ```
    /// use tenure::Fence;
    /// use tenure_sale::{Stock, Take};
    ///
    /// # async fn example() -> Result<(), tenure_sale::Error> {
    /// let stock = Stock::open("memory://", "sku-7").await?;
    /// stock.load(9).await?;
    /// assert_eq!(stock.take_one(Fence::new(5)).await?, Take::Taken { left: 8 });
    /// let paused_too_long = stock.take_one(Fence::new(4)).await?;
    /// assert_eq!(paused_too_long, Take::Stale { seen: Fence::new(5) });
    /// # Ok(()) }
    /// # fn main() { tenure::blocking::block_on(example()).unwrap(); }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`] if the store failed. If its reply was lost, a unit may have been taken.
    pub async fn take_one(&self, fence: Fence) -> Result<Take> {
        match &self.shelf {
            Shelf::Memory(shelf) => Ok(shelf.take_one(fence)),
            Shelf::Redis(shelf) => shelf.take_one(fence).await,
        }
    }

    /// Takes the item off sale: deletes its units and its fence.
    pub async fn remove(&self) -> Result<()> {
        match &self.shelf {
            Shelf::Memory(shelf) => shelf.remove(),
            Shelf::Redis(shelf) => shelf.remove().await?,
        }
        Ok(())
    }
}

impl fmt::Debug for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelf = match &self.shelf {
            Shelf::Memory(_) => "memory",
            Shelf::Redis(_) => "redis",
        };
        f.debug_struct("Stock")
            .field("item", &self.item)
            .field("shelf", &shelf)
            .finish()
    }
}

fn check_units(units: u64) -> Result<()> {
    if units <= UNITS_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidUnits,
        format!("cannot keep `{units}` units: the most is {UNITS_MAX}"),
    ))
}
