//! Payments that come late.

use std::time::Duration;

use tenure_sale::{OrderState, Terms};

use super::stage::{Stage, agrees, becomes, buy, left_becomes, on_sale_with, reserve, sold};

on! { [memory_sqlite, redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    late_money_buys_the_units_again,
    late_money_for_what_is_sold_is_to_be_refunded,
}

fn terms() -> Terms {
    Terms {
        pay_within: Some(Duration::from_millis(1)),
        ..Terms::default()
    }
}

async fn late_money_buys_the_units_again(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale_with(&sale, 2, terms()).await;
    let order = buy(&sale, "anna").await;
    becomes(&sale, &order, OrderState::Expired).await;
    left_becomes(&sale, 2).await;
    // Twice at once: it is one payment.
    let (first, second) = tokio::join!(sale.pay(&order), sale.pay(&order));
    assert_eq!(first.unwrap().state, OrderState::Paid);
    assert_eq!(second.unwrap().state, OrderState::Paid);
    left_becomes(&sale, 1).await;
    assert_eq!(sold(&sale).await, 1);
    agrees(&sale).await;
}

async fn late_money_for_what_is_sold_is_to_be_refunded(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale_with(&sale, 1, terms()).await;
    let order = buy(&sale, "anna").await;
    becomes(&sale, &order, OrderState::Expired).await;
    left_becomes(&sale, 1).await;
    sale.set_terms("i", &Terms::default()).await.unwrap();
    reserve(&sale, "ben").await;
    let paid = sale.pay(&order).await.unwrap();
    assert_eq!(paid.state, OrderState::PaidUnfulfilled);
    let again = sale.pay(&order).await.unwrap();
    assert_eq!(again.state, OrderState::PaidUnfulfilled);
    assert_eq!(sold(&sale).await, 1);
    agrees(&sale).await;
}
