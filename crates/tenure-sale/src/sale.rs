//! The sale: gate, queue and ledger together.

mod builder;
mod dead;
mod items;
mod orders;
mod payment;
mod stock;
mod submit;

use std::fmt;
use std::sync::Arc;

pub use self::builder::SaleBuilder;
pub use self::dead::DeadLetter;
use crate::consumer::Consumer;
use crate::core::Core;
use crate::error::Result;
use crate::gate::Gate;
use crate::ledger::Ledger;
use crate::stats::SaleStats;

/// A sale of any number of items: buyers submit requests to its gate, accepted orders go through a
/// queue into its ledger, and released units return to the gate exactly once. Cheap to clone.
///
/// | gate | ledger | deployment |
/// |---|---|---|
/// | `memory://` | `sqlite:shop.db`, `sqlite::memory:` | the whole sale in this process; a second process on the same ledger is refused. Accepted means committed |
/// | any Redis, as for [`Tenure::connect`](tenure::Tenure::connect) | `postgres://…`, `sqlite:…` | any number of processes; some of them [`consume`](Sale::consume). Accepted means queued, and committed a moment later |
///
/// The gate needs no maintenance: after its server was restarted or replaced it refuses orders, and
/// the first process that notices rebuilds it from the ledger.
///
/// Everything runs on the caller's tokio runtime, which must have time and I/O enabled.
///
/// ```
/// use std::time::Duration;
/// use tenure_sale::{NewItem, OrderState, Outcome, Request, Sale};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), tenure_sale::Error> {
/// let sale = Sale::open("memory://", "sqlite::memory:").await?;
/// sale.create(&NewItem::new("sku-7", 1)?).await?;
/// sale.open_item("sku-7").await?;
///
/// let anna = Request::new("sku-7", "anna", "click-1")?;
/// let Outcome::Accepted(order) = sale.submit(&anna).await?.outcome else {
///     panic!("one unit is left");
/// };
/// // A double click, or a retry after a lost answer: the same order, not a second one.
/// assert_eq!(sale.submit(&anna).await?.outcome, Outcome::Replayed(order.clone()));
///
/// let ben = Request::new("sku-7", "ben", "click-1")?;
/// assert_eq!(sale.submit(&ben).await?.outcome, Outcome::SoldOut);
///
/// let confirmed = sale.wait(&order, Duration::from_secs(5)).await?;
/// assert_eq!(confirmed.state, OrderState::Reserved);
/// assert_eq!(sale.pay(&order).await?.state, OrderState::Paid);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sale {
    shared: Arc<Shared>,
}

struct Shared {
    core: Arc<Core>,
    /// A gate in memory has only this consumer.
    _own: Option<Consumer>,
}

impl Sale {
    /// Opens a sale with the gate and the ledger at these URLs.
    ///
    /// # Errors
    ///
    /// If a URL is invalid, the gate or the ledger cannot be reached, or, with a gate in memory,
    /// the ledger is in use by another process.
    pub async fn open(gate_url: impl AsRef<str>, ledger_url: impl AsRef<str>) -> Result<Self> {
        Self::builder(gate_url, ledger_url).open().await
    }

    /// Starts a sale with custom settings.
    pub fn builder(gate_url: impl AsRef<str>, ledger_url: impl AsRef<str>) -> SaleBuilder {
        SaleBuilder::new(gate_url.as_ref(), ledger_url.as_ref())
    }

    /// The counters of this sale in this process. Costs nothing.
    pub fn stats(&self) -> SaleStats {
        self.core().counters.snapshot()
    }

    /// Direct access to the gate.
    pub fn gate(&self) -> &Gate {
        &self.core().gate
    }

    /// Direct access to the ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.core().ledger
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.gone.cancel();
    }
}

impl fmt::Debug for Sale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sale")
            .field("name", &self.core().name)
            .field("gate", self.gate())
            .finish_non_exhaustive()
    }
}
