//! The gate's server restarts, with and without what it knew.

use std::time::Duration;

use tenure_sale::gate::{Entry, Wanted};
use tenure_sale::ledger::Fate;
use tenure_sale::{ErrorKind, OrderState, Outcome, Sale, Terms};

use super::stage::{
    SOON, Stage, agrees, ask, ask_again, becomes, buy, consume, drained, fails, left, on_sale,
    on_sale_with, request, reserve, settled, sold, until,
};

on! { [redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    a_server_that_comes_back_is_rebuilt_and_nothing_is_lost,
    a_server_that_comes_back_empty_sells_nothing_twice,
}

on! { [redis_sqlite, spread_sqlite]:
    a_gate_that_is_away_is_told_and_nothing_is_lost,
    without_a_consumer_the_buyer_rebuilds,
    lost_orders_are_found_though_nobody_asks,
    a_zombie_that_kept_entries_is_refused,
    limits_outlive_the_server,
    a_gate_that_lost_its_item_gives_the_orders_that_it_accepted,
}

async fn a_server_that_comes_back_is_rebuilt_and_nothing_is_lost(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 100).await;
    let mut orders = Vec::new();
    for buyer in 0..30 {
        orders.push(buy(&sale, &buyer.to_string()).await);
    }
    // All of them are in the queue only.
    stage.redis().kill();
    stage.redis().restart();
    let _consumer = consume(&sale);
    for order in &orders {
        assert_eq!(settled(&sale, order).await.state, OrderState::Reserved);
    }
    let next = buy(&sale, "next").await;
    assert!(next.epoch() > orders[0].epoch());
    settled(&sale, &next).await;
    assert_eq!(sale.stats().lost, 0);
    let report = agrees(&sale).await;
    assert_eq!((report.item.sold, report.left), (31, Some(69)));
}

async fn a_server_that_comes_back_empty_sells_nothing_twice(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let consumer = consume(&sale);
    let mut reserved = Vec::new();
    for buyer in 0..6 {
        reserved.push(reserve(&sale, &buyer.to_string()).await);
    }
    consumer.stop().await;
    // These never reach the ledger.
    let unconfirmed = [buy(&sale, "x").await, buy(&sale, "y").await];
    stage.redis().kill();
    stage.redis().restart_empty();

    let _consumer = consume(&sale);
    for order in &unconfirmed {
        becomes(&sale, order, OrderState::Lost).await;
    }
    until("they are counted", async || sale.stats().lost == 2).await;
    for order in &reserved {
        assert_eq!(sale.order(order).await.unwrap().state, OrderState::Reserved);
    }
    // A request whose order was lost may become another; one whose order stands does not.
    assert_eq!(
        ask(&sale, "0", "r").await,
        Outcome::Replayed(reserved[0].clone())
    );
    let mut accepted = 0;
    for buyer in 100..120 {
        if let Outcome::Accepted(order) = ask(&sale, &buyer.to_string(), "r").await {
            assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
            accepted += 1;
        }
    }
    assert_eq!(accepted, 4);
    assert_eq!(sold(&sale).await, 10);
    assert_eq!(sale.stats().rejected, 0);
    agrees(&sale).await;
}

async fn a_gate_that_is_away_is_told_and_nothing_is_lost(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 10).await;
    let order = reserve(&sale, "anna").await;
    stage.redis().kill();
    let error = sale.submit(&request("ben", "r")).await;
    fails(error, ErrorKind::Store);
    // The ledger can be read and changed; the gate is updated later.
    assert_eq!(
        sale.order(&order).await.unwrap().state,
        OrderState::Reserved
    );
    assert_eq!(
        sale.cancel(&order).await.unwrap().state,
        OrderState::Cancelled
    );
    stage.redis().restart();
    until("the gate sells again", async || {
        matches!(sale.submit(&request("ben", "r")).await, Ok(answer) if answer.outcome.order().is_some())
    })
    .await;
    drained(&sale).await;
    assert_eq!((left(&sale).await, sold(&sale).await), (9, 1));
    agrees(&sale).await;
}

async fn without_a_consumer_the_buyer_rebuilds(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let order = buy(&sale, "anna").await;
    stage.redis().kill();
    stage.redis().restart();
    let rush = (0..50).map(|buyer| {
        let sale = sale.clone();
        // A connection that ended with the server may be noticed by the first requests only.
        tokio::spawn(async move { ask_again(&sale, &buyer.to_string(), "r").await })
    });
    let mut accepted = 0;
    for asked in rush.collect::<Vec<_>>() {
        match asked.await.unwrap() {
            Outcome::Accepted(_) => accepted += 1,
            Outcome::SoldOut => {}
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(accepted, 9);
    // The rebuild has brought what was in the queue into the ledger.
    assert_eq!(
        sale.order(&order).await.unwrap().state,
        OrderState::Reserved
    );
    assert_eq!(sale.stats().rebuilds, 2);
    agrees_with_queue(&sale).await;
}

async fn agrees_with_queue(sale: &tenure_sale::Sale) {
    let report = sale
        .reconcile("i", tenure_sale::Mode::DryRun)
        .await
        .unwrap();
    assert!(report.settled && report.is_clean(), "{report}");
    assert_eq!(report.queued, 9, "{report}");
}

async fn lost_orders_are_found_though_nobody_asks(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    buy(&sale, "anna").await;
    stage.redis().kill();
    stage.redis().restart_empty();
    // Another process has the gate rebuilt.
    let other = stage.open().await;
    other.rebuild("i").await.unwrap();
    until("the loss is counted", async || sale.stats().lost == 1).await;
    let counts = sale.ledger().counts("i").await.unwrap();
    let lost = counts.iter().find(|count| count.state == OrderState::Lost);
    assert_eq!(lost.unwrap().orders, 1);
    let mut events = sale.events("i", Some(0)).await.unwrap();
    let told = async {
        while !matches!(
            events.next().await,
            tenure_sale::Event::Orders {
                state: OrderState::Lost,
                ..
            }
        ) {}
    };
    tokio::time::timeout(SOON, told).await.unwrap();
}

async fn a_zombie_that_kept_entries_is_refused(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 2).await;
    let order = buy(&sale, "anna").await;
    // It reads the entry, and is paused for a long time.
    let held: Vec<Entry> = sale
        .gate()
        .read("i", "zombie", 10, Duration::from_secs(1))
        .await
        .unwrap();
    assert!(matches!(&held[0].what, Ok(Wanted::Order { .. })));
    stage.redis().kill();
    stage.redis().restart_empty();
    sale.rebuild("i").await.unwrap();
    let (x, y) = (buy(&sale, "x").await, buy(&sale, "y").await);
    let _consumer = consume(&sale);
    settled(&sale, &x).await;
    settled(&sale, &y).await;
    // It wakes up, with an order for a unit that is sold by now.
    let fates = sale.ledger().commit(&held).await.unwrap();
    assert!(
        matches!(fates[..], [Fate::Stale | Fate::Known(OrderState::Lost)]),
        "{fates:?}"
    );
    assert_eq!(sale.order(&order).await.unwrap().state, OrderState::Lost);
    assert_eq!(sold(&sale).await, 2);
    agrees(&sale).await;
}

/// The queue is still there, but not how many shelves there are: a new process must not guess.
async fn a_gate_that_lost_its_item_gives_the_orders_that_it_accepted(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 30).await;
    let mut orders = Vec::new();
    for buyer in 0..30 {
        orders.push(buy(&sale, &buyer.to_string()).await);
    }
    let mut redis = stage.redis().client();
    redis.command(&["DEL", "tenure:sale:{i}:gate"]);
    let other = stage.open().await;
    let _consumer = consume(&other);
    for order in &orders {
        assert_eq!(settled(&other, order).await.state, OrderState::Reserved);
    }
    agrees(&other).await;
}

async fn limits_outlive_the_server(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let terms = Terms {
        limit_per_buyer: Some(2),
        ..Terms::default()
    };
    on_sale_with(&sale, 10, terms).await;
    reserve(&sale, "anna").await;
    stage.redis().kill();
    stage.redis().restart_empty();
    until("the gate sells again", async || {
        matches!(sale.submit(&request("anna", "r2")).await, Ok(answer) if answer.outcome.order().is_some())
    })
    .await;
    assert_eq!(ask(&sale, "anna", "r3").await, Outcome::LimitReached);
    drained(&sale).await;
    assert_eq!(sale.stats().rejected, 0);
    agrees(&sale).await;
}

#[tenure_testkit::test]
async fn a_gate_that_cannot_be_reached_is_named() {
    let stage = Stage::memory_sqlite();
    let opening = Sale::open("redis://127.0.0.1:1", stage.ledger_url());
    let error = fails(opening.await, ErrorKind::Store);
    assert_eq!(error, "cannot connect to the gate");
}
