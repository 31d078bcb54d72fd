//! Gate and ledger loaded anew.

use tenure_sale::{ErrorKind, NewItem, OrderState, Outcome};

use super::stage::{Stage, agrees, ask, buy, fails, on_sale, settled, sold};

on! { [memory_sqlite, redis_sqlite, redis_postgres]:
    a_rebuild_in_the_middle_of_a_rush_loses_nothing,
    two_rebuilds_at_once_do_no_harm,
}

on! { [redis_sqlite]:
    a_rebuild_drains_without_a_consumer,
    a_draft_is_not_loaded,
    a_gate_of_another_ledger_is_not_overwritten,
}

async fn a_rebuild_in_the_middle_of_a_rush_loses_nothing(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 100).await;
    let rush = (0..300).map(|buyer| {
        let sale = sale.clone();
        tokio::spawn(async move { ask(&sale, &buyer.to_string(), "r").await })
    });
    let rush: Vec<_> = rush.collect();
    for _ in 0..3 {
        sale.rebuild("i").await.unwrap();
    }
    let mut accepted = Vec::new();
    for asked in rush {
        match asked.await.unwrap() {
            Outcome::Accepted(order) => accepted.push(order),
            Outcome::SoldOut => {}
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(accepted.len(), 100);
    for order in &accepted {
        assert_eq!(settled(&sale, order).await.state, OrderState::Reserved);
    }
    assert_eq!(sale.stats().lost, 0);
    agrees(&sale).await;
}

async fn two_rebuilds_at_once_do_no_harm(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 5).await;
    let order = buy(&sale, "anna").await;
    let other = if stage.redis.is_some() {
        stage.open().await
    } else {
        sale.clone()
    };
    let (first, second) = tokio::join!(sale.rebuild("i"), other.rebuild("i"));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.epoch.max(second.epoch), order.epoch() + 2);
    assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
    agrees(&sale).await;
}

async fn a_rebuild_drains_without_a_consumer(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 5).await;
    let order = buy(&sale, "anna").await;
    sale.rebuild("i").await.unwrap();
    assert_eq!(
        sale.order(&order).await.unwrap().state,
        OrderState::Reserved
    );
    assert_eq!(sold(&sale).await, 1);
    agrees(&sale).await;
}

async fn a_draft_is_not_loaded(stage: Stage) {
    let sale = stage.open().await;
    sale.create(&NewItem::new("i", 5).unwrap()).await.unwrap();
    fails(sale.rebuild("i").await, ErrorKind::Conflict);
    assert_eq!(ask(&sale, "anna", "r").await, Outcome::NoItem);
}

async fn a_gate_of_another_ledger_is_not_overwritten(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 5).await;
    for _ in 0..3 {
        sale.rebuild("i").await.unwrap();
    }
    let elsewhere = Stage::memory_sqlite();
    let other = tenure_sale::Sale::open(stage.gate_url(), elsewhere.ledger_url()).await;
    let other = other.unwrap();
    other.create(&NewItem::new("i", 99).unwrap()).await.unwrap();
    let error = fails(other.open_item("i").await, ErrorKind::Conflict);
    assert!(error.contains("another ledger"), "{error}");
    buy(&sale, "anna").await;
}
