//! Ledgers to test, and short words for what goes into them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use tenure::Fence;
use tenure_sale::gate::{Entry, Load, Wanted};
use tenure_sale::ledger::{Ledger, What};
use tenure_sale::{Item, NewItem, OrderId, OrderState, Terms};
use tenure_testkit::PostgresServer;

/// The item that most tests sell.
pub(super) const ITEM: &str = "sku.7";

/// A ledger of one's own.
pub(super) struct Setup {
    pub(super) ledger: Ledger,
    pub(super) url: String,
    _dir: Option<TempDir>,
}

impl Setup {
    pub(super) async fn file() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", dir.path().join("sale.db").display());
        Self::open(url, Some(dir)).await
    }

    pub(super) async fn memory() -> Self {
        Self::open("sqlite::memory:".into(), None).await
    }

    pub(super) async fn postgres() -> Self {
        let url = tokio::task::spawn_blocking(|| PostgresServer::shared().create_database());
        Self::at(url.await.unwrap()).await
    }

    /// In a database that exists.
    pub(super) async fn at(url: String) -> Self {
        Self::open(url, None).await
    }

    async fn open(url: String, dir: Option<TempDir>) -> Self {
        Self {
            ledger: Ledger::open(&url).await.unwrap(),
            url,
            _dir: dir,
        }
    }

    /// The item with so many units, in its first epoch.
    pub(super) async fn selling(&self, units: u64) -> Load {
        self.selling_on(units, Terms::default()).await
    }

    pub(super) async fn selling_on(&self, units: u64, terms: Terms) -> Load {
        let new = NewItem::new(ITEM, units).unwrap().terms(terms);
        self.ledger.create(&new).await.unwrap();
        self.ledger.next_epoch(ITEM, Fence::new(1)).await.unwrap()
    }

    pub(super) async fn item(&self) -> Item {
        self.ledger.item(ITEM).await.unwrap().unwrap()
    }

    pub(super) async fn state(&self, order: &OrderId) -> Option<OrderState> {
        let order = self.ledger.order(order).await.unwrap();
        order.map(|order| order.state)
    }

    /// All changes after a number, without number and time.
    pub(super) async fn changes_after(&self, after: u64) -> Vec<What> {
        let changes = self.ledger.changes(ITEM, after, 10_000).await.unwrap();
        for (at, change) in changes.iter().enumerate() {
            assert_eq!(change.number, after + 1 + at as u64, "a gap in the numbers");
        }
        changes.into_iter().map(|change| change.what).collect()
    }
}

/// The id of an order of [`ITEM`].
pub(super) fn id(epoch: u64, number: u64) -> OrderId {
    format!("{ITEM}.{epoch}.{number}").parse().unwrap()
}

/// An order of the first epoch: the buyer's request has the order's number.
pub(super) fn order(number: u64, buyer: &str, units: u64) -> Entry {
    order_as(id(1, number), buyer, &format!("r{number}"), units)
}

pub(super) fn order_as(id: OrderId, buyer: &str, request: &str, units: u64) -> Entry {
    let what = Wanted::Order {
        buyer: buyer.into(),
        request: request.into(),
        units,
    };
    entry(id, Ok(what))
}

pub(super) fn withdrawal(number: u64, reference: &str, units: u64, expected: Option<u64>) -> Entry {
    let what = Wanted::Withdrawal {
        reference: reference.into(),
        reason: "broken".into(),
        units,
        expected,
    };
    entry(id(1, number), Ok(what))
}

pub(super) fn again(number: u64, order: OrderId, buyer: &str, units: u64) -> Entry {
    let what = Wanted::Again {
        order,
        buyer: buyer.into(),
        units,
    };
    entry(id(1, number), Ok(what))
}

pub(super) fn entry(id: OrderId, what: Result<Wanted, String>) -> Entry {
    Entry {
        id,
        what,
        accepted_at: accepted_at(),
        terms: None,
        deliveries: 1,
    }
}

/// In milliseconds, as the ledger keeps it.
pub(super) fn accepted_at() -> SystemTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UNIX_EPOCH + Duration::from_millis(u64::try_from(now.as_millis()).unwrap())
}

/// Runs each test on a SQLite file, in SQLite's memory and on PostgreSQL.
macro_rules! on_every_ledger {
    ($($test:ident),* $(,)?) => {
        mod file {
            use crate::ledger::setup::Setup;
            $(
                #[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(Setup::file().await).await;
                }
            )*
        }
        mod memory {
            use crate::ledger::setup::Setup;
            $(
                #[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(Setup::memory().await).await;
                }
            )*
        }
        mod postgres {
            use crate::ledger::setup::Setup;
            $(
                #[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(Setup::postgres().await).await;
                }
            )*
        }
    };
}
pub(super) use on_every_ledger;
