//! Ids that were never given out, and orders of which only their buyer knows.

use std::time::Duration;

use tenure_sale::{ErrorKind, OrderId, OrderState, Sale};

use super::stage::{Stage, buy, fails, on_sale, reserve};

on! { [memory_sqlite, redis_sqlite, redis_postgres, spread_sqlite]:
    an_invented_id_is_no_order_and_is_not_written,
}

on! { [redis_sqlite, spread_sqlite]:
    to_read_a_lost_order_writes_nothing,
    an_interrupted_rebuild_forgets_no_number,
}

async fn an_invented_id_is_no_order_and_is_not_written(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 10).await;
    let order = reserve(&sale, "anna").await;
    sale.rebuild("i").await.unwrap();
    // Of a later epoch than the ledger's, of the present one, of an ended one, of none.
    let next = order.number() + stage.spread;
    for id in [
        format!("1.{next}"),
        "1.4711".into(),
        "2.4711".into(),
        "9.0".into(),
        "0.0".into(),
    ] {
        is_no_order(&sale, &format!("i.{id}")).await;
    }
    // An epoch in which nothing was ordered.
    sale.rebuild("i").await.unwrap();
    is_no_order(&sale, "i.2.0").await;
    assert_eq!(lost_in_the_ledger(&sale).await, 0);
    assert_eq!(sale.stats().lost, 0);
    assert_eq!(
        sale.order(&order).await.unwrap().state,
        OrderState::Reserved
    );
}

/// The process that accepted it is gone, and so is the gate's data.
async fn to_read_a_lost_order_writes_nothing(stage: Stage) {
    let first = stage.open().await;
    on_sale(&first, 10).await;
    let order = buy(&first, "anna").await;
    drop(first);
    stage.redis().kill();
    stage.redis().restart_empty();
    let sale = stage.open().await;
    sale.rebuild("i").await.unwrap();
    assert_eq!(sale.order(&order).await.unwrap().state, OrderState::Lost);
    fails(sale.cancel(&order).await, ErrorKind::Conflict);
    fails(sale.pay(&order).await, ErrorKind::Conflict);
    assert_eq!(lost_in_the_ledger(&sale).await, 0);
    assert_eq!(sale.stats().lost, 0);
    // More than the queue may hold were never accepted.
    is_no_order(&sale, "i.1.1000000000").await;
}

/// A load that was begun and never finished, by a process that died.
async fn an_interrupted_rebuild_forgets_no_number(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let order = buy(&sale, "anna").await;
    let fence = tenure::Fence::new((1 << 53) - 1);
    let begun = sale.gate().begin_load("i", 2, fence, stage.spread).await;
    assert!(begun.unwrap());
    stage.redis().kill();
    stage.redis().restart();
    // The lock's fences are lower than this one.
    let mut redis = stage.redis().client();
    for key in redis.command(&["KEYS", "tenure:sale:{i*:gate"]).array() {
        redis.command(&["HSET", key.text(), "fence", "0"]);
    }
    sale.rebuild("i").await.unwrap();
    assert_eq!(
        sale.order(&order).await.unwrap().state,
        OrderState::Reserved
    );
    let next = order.number() + stage.spread;
    is_no_order(&sale, &format!("i.1.{next}")).await;
}

async fn is_no_order(sale: &Sale, id: &str) {
    let id: OrderId = id.parse().unwrap();
    fails(sale.order(&id).await, ErrorKind::NoOrder);
    fails(sale.wait(&id, Duration::ZERO).await, ErrorKind::NoOrder);
    fails(sale.cancel(&id).await, ErrorKind::NoOrder);
    fails(sale.pay(&id).await, ErrorKind::NoOrder);
}

async fn lost_in_the_ledger(sale: &Sale) -> usize {
    let lost = sale.ledger().orders_for("i", Some(OrderState::Lost), 10);
    lost.await.unwrap().len()
}
