//! Items whose stock is spread over the nodes of a cluster, as the engine sells them.

use std::collections::BTreeSet;
#[cfg(feature = "failpoints")]
use std::process::Command;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::Connection as _;
use tenure_sale::{
    ErrorKind, Mode, NewItem, OrderId, OrderState, Outcome, Request, SPREAD_MAX, Sale, Terms,
};
#[cfg(feature = "failpoints")]
use tenure_testkit::ClientProcess;
use tenure_testkit::{Cluster, FailoverKind};

use super::stage::{
    SPREAD, Stage, agrees, ask, buy, consume, fails, on_sale, quick, settled, sold, until,
};

/// One for each node.
const SHELVES: u64 = 3;

/// Where the process that dies finds its sale.
#[cfg(feature = "failpoints")]
const GATE: &str = "TENURE_TEST_GATE";
#[cfg(feature = "failpoints")]
const LEDGER: &str = "TENURE_TEST_LEDGER";

struct Hot {
    cluster: Cluster,
    files: Stage,
}

impl Hot {
    fn start() -> Self {
        Self {
            cluster: Cluster::builder().steady().start(),
            files: Stage::memory_sqlite(),
        }
    }

    /// Forgets everything.
    #[cfg(feature = "failpoints")]
    fn clear(&mut self) {
        self.files = Stage::memory_sqlite();
        for server in self.cluster.servers() {
            if server.info("role") == "master" {
                server.client().command(&["FLUSHALL"]);
            }
        }
    }

    /// The sale, as one process of it.
    async fn open(&self) -> Sale {
        let opening = Sale::open(self.cluster.url(), self.files.ledger_url());
        opening.await.unwrap()
    }

    /// The sale with an item on it.
    async fn selling(&self, units: u64, terms: Terms) -> Sale {
        let sale = self.open().await;
        let item = NewItem::new("i", units).unwrap().terms(terms);
        let item = sale.create(&item.spread(SHELVES)).await.unwrap();
        assert_eq!(item.spread, SHELVES);
        sale.open_item("i").await.unwrap();
        sale
    }
}

/// Asks until something is said that is not *ask again*.
async fn insist(sale: &Sale, buyer: &str, id: &str) -> Outcome {
    loop {
        match sale.submit(&Request::new("i", buyer, id).unwrap()).await {
            Ok(answer) if matches!(answer.outcome, Outcome::Busy | Outcome::StaleEpoch) => {}
            Ok(answer) => return answer.outcome,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Store, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// So many requests at once, each in one of several processes; the orders and how many were turned
/// away. Most are of two buyers, so that units have to be brought to their shelves.
async fn crowd(sales: &[Sale], requests: std::ops::Range<u32>) -> (BTreeSet<OrderId>, u32) {
    let asking = requests.map(|n| {
        let sale = sales[n as usize % sales.len()].clone();
        let buyer = if n % 4 == 0 { n } else { n % 2 };
        let (buyer, id) = (format!("buyer-{buyer}"), format!("r{n}"));
        tokio::spawn(async move { insist(&sale, &buyer, &id).await })
    });
    let (mut orders, mut refused) = (BTreeSet::new(), 0);
    for outcome in asking.collect::<Vec<_>>() {
        match outcome.await.unwrap() {
            Outcome::Accepted(order) | Outcome::Replayed(order) => assert!(orders.insert(order)),
            Outcome::SoldOut => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    (orders, refused)
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_buys_exactly_what_there_is() {
    let hot = Hot::start();
    let sale = hot.selling(400, Terms::default()).await;
    let sales = [sale.clone(), hot.open().await];
    let consumer = consume(&sales[1]);
    let (orders, refused) = crowd(&sales, 0..1000).await;
    assert_eq!((orders.len(), refused), (400, 600));
    // Each of them comes into the ledger, whatever shelf it was sold from.
    let shelves: BTreeSet<u64> = orders
        .iter()
        .map(|order| order.number() % SHELVES)
        .collect();
    assert_eq!(shelves.len(), 3);
    for order in &orders {
        assert_eq!(settled(&sale, order).await.state, OrderState::Reserved);
    }
    // Released units are sold again, and then it is sold out again.
    for order in orders.iter().take(10) {
        sale.cancel(order).await.unwrap();
    }
    let (again, refused) = crowd(&sales, 1000..1050).await;
    assert_eq!((again.len(), refused), (10, 40));
    agrees(&sale).await;
    assert_eq!(sold(&sale).await, 400);
    let verdict = sale.verify("i").await.unwrap();
    assert!(verdict.holds(), "{:?}", verdict.broken());
    consumer.stop().await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_requests_are_as_exact_as_on_one_shelf() {
    let hot = Hot::start();
    let terms = Terms {
        limit_per_buyer: Some(2),
        units_per_order: 2,
        ..Terms::default()
    };
    let sale = hot.selling(100, terms).await;
    let sales = [sale.clone(), hot.open().await];
    let _consumer = consume(&sale);
    for buyer in 0..12 {
        let buyer = format!("buyer-{buyer}");
        // Many requests at once, each twice: two orders, and each request has one answer.
        let asking = (0..10).map(|n| {
            let (sale, buyer) = (sales[n % 2].clone(), buyer.clone());
            tokio::spawn(async move { insist(&sale, &buyer, &format!("r{}", n / 2)).await })
        });
        let mut orders = BTreeSet::new();
        for outcome in asking.collect::<Vec<_>>() {
            match outcome.await.unwrap() {
                Outcome::Accepted(order) | Outcome::Replayed(order) => {
                    orders.insert(order);
                }
                outcome => assert_eq!(outcome, Outcome::LimitReached),
            }
        }
        assert_eq!(orders.len(), 2);
    }
    // Also after the gate was loaded anew.
    sale.rebuild("i").await.unwrap();
    for buyer in 0..12 {
        let buyer = format!("buyer-{buyer}");
        assert_eq!(insist(&sale, &buyer, "new").await, Outcome::LimitReached);
    }
    agrees(&sale).await;
    assert_eq!(sale.stats().rejected, 0);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_to_an_item_reaches_all_its_shelves() {
    let hot = Hot::start();
    let sale = hot.selling(30, Terms::default()).await;
    let _consumer = consume(&sale);
    let all_say = async |wanted: Outcome, id: &str| {
        for buyer in 0..12 {
            let said = insist(&sale, &format!("buyer-{buyer}"), id).await;
            assert_eq!(said, wanted, "buyer-{buyer}");
        }
    };
    sale.pause("i").await.unwrap();
    all_say(Outcome::Paused, "paused").await;
    sale.open_item("i").await.unwrap();
    // More than any shelf has is taken out of the stock.
    let item = sale.adjust("i", -25, "damaged", "w1").await.unwrap();
    assert_eq!(item.total, 5);
    fails(
        sale.adjust("i", -6, "damaged", "w2").await,
        ErrorKind::Conflict,
    );
    sale.set_stock("i", 7, Some(5)).await.unwrap();
    fails(sale.set_stock("i", 9, Some(5)).await, ErrorKind::Conflict);
    let (orders, refused) = crowd(std::slice::from_ref(&sale), 0..20).await;
    assert_eq!((orders.len(), refused), (7, 13));
    sale.close("i").await.unwrap();
    all_say(Outcome::Ended, "closed").await;
    agrees(&sale).await;
    assert!(sale.forget("i").await.unwrap());
    assert_eq!(sale.gate().standing("i").await.unwrap(), None);
}

/// A node is replaced in the middle of a rush, by one that has all it was told.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_replaced_loses_nothing() {
    let hot = Hot::start();
    let sale = hot.selling(2_000, Terms::default()).await;
    let sales = [sale.clone(), hot.open().await];
    let _consumer = consume(&sale);
    let selling = {
        let sales = sales.clone();
        tokio::spawn(async move { crowd(&sales, 0..2_500).await })
    };
    until("it is selling", async || sold(&sale).await > 50).await;
    // The node of shelf 0 has the lock too, so another one as well.
    let masters: Vec<_> = (hot.cluster.servers().iter())
        .filter(|server| server.info("role") == "master")
        .collect();
    for master in masters.into_iter().take(2) {
        let shard = hot.cluster.shard_of(master);
        let replica = shard.iter().find(|server| server.info("role") == "slave");
        hot.cluster
            .failover(replica.unwrap(), FailoverKind::Orderly);
    }
    let (orders, refused) = selling.await.unwrap();
    assert_eq!((orders.len(), refused), (2_000, 500));
    agrees(&sale).await;
    assert_eq!((sold(&sale).await, sale.stats().rejected), (2_000, 0));
}

/// A process dies after units left one shelf, before or after they came to another.
#[cfg(feature = "failpoints")]
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_dies_while_units_move_loses_none() {
    let mut hot = Hot::start();
    for step in ["move.after_give", "move.after_receive"] {
        for heal in ["buyers", "consumer", "reconcile", "rebuild"] {
            hot.clear();
            let sale = hot.selling(9, Terms::default()).await;
            let mut dies = Command::new(std::env::current_exe().unwrap());
            dies.args(["--exact", "engine::hot::a_process_that_dies"])
                .args(["--ignored", "--nocapture", "--quiet"])
                .env(GATE, hot.cluster.url())
                .env(LEDGER, hot.files.ledger_url())
                .env("TENURE_SALE_FAILPOINT", step);
            let process = ClientProcess::spawn(&dies);
            let status = process.wait(Duration::from_mins(1)).unwrap();
            assert!(!status.success(), "it passed {step}");
            let standing = sale.gate().standing("i").await.unwrap().unwrap();
            assert!(standing.moving > 0, "{step}: {standing:?}");
            let consumer = match heal {
                "consumer" => {
                    let consumer = sale.consume(quick()).unwrap();
                    until("the move is finished", async || {
                        let standing = sale.gate().standing("i").await.unwrap().unwrap();
                        standing.moving == 0
                    })
                    .await;
                    Some(consumer)
                }
                "reconcile" => {
                    let report = sale.reconcile("i", Mode::DryRun).await.unwrap();
                    assert!(report.settled && report.is_clean(), "{report}");
                    None
                }
                "rebuild" => {
                    sale.rebuild("i").await.unwrap();
                    None
                }
                _ => None,
            };
            // The one that died had bought what its own shelf had.
            let (orders, refused) = crowd(std::slice::from_ref(&sale), 0..20).await;
            assert_eq!((orders.len(), refused), (6, 14), "{step}, {heal}");
            let _consumer = consumer.unwrap_or_else(|| consume(&sale));
            agrees(&sale).await;
            assert_eq!(sold(&sale).await, 9);
        }
    }
}

/// Not a test: buys everything as one buyer, whose shelf has only a third of it.
#[cfg(feature = "failpoints")]
#[tenure_testkit::test]
#[ignore = "run by the test above, in a process of its own"]
async fn a_process_that_dies() {
    let (gate, ledger) = (std::env::var(GATE), std::env::var(LEDGER));
    let sale = Sale::open(gate.unwrap(), ledger.unwrap()).await.unwrap();
    for n in 0..9 {
        insist(&sale, "ann", &format!("r{n}")).await;
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spread_that_makes_no_sense_is_refused() {
    let stage = Stage::memory_sqlite();
    let sale = stage.open().await;
    for spread in [0, SPREAD_MAX + 1] {
        let item = NewItem::new("i", 5).unwrap().spread(spread);
        let error = fails(sale.create(&item).await, ErrorKind::InvalidSetting);
        assert!(error.contains("1 to 64"), "{error}");
    }
    // In memory there is one place, and everything else is the same.
    let item = NewItem::new("i", 2).unwrap().spread(SPREAD_MAX);
    sale.create(&item).await.unwrap();
    sale.open_item("i").await.unwrap();
    let (orders, refused) = crowd(std::slice::from_ref(&sale), 0..5).await;
    assert_eq!((orders.len(), refused), (2, 3));
    assert_eq!(ask(&sale, "zoe", "r").await, Outcome::SoldOut);
    agrees(&sale).await;
}

/// A shelf that answers nothing sensible stands for one whose node is away: it fails at once.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_looked_for_on_its_own_shelf() {
    let stage = Stage::spread_sqlite();
    let sale = stage.open().await;
    let orders = SPREAD.scope(stage.spread, async {
        on_sale(&sale, 400).await;
        let mut orders = Vec::new();
        for n in 0..40 {
            orders.push(buy(&sale, &format!("buyer-{n}")).await);
        }
        orders
    });
    let orders = orders.await;
    stage
        .redis()
        .client()
        .command(&["SET", "tenure:sale:{i}:gate", "no shelf"]);
    for order in &orders {
        let found = sale.order(order).await.unwrap();
        assert_eq!(found.state, OrderState::Queued);
    }
    // That one never was is said by the shelf where it would be.
    let never = |number| OrderId::from_str(&format!("i.{}.{number}", orders[0].epoch())).unwrap();
    fails(sale.order(&never(4_001)).await, ErrorKind::NoOrder);
    fails(sale.order(&never(4_000)).await, ErrorKind::Stale);
}

/// The workers of all shelves want the same row: one of them waits for it, and the others for that one.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_one_item_take_one_connection() {
    let mut stage = Stage::redis_own_postgres();
    stage.spread = 4;
    let sale = stage.open().await;
    let mut other = sqlx::PgConnection::connect(&stage.ledger_url())
        .await
        .unwrap();
    let orders = SPREAD.scope(stage.spread, async {
        on_sale(&sale, 400).await;
        let lock = "BEGIN; SELECT 1 FROM sale_items FOR UPDATE";
        sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
        let mut orders = Vec::new();
        for n in 0..40 {
            orders.push(buy(&sale, &format!("buyer-{n}")).await);
        }
        orders
    });
    let orders = orders.await;
    let consumer = consume(&sale);
    // For longer than the server lets a transaction wait for a row.
    let end = tokio::time::Instant::now() + Duration::from_secs(5);
    let mut most = 0;
    while tokio::time::Instant::now() < end {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let waiting = stage.postgres.as_ref().unwrap().run_sql(waiting);
        most = most.max(waiting.parse::<u32>().unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(most, 1);
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    for order in &orders {
        assert_eq!(settled(&sale, order).await.state, OrderState::Reserved);
    }
    // No batch was split because it had to wait.
    assert_eq!(sale.stats().batches_failed, 0);
    agrees(&sale).await;
    consumer.stop().await;
}

/// Requests that end in *sold out* share the searches of their process, on all shelves.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sold_out_item_is_looked_at_once_for_all_homes() {
    let stage = Stage::redis_sqlite();
    let sale = stage.open().await;
    SPREAD.scope(SPREAD_MAX, on_sale(&sale, 1)).await;
    buy(&sale, "first").await;
    let looks = || {
        let mut client = stage.redis().client();
        let stats = client.command(&["INFO", "commandstats"]);
        let stats = stats.text().split_once("cmdstat_xpending:calls=");
        let calls = stats.and_then(|(_, rest)| rest.split(',').next().map(str::to_owned));
        calls.unwrap().parse::<u64>().unwrap()
    };
    let before = looks();
    let asking = (0..128).map(|n| {
        let sale = sale.clone();
        tokio::spawn(async move { ask(&sale, &format!("buyer-{n}"), "r").await })
    });
    for outcome in asking.collect::<Vec<_>>() {
        assert_eq!(outcome.await.unwrap(), Outcome::SoldOut);
    }
    // Twice all shelves for each of their homes would be about 7000; shared they are some hundreds.
    let calls = looks() - before;
    assert!(calls < 32 * 2 * SPREAD_MAX, "{calls} looks");
}
