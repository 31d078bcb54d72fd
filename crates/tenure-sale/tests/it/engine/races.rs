//! Cancelled, paid for and expired at once: one wins, and units come back once.

use std::time::Duration;

use tenure_sale::{OrderState, Terms};

use super::stage::{Stage, agrees, buy, on_sale_with, sold};

on! { [memory_sqlite, redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    one_of_cancel_pay_and_expiry_wins,
}

const ORDERS: u64 = 40;

async fn one_of_cancel_pay_and_expiry_wins(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let terms = Terms {
        pay_within: Some(Duration::from_millis(1)),
        ..Terms::default()
    };
    on_sale_with(&sale, ORDERS, terms).await;
    let races = (0..ORDERS).map(|buyer| {
        let sale = sale.clone();
        tokio::spawn(async move {
            let order = buy(&sale, &format!("b{buyer}")).await;
            // All of them may lose against the sweeper, and late money buys again.
            let (paid, cancelled) = tokio::join!(sale.pay(&order), sale.cancel(&order));
            (order, paid, cancelled)
        })
    });
    let mut paid_for = 0;
    for race in races.collect::<Vec<_>>() {
        let (order, paid, cancelled) = race.await.unwrap();
        let state = sale.order(&order).await.unwrap().state;
        match paid {
            Ok(paid) => {
                assert_eq!(paid.state, state, "{order}: what was paid for stays so");
                paid_for += u64::from(state == OrderState::Paid);
            }
            Err(error) => panic!("{order} could not be paid for: {error}; {cancelled:?}"),
        }
    }
    super::stage::drained(&sale).await;
    assert_eq!(sold(&sale).await, paid_for);
    let report = agrees(&sale).await;
    assert_eq!(report.left, Some(ORDERS - paid_for));
}
