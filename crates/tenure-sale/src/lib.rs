//! Stock that never sells a unit twice, beside Tenure's locks.
//!
//! [`Stock`] keeps the units of one item, in memory or on Redis. It is the resource behind a lock:
//! it refuses a holder that was paused for so long that somebody else took its place.
//!
//! ```
//! use tenure::Tenure;
//! use tenure_sale::{Stock, Take};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::connect("memory://").await?;
//! let stock = Stock::open("memory://shop", "sku-7").await?;
//! stock.load(1).await?;
//!
//! let guard = tenure.lock("sku-7").acquire().await?;
//! assert_eq!(stock.take_one(guard.fence()).await?, Take::Taken { left: 0 });
//! assert_eq!(stock.take_one(guard.fence()).await?, Take::SoldOut);
//! guard.release().await?;
//! # Ok(()) }
//! # fn main() { tenure::blocking::block_on(example()).unwrap(); }
//! ```

mod change;
mod entry;
mod error;
pub mod gate;
mod item;
pub mod ledger;
mod names;
mod order;
mod stock;

pub use crate::error::{Error, ErrorKind, Result};
pub use crate::item::{Item, ItemState, NewItem, Terms};
pub use crate::names::{BUYER_BYTES_MAX, ITEM_BYTES_MAX, REQUEST_BYTES_MAX};
pub use crate::order::{Answer, ORDER_UNITS_MAX, Order, OrderId, OrderState, Outcome, Request};
pub use crate::stock::{Stock, Take, UNITS_MAX};
