//! Terms that change while accepted orders are in the queue.

use std::time::{Duration, SystemTime};

use tenure_sale::{OrderState, Outcome, Terms};

use super::stage::{Stage, agrees, ask, becomes, consume, on_sale_with, request, settled};

on! { [redis_sqlite, redis_postgres, spread_sqlite]:
    accepted_orders_keep_their_terms,
}

async fn accepted_orders_keep_their_terms(stage: Stage) {
    let sale = stage.open().await;
    let hour = Duration::from_hours(1);
    let terms = |limit, pay_within| Terms {
        limit_per_buyer: limit,
        units_per_order: 3,
        pay_within,
        ..Terms::default()
    };
    on_sale_with(&sale, 20, terms(Some(3), Some(hour))).await;
    let three = |buyer: &str, id: &str| request(buyer, id).units(3).unwrap();
    let accepted =
        async |buyer: &str, id: &str| match sale.submit(&three(buyer, id)).await.unwrap().outcome {
            Outcome::Accepted(order) => order,
            outcome => panic!("{buyer} was told {outcome:?}"),
        };
    let anna = accepted("anna", "r").await;
    sale.set_terms("i", &terms(None, None)).await.unwrap();
    let ben = [accepted("ben", "r").await, accepted("ben", "r2").await];
    let short = Some(Duration::from_millis(1));
    sale.set_terms("i", &terms(Some(1), short)).await.unwrap();

    let _consumer = consume(&sale);
    let order = settled(&sale, &anna).await;
    assert_eq!(order.state, OrderState::Reserved, "{order:?}");
    let pay_by = order.pay_by.unwrap();
    assert!(pay_by > SystemTime::now() + hour / 2, "{order:?}");
    for order in &ben {
        let order = settled(&sale, order).await;
        assert_eq!((order.state, order.pay_by), (OrderState::Reserved, None));
    }
    // From now on.
    assert_eq!(ask(&sale, "anna", "r2").await, Outcome::LimitReached);
    let Outcome::Accepted(order) = ask(&sale, "carl", "r").await else {
        panic!("one unit is within the limit");
    };
    becomes(&sale, &order, OrderState::Expired).await;
    agrees(&sale).await;
}
