//! The ledger is unavailable: orders stay in the queue, and no entry is at fault.

use std::time::Duration;

use tenure_sale::{ErrorKind, OrderState, Outcome, Terms};

use super::stage::{
    Stage, agrees, ask, buy, consume, drained, fails, on_sale, on_sale_with, quick, reserve,
    settled, until,
};

on! { [redis_own_postgres]:
    orders_wait_for_a_ledger_that_is_away,
    a_consumer_is_stopped_while_the_ledger_is_away,
}

on! { [memory_sqlite]:
    in_memory_nothing_is_accepted_without_the_ledger,
}

async fn orders_wait_for_a_ledger_that_is_away(stage: Stage) {
    let sale = stage.open().await;
    let terms = Terms {
        backlog_max: 5,
        ..Terms::default()
    };
    on_sale_with(&sale, 100, terms).await;
    // Two of them: entries must not be counted as delivered again and again.
    let consumers = [
        sale.consume(quick().deliveries_max(1)).unwrap(),
        sale.consume(quick().deliveries_max(1)).unwrap(),
    ];
    reserve(&sale, "first").await;
    let postgres = stage.postgres.as_ref().unwrap();
    postgres.kill();
    let mut orders = Vec::new();
    for buyer in 0..5 {
        orders.push(buy(&sale, &buyer.to_string()).await);
    }
    assert_eq!(ask(&sale, "late", "r").await, Outcome::Busy);
    fails(sale.order(&orders[0]).await, ErrorKind::Ledger);
    tokio::time::sleep(Duration::from_secs(2)).await;
    postgres.restart();
    for order in &orders {
        until("it is reserved", async || {
            let waited = sale.wait(order, Duration::from_secs(5)).await;
            waited.is_ok_and(|order| order.state == OrderState::Reserved)
        })
        .await;
    }
    drained(&sale).await;
    reserve(&sale, "late").await;
    let stats = sale.stats();
    assert_eq!((stats.buried, stats.rejected, stats.lost), (0, 0, 0));
    agrees(&sale).await;
    for consumer in consumers {
        consumer.stop().await;
    }
}

async fn a_consumer_is_stopped_while_the_ledger_is_away(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let options = quick().stop_within(Duration::from_millis(500));
    let consumer = sale.consume(options).unwrap();
    reserve(&sale, "first").await;
    let postgres = stage.postgres.as_ref().unwrap();
    postgres.kill();
    let order = buy(&sale, "anna").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let stopping = tokio::time::timeout(Duration::from_secs(15), consumer.stop());
    stopping.await.unwrap();
    postgres.restart();
    let _consumer = consume(&sale);
    assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
    agrees(&sale).await;
}

async fn in_memory_nothing_is_accepted_without_the_ledger(stage: Stage) {
    let builder = stage.builder().confirm_within(Duration::from_millis(600));
    let sale = builder.open().await.unwrap();
    on_sale(&sale, 10).await;
    buy(&sale, "first").await;
    stage.sql(
        "CREATE TRIGGER away BEFORE INSERT ON sale_orders \
         BEGIN SELECT RAISE(ABORT, 'away'); END",
    );
    let asked = sale.submit(&super::stage::request("anna", "r")).await;
    let error = fails(asked, ErrorKind::Ledger);
    assert!(error.contains("same request"), "{error}");
    stage.sql("DROP TRIGGER away");
    // The same request finds its order.
    let Outcome::Replayed(order) = ask(&sale, "anna", "r").await else {
        panic!("it stands in the queue");
    };
    assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
    agrees(&sale).await;
}
