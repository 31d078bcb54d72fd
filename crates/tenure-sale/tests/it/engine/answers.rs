//! What the gate remembers of requests: as much as the ledger knows, and nothing else.

use std::time::Duration;

use tenure_sale::{Mode, OrderState, Outcome, Terms};

use super::stage::{
    Stage, agrees, ask, becomes, buy, drained, on_sale, on_sale_with, reserve, settled, until,
};

on! { [memory_sqlite, redis_sqlite, redis_postgres]:
    the_request_of_an_old_order_is_no_other_order,
}

on! { [redis_sqlite, spread_sqlite]:
    an_answer_deleted_alone_is_there_again,
    the_units_of_a_buyer_deleted_alone_are_there_again,
}

/// Its order was cancelled longer ago than answers are kept, and the gate was rebuilt since.
async fn the_request_of_an_old_order_is_no_other_order(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let terms = Terms {
        answers_kept: Duration::from_millis(1),
        ..Terms::default()
    };
    on_sale_with(&sale, 10, terms).await;
    let order = reserve(&sale, "anna").await;
    sale.cancel(&order).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    sale.rebuild("i").await.unwrap();
    assert_eq!(ask(&sale, "anna", "r").await, Outcome::Replayed(order));
    drained(&sale).await;
    assert_eq!(sale.stats().rejected, 0);
    agrees(&sale).await;
}

/// Nobody notices that one field is gone until its request comes again. The ledger does then, and
/// the gate learns its answers anew.
async fn an_answer_deleted_alone_is_there_again(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 10).await;
    let order = reserve(&sale, "anna").await;
    let mut redis = stage.redis().client();
    let mut deleted = 0;
    for key in redis.command(&["KEYS", "tenure:sale:{i*:answers"]).array() {
        deleted += redis.command(&["HDEL", key.text(), "anna\nr"]).int();
    }
    assert_eq!(deleted, 1);
    let twin = buy(&sale, "anna").await;
    let rejected = settled(&sale, &twin).await;
    assert_eq!(rejected.state, OrderState::Rejected);
    assert_eq!(
        rejected.note.as_deref(),
        Some("its request is another order")
    );
    until("the first order is the answer again", async || {
        ask(&sale, "anna", "r").await == Outcome::Replayed(order.clone())
    })
    .await;
    becomes(&sale, &order, OrderState::Reserved).await;
    let report = sale.reconcile("i", Mode::DryRun).await.unwrap();
    assert!(report.is_clean(), "{report}");
}

/// The gate believes that Anna has nothing. The ledger knows better, and the gate learns it anew.
async fn the_units_of_a_buyer_deleted_alone_are_there_again(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let terms = Terms {
        limit_per_buyer: Some(1),
        ..Terms::default()
    };
    on_sale_with(&sale, 10, terms).await;
    let order = reserve(&sale, "anna").await;
    let mut redis = stage.redis().client();
    let mut deleted = 0;
    for key in redis.command(&["KEYS", "tenure:sale:{i*:buyers"]).array() {
        deleted += redis.command(&["HDEL", key.text(), "anna"]).int();
    }
    assert_eq!(deleted, 1);
    let Outcome::Accepted(second) = ask(&sale, "anna", "r2").await else {
        panic!("the gate knows of no unit");
    };
    let rejected = settled(&sale, &second).await;
    assert_eq!(rejected.state, OrderState::Rejected);
    let mut requests = 3..;
    until("the limit is known again", async || {
        let id = format!("r{}", requests.next().unwrap());
        ask(&sale, "anna", &id).await == Outcome::LimitReached
    })
    .await;
    becomes(&sale, &order, OrderState::Reserved).await;
    drained(&sale).await;
    let report = sale.reconcile("i", Mode::DryRun).await.unwrap();
    assert!(report.is_clean(), "{report}");
}
