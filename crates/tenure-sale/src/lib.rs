//! Flash sales that sell no unit twice and lose no order, built on Tenure's locks.
//!
//! A [`Sale`] has a *gate*, which accepts or refuses buyers in one atomic step, a *queue* of
//! accepted orders, and a *ledger*, which is the source of truth. It runs within one process with
//! nothing installed, or in many processes on Redis and PostgreSQL; the code is the same.
//!
//! ```
//! use tenure_sale::{NewItem, OrderState, Outcome, Request, Sale};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), tenure_sale::Error> {
//! // `redis://…` and `postgres://…` in production.
//! let sale = Sale::open("memory://", "sqlite::memory:").await?;
//! sale.create(&NewItem::new("sku-7", 5_000)?).await?;
//! sale.open_item("sku-7").await?;
//!
//! // The buyer chooses the request id: a repeated request returns the same order.
//! let request = Request::new("sku-7", "anna", "7f3a")?;
//! let answer = sale.submit(&request).await?;
//! let Outcome::Accepted(order) = answer.outcome else {
//!     return Ok(println!("no luck: {:?}", answer.outcome));
//! };
//! assert_eq!(sale.order(&order).await?.state, OrderState::Reserved);
//! sale.pay(&order).await?;
//! # Ok(()) }
//! ```
//!
//! [`Stock`] stores the units of one item, in memory or on Redis. It is the resource behind a lock:
//! it refuses a holder that was paused until its lease expired and another holder took over.
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
mod consumer;
mod contradictions;
mod core;
mod entry;
mod error;
mod events;
mod failpoint;
pub mod gate;
mod hub;
mod item;
pub mod ledger;
mod lost;
mod names;
mod order;
mod pairing;
mod rebuild;
mod reconcile;
mod relay;
mod sale;
mod stats;
mod stock;
mod sweeper;
mod verify;

pub use crate::consumer::{Consumer, ConsumerOptions};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::events::{Event, Events};
pub use crate::item::{Item, ItemState, NewItem, SPREAD_MAX, Terms};
pub use crate::names::{BUYER_BYTES_MAX, ITEM_BYTES_MAX, REQUEST_BYTES_MAX, is_reserved_lock};
pub use crate::order::{Answer, ORDER_UNITS_MAX, Order, OrderId, OrderState, Outcome, Request};
pub use crate::reconcile::{Mode, Report};
pub use crate::sale::{DeadLetter, Sale, SaleBuilder};
pub use crate::stats::SaleStats;
pub use crate::stock::{Stock, Take, UNITS_MAX};
pub use crate::verify::Verdict;

/// The examples of the README and of the pages in `docs/` compile and run. They are tested here
/// because this crate depends on both libraries.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/deployments.md")]
    struct Deployments;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
    #[doc = include_str!("../../../docs/migrating.md")]
    struct Migrating;
    #[doc = include_str!("../../../docs/sales.md")]
    struct Sales;
}
