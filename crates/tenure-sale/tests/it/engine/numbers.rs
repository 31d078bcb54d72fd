//! The greatest numbers that are allowed, and what a buyer may have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_sale::{ORDER_UNITS_MAX, OrderState, Outcome, Terms, UNITS_MAX};

use super::stage::{Stage, agrees, ask, buy, left_becomes, on_sale_with, reserve, settled, until};

on! { [memory_sqlite, redis_sqlite, redis_postgres, spread_sqlite]:
    an_item_with_the_greatest_numbers_is_sold_closed_and_opened_again,
}

on! { [redis_sqlite, redis_postgres, spread_sqlite]:
    what_is_rejected_as_sold_out_does_not_count_for_its_buyer,
}

async fn an_item_with_the_greatest_numbers_is_sold_closed_and_opened_again(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let century = Duration::from_hours(24 * 36_525);
    let terms = Terms {
        starts_at: Some(SystemTime::now() - Duration::from_hours(1)),
        ends_at: Some(UNIX_EPOCH + Duration::from_millis(UNITS_MAX / 1000)),
        limit_per_buyer: Some(UNITS_MAX),
        units_per_order: ORDER_UNITS_MAX,
        pay_within: Some(century),
        backlog_max: UNITS_MAX,
        answers_kept: century,
    };
    on_sale_with(&sale, UNITS_MAX, terms.clone()).await;
    let order = reserve(&sale, "anna").await;
    sale.close("i").await.unwrap();
    assert_eq!(ask(&sale, "ben", "r").await, Outcome::Ended);
    sale.set_terms("i", &terms).await.unwrap();
    sale.open_item("i").await.unwrap();
    assert_eq!(ask(&sale, "anna", "r").await, Outcome::Replayed(order));
    reserve(&sale, "ben").await;
    agrees(&sale).await;
}

/// The gate had more units than there are, which only happens when a server lost data or somebody
/// wrote to it.
async fn what_is_rejected_as_sold_out_does_not_count_for_its_buyer(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let terms = Terms {
        limit_per_buyer: Some(1),
        ..Terms::default()
    };
    on_sale_with(&sale, stage.spread, terms).await;
    for buyer in 0..stage.spread {
        reserve(&sale, &buyer.to_string()).await;
    }
    let mut redis = stage.redis().client();
    for key in redis.command(&["KEYS", "tenure:sale:{i*:gate"]).array() {
        redis.command(&["HINCRBY", key.text(), "left", "1"]);
    }
    let order = buy(&sale, "anna").await;
    assert_eq!(settled(&sale, &order).await.state, OrderState::Rejected);
    // The gate contradicted the ledger, and is loaded anew: what was planted is gone.
    until("it was rebuilt", async || {
        sale.item("i").await.unwrap().unwrap().epoch > 1
    })
    .await;
    left_becomes(&sale, 0).await;
    sale.adjust("i", 1, "found one", "a1").await.unwrap();
    left_becomes(&sale, 1).await;
    let Outcome::Accepted(order) = ask(&sale, "anna", "r2").await else {
        panic!("she has none yet");
    };
    assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
}
