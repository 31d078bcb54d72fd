//! A stage: a gate and a ledger of one's own, and what tests say to them.

use std::time::Duration;

use tempfile::TempDir;
use tenure_sale::{
    Consumer, ConsumerOptions, ErrorKind, Item, Mode, NewItem, Order, OrderId, OrderState, Outcome,
    Report, Request, Sale, SaleBuilder, Terms,
};
use tenure_testkit::{Fsync, PostgresServer, RedisServer};
use tokio::time::{Instant, sleep};

/// Nothing here takes longer on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// Runs each case on each stage: `on! { [memory_sqlite, redis_postgres]: case, case }`.
macro_rules! on {
    ($stages:tt: $($case:ident),+ $(,)?) => {
        $(on! { @one $case $stages })+
    };
    (@one $case:ident [$($stage:ident),+]) => {
        mod $case {
            $(#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $stage() {
                let stage = $crate::engine::stage::Stage::$stage();
                let spread = stage.spread;
                let case = super::$case(stage);
                $crate::engine::stage::SPREAD.scope(spread, case).await;
            })+
        }
    };
}

tokio::task_local! {
    /// Over how many shelves items are spread in a case.
    pub(super) static SPREAD: u64;
}

pub(super) struct Stage {
    pub(super) spread: u64,
    pub(super) redis: Option<RedisServer>,
    /// The prefix of a user of the gate that may touch nothing else.
    pub(super) prefix: Option<&'static str>,
    /// A PostgreSQL of its own, which may be killed.
    pub(super) postgres: Option<PostgresServer>,
    ledger_url: Option<String>,
    dir: TempDir,
}

impl Stage {
    pub(super) fn memory_sqlite() -> Self {
        Self {
            spread: 1,
            redis: None,
            prefix: None,
            postgres: None,
            ledger_url: None,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn redis_sqlite() -> Self {
        let redis = RedisServer::builder().aof(Fsync::Always).start();
        Self {
            redis: Some(redis),
            ..Self::memory_sqlite()
        }
    }

    /// With a gate whose user may touch only what begins with its prefix.
    pub(super) fn team_sqlite() -> Self {
        let rules = "on >pw +@all ~team-a:* resetchannels &team-a:*";
        let redis = RedisServer::builder().aof(Fsync::Always);
        Self {
            redis: Some(redis.user("team", rules).start()),
            prefix: Some("team-a:"),
            ..Self::memory_sqlite()
        }
    }

    /// With items that are spread.
    pub(super) fn spread_team_sqlite() -> Self {
        Self {
            spread: 4,
            ..Self::team_sqlite()
        }
    }

    /// With items that are spread.
    pub(super) fn spread_sqlite() -> Self {
        Self {
            spread: 4,
            ..Self::redis_sqlite()
        }
    }

    /// With items that are spread.
    pub(super) fn spread_postgres() -> Self {
        Self {
            spread: 3,
            ..Self::redis_postgres()
        }
    }

    pub(super) fn redis_postgres() -> Self {
        Self {
            ledger_url: Some(PostgresServer::shared().create_database()),
            ..Self::redis_sqlite()
        }
    }

    pub(super) fn redis_own_postgres() -> Self {
        let postgres = PostgresServer::start();
        Self {
            ledger_url: Some(postgres.url()),
            postgres: Some(postgres),
            ..Self::redis_sqlite()
        }
    }

    pub(super) fn redis(&self) -> &RedisServer {
        self.redis.as_ref().unwrap()
    }

    pub(super) fn gate_url(&self) -> String {
        let redis = self.redis.as_ref();
        if let (Some(redis), Some(prefix)) = (redis, self.prefix) {
            return format!("redis://team:pw@{}/?prefix={prefix}", redis.addr());
        }
        redis.map_or("memory://".to_owned(), RedisServer::url)
    }

    pub(super) fn ledger_url(&self) -> String {
        let of_file = || format!("sqlite:{}", self.file().display());
        self.ledger_url.clone().unwrap_or_else(of_file)
    }

    /// Runs SQL on the file behind the ledger's back.
    pub(super) fn sql(&self, sql: &str) {
        let file = rusqlite::Connection::open(self.file()).unwrap();
        file.busy_timeout(SOON).unwrap();
        file.execute_batch(sql).unwrap();
    }

    /// The file, locked: the ledger can be read and not written.
    pub(super) fn hold_ledger(&self) -> rusqlite::Connection {
        let file = rusqlite::Connection::open(self.file()).unwrap();
        file.busy_timeout(SOON).unwrap();
        file.execute_batch("BEGIN IMMEDIATE").unwrap();
        file
    }

    /// A copy of the file, as a backup makes it.
    pub(super) fn copy_ledger(&self) {
        let copy = self.dir.path().join("copy.db");
        self.sql(&format!("VACUUM INTO '{}'", copy.display()));
    }

    /// Puts the copy in the place of the file. Nobody may have it open.
    pub(super) fn restore_ledger(&self) {
        let file = self.file();
        // Connections that are still being closed have the old file.
        for end in ["", "-wal", "-shm"] {
            let mut name = file.clone().into_os_string();
            name.push(end);
            // They may be gone already.
            let _ = std::fs::remove_file(name);
        }
        std::fs::copy(self.dir.path().join("copy.db"), file).unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("shop.db")
    }

    pub(super) fn builder(&self) -> SaleBuilder {
        Sale::builder(self.gate_url(), self.ledger_url()).own_consumer(quick())
    }

    pub(super) async fn open(&self) -> Sale {
        self.builder().open().await.unwrap()
    }

    /// A sale, and a consumer if it does not have its own.
    pub(super) async fn open_consumed(&self) -> (Sale, Option<Consumer>) {
        let sale = self.open().await;
        let consumer = self.redis.as_ref().map(|_| consume(&sale));
        (sale, consumer)
    }
}

/// Options of a consumer that tests need not wait for.
pub(super) fn quick() -> ConsumerOptions {
    ConsumerOptions::default()
        .idle(Duration::from_millis(300))
        .sweep_every(Duration::from_millis(20))
        .look_every(Duration::from_millis(50))
}

pub(super) fn consume(sale: &Sale) -> Consumer {
    sale.consume(quick()).unwrap()
}

/// Puts `units` of item `i` on sale.
pub(super) async fn on_sale(sale: &Sale, units: u64) -> Item {
    on_sale_with(sale, units, Terms::default()).await
}

pub(super) async fn on_sale_with(sale: &Sale, units: u64, terms: Terms) -> Item {
    let spread = SPREAD.try_with(|spread| *spread).unwrap_or(1);
    let item = NewItem::new("i", units).unwrap();
    let item = item.terms(terms).spread(spread);
    sale.create(&item).await.unwrap();
    sale.open_item("i").await.unwrap()
}

pub(super) fn request(buyer: &str, id: &str) -> Request {
    Request::new("i", buyer, id).unwrap()
}

/// What the gate says to `buyer` who asks for one unit.
pub(super) async fn ask(sale: &Sale, buyer: &str, id: &str) -> Outcome {
    sale.submit(&request(buyer, id)).await.unwrap().outcome
}

/// What a buyer is told who tries again, with the same id, while the gate cannot be reached.
pub(super) async fn ask_again(sale: &Sale, buyer: &str, id: &str) -> Outcome {
    let begun = Instant::now();
    loop {
        match sale.submit(&request(buyer, id)).await {
            Ok(receipt) => return receipt.outcome,
            Err(error) if begun.elapsed() < SOON => {
                assert_eq!(error.kind(), ErrorKind::Store, "{error}");
                sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// An order that must be accepted.
pub(super) async fn buy(sale: &Sale, buyer: &str) -> OrderId {
    match ask(sale, buyer, "r").await {
        Outcome::Accepted(order) => order,
        outcome => panic!("{buyer} was told {outcome:?}"),
    }
}

/// The order, when it is no longer queued.
pub(super) async fn settled(sale: &Sale, order: &OrderId) -> Order {
    let order = sale.wait(order, SOON).await.unwrap();
    assert_ne!(order.state, OrderState::Queued, "{order:?}");
    order
}

/// An order that is accepted and reserved.
pub(super) async fn reserve(sale: &Sale, buyer: &str) -> OrderId {
    let order = buy(sale, buyer).await;
    assert_eq!(settled(sale, &order).await.state, OrderState::Reserved);
    order
}

/// Waits until an order is in this state.
pub(super) async fn becomes(sale: &Sale, order: &OrderId, state: OrderState) {
    until(&format!("{order} is {state}"), async || {
        sale.order(order)
            .await
            .is_ok_and(|order| order.state == state)
    })
    .await;
}

/// The units left at the gate.
pub(super) async fn left(sale: &Sale) -> u64 {
    let standing = sale.gate().standing("i").await.unwrap();
    standing.unwrap().left.unwrap()
}

pub(super) async fn sold(sale: &Sale) -> u64 {
    sale.item("i").await.unwrap().unwrap().sold
}

/// Waits until so many units are left at the gate.
pub(super) async fn left_becomes(sale: &Sale, units: u64) {
    until(&format!("{units} units are left"), async || {
        sale.gate()
            .standing("i")
            .await
            .is_ok_and(|standing| standing.is_some_and(|standing| standing.left == Some(units)))
    })
    .await;
}

/// Waits until the queue is empty.
pub(super) async fn drained(sale: &Sale) {
    until("the queue is empty", async || {
        sale.gate()
            .standing("i")
            .await
            .is_ok_and(|standing| standing.is_some_and(|standing| standing.queued == 0))
    })
    .await;
}

/// Gate, queue and ledger must agree, with nothing under way.
pub(super) async fn agrees(sale: &Sale) -> Report {
    drained(sale).await;
    let report = sale.reconcile("i", Mode::DryRun).await.unwrap();
    assert!(report.settled, "{report}");
    assert!(report.is_clean(), "{report}");
    report
}

/// Waits until `condition` holds.
pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !condition().await {
        assert!(Instant::now() < end, "it never came to be that {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[track_caller]
pub(super) fn fails<T: std::fmt::Debug>(result: tenure_sale::Result<T>, kind: ErrorKind) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string()
}
