//! Consumers that die, stop, and share the work.

use std::collections::HashSet;
use std::time::Duration;

use tenure_sale::{ConsumerOptions, OrderState, Outcome};

use super::stage::{
    SOON, Stage, agrees, ask, buy, consume, drained, on_sale, quick, settled, sold, until,
};

on! { [redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    what_a_dead_consumer_left_another_takes_over,
    several_consumers_share_the_work,
    a_clean_stop_leaves_nothing_behind,
    dropping_a_consumer_does_no_harm,
}

on! { [redis_sqlite, spread_sqlite]:
    what_a_killed_consumer_had_is_confirmed_within_seconds,
    who_waits_for_the_ledger_keeps_its_entries,
    a_new_item_is_noticed,
    a_closed_item_is_consumed_to_its_end,
}

async fn what_a_dead_consumer_left_another_takes_over(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let mut orders = Vec::new();
    for buyer in 0..10 {
        orders.push(buy(&sale, &buyer.to_string()).await);
    }
    // It dies with some entries in its hands: one committed and not acknowledged, the others only read.
    let read = sale.gate().read("i", "dead", 4, Duration::from_secs(1));
    let read = read.await.unwrap();
    assert_eq!(read.len(), 4);
    sale.ledger().commit(&read[..1]).await.unwrap();

    let _consumer = consume(&sale);
    for order in &orders {
        assert_eq!(settled(&sale, order).await.state, OrderState::Reserved);
    }
    drained(&sale).await;
    let stats = sale.stats();
    assert_eq!((stats.claimed, stats.redelivered), (4, 1));
    assert_eq!(sold(&sale).await, 10);
    agrees(&sale).await;
}

/// With the options that everybody has: by whether it is alive, not by how long ago it read them.
async fn what_a_killed_consumer_had_is_confirmed_within_seconds(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let mut orders = Vec::new();
    for buyer in 0..10 {
        orders.push(buy(&sale, &buyer.to_string()).await);
    }
    let read = sale.gate().read("i", "dead", 10, Duration::from_secs(1));
    assert_eq!(read.await.unwrap().len(), 10);
    let _consumer = sale.consume(ConsumerOptions::default()).unwrap();
    for order in &orders {
        assert_eq!(settled(&sale, order).await.state, OrderState::Reserved);
    }
    assert_eq!(sale.stats().claimed, 10);
    agrees(&sale).await;
}

async fn who_waits_for_the_ledger_keeps_its_entries(stage: Stage) {
    let dead_after = Duration::from_secs(4);
    let sales = [stage.open().await, stage.open().await];
    let sale = &sales[0];
    on_sale(sale, 10).await;
    let ledger = stage.hold_ledger();
    let order = buy(sale, "anna").await;
    let consumers: Vec<_> = sales
        .iter()
        .map(|sale| {
            sale.consume(quick().idle(SOON).dead_after(dead_after))
                .unwrap()
        })
        .collect();
    until("the entry was read", async || {
        let standing = sale.gate().standing("i").await.unwrap();
        standing.is_some_and(|standing| standing.pending == 1)
    })
    .await;
    tokio::time::sleep(dead_after.mul_f64(1.5)).await;
    drop(ledger);
    assert_eq!(settled(sale, &order).await.state, OrderState::Reserved);
    assert_eq!(sales.each_ref().map(|sale| sale.stats().claimed), [0, 0]);
    drop(consumers);
}

async fn several_consumers_share_the_work(stage: Stage) {
    let sales = [stage.open().await, stage.open().await, stage.open().await];
    let sale = &sales[0];
    on_sale(sale, 400).await;
    let consumers: Vec<_> = sales
        .iter()
        .map(|sale| sale.consume(quick().batch(10)).unwrap())
        .collect();
    let names: HashSet<_> = consumers.iter().map(tenure_sale::Consumer::name).collect();
    assert_eq!(names.len(), 3);
    let buyers = (0..400).map(|buyer| {
        let sale = sale.clone();
        tokio::spawn(async move { buy(&sale, &buyer.to_string()).await })
    });
    for buyer in buyers.collect::<Vec<_>>() {
        let order = buyer.await.unwrap();
        assert_eq!(settled(sale, &order).await.state, OrderState::Reserved);
    }
    drained(sale).await;
    assert_eq!(sold(sale).await, 400);
    let committed = sales.iter().map(|sale| sale.stats().committed);
    assert_eq!(committed.sum::<u64>(), 400);
    agrees(sale).await;
}

async fn a_clean_stop_leaves_nothing_behind(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 500).await;
    let consumer = sale.consume(quick().batch(7)).unwrap();
    let buyers = (0..300).map(|buyer| {
        let sale = sale.clone();
        tokio::spawn(async move { ask(&sale, &buyer.to_string(), "r").await })
    });
    let buyers: Vec<_> = buyers.collect();
    until("some are committed", async || sold(&sale).await > 20).await;
    consumer.stop().await;
    for buyer in buyers {
        assert!(matches!(buyer.await.unwrap(), Outcome::Accepted(_)));
    }
    let standing = sale.gate().standing("i").await.unwrap().unwrap();
    assert_eq!(standing.pending, 0, "{standing:?}");
    assert_eq!(standing.queued + sold(&sale).await, 300);
    let _consumer = consume(&sale);
    drained(&sale).await;
    assert_eq!(sale.stats().redelivered, 0);
    agrees(&sale).await;
}

async fn dropping_a_consumer_does_no_harm(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 500).await;
    let buyers = (0..300).map(|buyer| {
        let sale = sale.clone();
        tokio::spawn(async move { buy(&sale, &buyer.to_string()).await })
    });
    let buyers: Vec<_> = buyers.collect();
    for _ in 0..10 {
        let consumer = sale.consume(quick().batch(7)).unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        drop(consumer);
    }
    let _consumer = consume(&sale);
    for buyer in buyers {
        let order = buyer.await.unwrap();
        assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
    }
    drained(&sale).await;
    assert_eq!(sold(&sale).await, 300);
    agrees(&sale).await;
}

async fn a_new_item_is_noticed(stage: Stage) {
    let (seller, other) = (stage.open().await, stage.open().await);
    let consumer = other
        .consume(tenure_sale::ConsumerOptions::default())
        .unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    on_sale(&seller, 1).await;
    let order = buy(&seller, "anna").await;
    let waited = seller.wait(&order, Duration::from_secs(3)).await.unwrap();
    assert_eq!(waited.state, OrderState::Reserved);
    consumer.stop().await;
}

async fn a_closed_item_is_consumed_to_its_end(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 3).await;
    let order = buy(&sale, "anna").await;
    sale.close("i").await.unwrap();
    let _consumer = consume(&sale);
    assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
    agrees(&sale).await;
}
