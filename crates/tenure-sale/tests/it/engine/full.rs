//! The gate's server has no memory left.

use tenure_sale::{OrderState, Outcome};

use super::stage::{Stage, agrees, ask, buy, consume, drained, left_becomes, on_sale, settled};

on! { [redis_sqlite, spread_sqlite]:
    accepted_orders_are_confirmed_while_memory_is_full,
}

/// What frees memory is not refused, nor what stops the sale.
async fn accepted_orders_are_confirmed_while_memory_is_full(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let mut orders = Vec::new();
    for buyer in 0..5 {
        orders.push(buy(&sale, &buyer.to_string()).await);
    }
    // One of them is with a consumer that is gone.
    sale.gate()
        .read("i", "gone", 1, std::time::Duration::ZERO)
        .await
        .unwrap();
    stage.redis().fill_memory();
    let consumer = consume(&sale);
    for order in &orders {
        assert_eq!(settled(&sale, order).await.state, OrderState::Reserved);
    }
    drained(&sale).await;
    sale.cancel(&orders[0]).await.unwrap();
    left_becomes(&sale, 6).await;
    sale.pause("i").await.unwrap();
    consumer.stop().await;
    stage.redis().free_memory();
    assert_eq!(ask(&sale, "late", "r").await, Outcome::Paused);
    agrees(&sale).await;
}
