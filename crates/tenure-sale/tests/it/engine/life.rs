//! The life of an order, and of an item.

use std::time::Duration;

use tenure_sale::{
    ErrorKind, ItemState, NewItem, OrderId, OrderState, Outcome, Request, Sale, Terms,
};

use super::stage::{
    SOON, Stage, agrees, ask, becomes, buy, consume, drained, fails, left, left_becomes, on_sale,
    on_sale_with, request, reserve, settled, sold,
};

on! { [memory_sqlite, redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    an_order_is_accepted_reserved_and_paid_for,
    the_same_request_is_the_same_order,
    a_cancelled_order_gives_its_unit_to_the_next,
    an_order_that_is_not_paid_for_expires,
    an_item_is_paused_opened_and_closed,
    a_rush_sells_exactly_what_there_is,
    a_limit_that_comes_later_counts_what_buyers_have,
}

on! { [memory_sqlite]:
    what_is_wrong_is_told,
    unlimited_stock_never_sells_out,
    a_sale_goes_on_after_a_restart_of_the_process,
    a_second_sale_on_the_same_ledger_is_refused,
    opening_again_changes_nothing,
}

on! { [redis_sqlite, spread_sqlite]:
    an_order_cancelled_in_the_queue_arrives_cancelled,
    an_order_paid_for_in_the_queue_is_paid,
    without_a_consumer_orders_wait,
    two_processes_know_of_each_others_orders,
}

async fn an_order_is_accepted_reserved_and_paid_for(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 3).await;
    let order = buy(&sale, "anna").await;
    let confirmed = settled(&sale, &order).await;
    assert_eq!(confirmed.state, OrderState::Reserved);
    assert_eq!((&*confirmed.buyer, &*confirmed.request), ("anna", "r"));
    assert_eq!(sale.pay(&order).await.unwrap().state, OrderState::Paid);
    // Once paid it stays so.
    assert_eq!(sale.pay(&order).await.unwrap().state, OrderState::Paid);
    fails(sale.cancel(&order).await, ErrorKind::Conflict);

    assert_eq!(sale.orders_of("anna", 10).await.unwrap()[0].id, order);
    let by_request = sale.order_of("i", "anna", "r").await.unwrap();
    assert_eq!(by_request.unwrap().state, OrderState::Paid);
    assert_eq!((left(&sale).await, sold(&sale).await), (2, 1));
    agrees(&sale).await;
}

async fn the_same_request_is_the_same_order(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 2).await;
    let order = reserve(&sale, "anna").await;
    assert_eq!(
        ask(&sale, "anna", "r").await,
        Outcome::Replayed(order.clone())
    );
    // Also when the gate was loaded anew from the ledger.
    sale.rebuild("i").await.unwrap();
    assert_eq!(
        ask(&sale, "anna", "r").await,
        Outcome::Replayed(order.clone())
    );
    assert_eq!(sold(&sale).await, 1);
    agrees(&sale).await;
}

async fn a_cancelled_order_gives_its_unit_to_the_next(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let terms = Terms {
        limit_per_buyer: Some(1),
        ..Terms::default()
    };
    on_sale_with(&sale, 1, terms).await;
    let order = reserve(&sale, "anna").await;
    assert_eq!(ask(&sale, "ben", "r").await, Outcome::SoldOut);
    assert_eq!(
        sale.cancel(&order).await.unwrap().state,
        OrderState::Cancelled
    );
    assert_eq!(
        sale.cancel(&order).await.unwrap().state,
        OrderState::Cancelled
    );
    left_becomes(&sale, 1).await;
    // Her quota is back too.
    let Outcome::Accepted(again) = ask(&sale, "anna", "r2").await else {
        panic!("anna may order again");
    };
    assert_eq!(settled(&sale, &again).await.state, OrderState::Reserved);
    agrees(&sale).await;
}

async fn an_order_that_is_not_paid_for_expires(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    let terms = Terms {
        pay_within: Some(Duration::from_millis(50)),
        ..Terms::default()
    };
    on_sale_with(&sale, 1, terms).await;
    let order = buy(&sale, "anna").await;
    becomes(&sale, &order, OrderState::Expired).await;
    left_becomes(&sale, 1).await;
    agrees(&sale).await;
    assert_eq!(sale.stats().expired, 1);
}

async fn an_item_is_paused_opened_and_closed(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    sale.create(&NewItem::new("i", 5).unwrap()).await.unwrap();
    assert_eq!(ask(&sale, "anna", "r").await, Outcome::NoItem);
    sale.open_item("i").await.unwrap();
    buy(&sale, "anna").await;
    assert_eq!(sale.pause("i").await.unwrap().state, ItemState::Paused);
    assert_eq!(ask(&sale, "ben", "r").await, Outcome::Paused);
    sale.open_item("i").await.unwrap();
    buy(&sale, "ben").await;
    sale.close("i").await.unwrap();
    assert_eq!(ask(&sale, "cleo", "r").await, Outcome::Ended);
    agrees(&sale).await;
    // The gate may remove it now, and buyers get the same answer.
    assert!(sale.forget("i").await.unwrap());
    assert_eq!(ask(&sale, "cleo", "r").await, Outcome::Ended);
    // What was sold is not sold again.
    sale.open_item("i").await.unwrap();
    assert_eq!(left(&sale).await, 3);
}

async fn a_rush_sells_exactly_what_there_is(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 50).await;
    let rush = (0..200).map(|buyer| {
        let sale = sale.clone();
        tokio::spawn(async move { ask(&sale, &format!("b{buyer}"), "r").await })
    });
    let mut accepted = Vec::new();
    for asked in rush.collect::<Vec<_>>() {
        match asked.await.unwrap() {
            Outcome::Accepted(order) => accepted.push(order),
            Outcome::SoldOut => {}
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(accepted.len(), 50);
    for order in &accepted {
        assert_eq!(settled(&sale, order).await.state, OrderState::Reserved);
    }
    let report = agrees(&sale).await;
    assert_eq!((report.item.sold, report.left), (50, Some(0)));
}

async fn a_limit_that_comes_later_counts_what_buyers_have(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 5).await;
    reserve(&sale, "anna").await;
    let terms = Terms {
        limit_per_buyer: Some(1),
        ..Terms::default()
    };
    sale.set_terms("i", &terms).await.unwrap();
    assert_eq!(ask(&sale, "anna", "r2").await, Outcome::LimitReached);
    reserve(&sale, "ben").await;
    assert_eq!(sale.stats().rejected, 0);
    agrees(&sale).await;
}

async fn an_order_cancelled_in_the_queue_arrives_cancelled(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 1).await;
    let order = buy(&sale, "anna").await;
    assert_eq!(sale.cancel(&order).await.unwrap().state, OrderState::Queued);
    let consumer = consume(&sale);
    assert_eq!(settled(&sale, &order).await.state, OrderState::Cancelled);
    left_becomes(&sale, 1).await;
    agrees(&sale).await;
    consumer.stop().await;
}

async fn an_order_paid_for_in_the_queue_is_paid(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 1).await;
    let order = buy(&sale, "anna").await;
    let paying = tokio::spawn({
        let (sale, order) = (sale.clone(), order.clone());
        async move { sale.pay(&order).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _consumer = consume(&sale);
    assert_eq!(paying.await.unwrap().unwrap().state, OrderState::Paid);
    agrees(&sale).await;
}

async fn without_a_consumer_orders_wait(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 1).await;
    let order = buy(&sale, "anna").await;
    let waited = sale.wait(&order, Duration::from_millis(100)).await;
    assert_eq!(waited.unwrap().state, OrderState::Queued);
    assert_eq!(sold(&sale).await, 0);
}

async fn two_processes_know_of_each_others_orders(stage: Stage) {
    let (front, back) = (stage.open().await, stage.open().await);
    let _consumer = consume(&back);
    on_sale(&front, 5).await;
    let order = buy(&front, "anna").await;
    assert_eq!(settled(&front, &order).await.state, OrderState::Reserved);
    back.cancel(&order).await.unwrap();
    becomes(&front, &order, OrderState::Cancelled).await;
    left_becomes(&front, 5).await;
    assert_eq!(back.stats().accepted, 0);
    assert_eq!(front.stats().committed, 0);
}

async fn what_is_wrong_is_told(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 5).await;
    let again = NewItem::new("i", 9).unwrap();
    fails(sale.create(&again).await, ErrorKind::ItemExists);
    fails(sale.open_item("j").await, ErrorKind::NoItem);
    fails(sale.events("j", None).await, ErrorKind::NoItem);
    let unknown = Request::new("j", "anna", "r").unwrap();
    let answer = sale.submit(&unknown).await.unwrap();
    assert_eq!(answer.outcome, Outcome::NoItem);
    let two = request("anna", "r").units(2).unwrap();
    let answer = sale.submit(&two).await.unwrap();
    assert_eq!(answer.outcome, Outcome::LimitReached);

    let made_up: OrderId = "i.1.77".parse().unwrap();
    fails(sale.order(&made_up).await, ErrorKind::NoOrder);
    fails(sale.wait(&made_up, SOON).await, ErrorKind::NoOrder);
    fails(sale.cancel(&made_up).await, ErrorKind::NoOrder);
    fails(sale.pay(&made_up).await, ErrorKind::NoOrder);
    fails(sale.requeue(&made_up).await, ErrorKind::NoOrder);
    let elsewhere: OrderId = "j.1.1".parse().unwrap();
    fails(sale.order(&elsewhere).await, ErrorKind::NoItem);
    let none = super::stage::quick().batch(0);
    fails(sale.consume(none), ErrorKind::InvalidSetting);
}

async fn unlimited_stock_never_sells_out(stage: Stage) {
    let sale = stage.open().await;
    let item = NewItem::unlimited("i").unwrap();
    sale.create(&item).await.unwrap();
    sale.open_item("i").await.unwrap();
    for buyer in 0..20 {
        buy(&sale, &buyer.to_string()).await;
    }
    fails(
        sale.set_stock("i", 5, None).await,
        ErrorKind::InvalidSetting,
    );
    let report = agrees(&sale).await;
    assert_eq!((report.item.sold, report.drift()), (20, None));
}

async fn a_sale_goes_on_after_a_restart_of_the_process(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 3).await;
    let order = buy(&sale, "anna").await;
    drop(sale);
    let sale = reopened(&stage).await;
    assert_eq!(left(&sale).await, 2);
    assert_eq!(
        ask(&sale, "anna", "r").await,
        Outcome::Replayed(order.clone())
    );
    let next = buy(&sale, "ben").await;
    assert!(next.epoch() > order.epoch(), "{next} after {order}");
    agrees(&sale).await;
}

/// What a sale runs in the background ends a moment after it.
async fn reopened(stage: &Stage) -> Sale {
    let mut sale = None;
    super::stage::until("the ledger is free", async || {
        sale = stage.builder().open().await.ok();
        sale.is_some()
    })
    .await;
    sale.unwrap()
}

async fn a_second_sale_on_the_same_ledger_is_refused(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 3).await;
    let error = fails(stage.builder().open().await, ErrorKind::LedgerInUse);
    assert!(
        error.contains("shop.db") || error.contains("memory"),
        "{error}"
    );
    buy(&sale, "anna").await;
}

async fn opening_again_changes_nothing(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 3).await;
    buy(&sale, "anna").await;
    let rebuilds = sale.stats().rebuilds;
    sale.open_item("i").await.unwrap();
    assert_eq!(left(&sale).await, 2);
    assert_eq!(sale.stats().rebuilds, rebuilds);
    drained(&sale).await;
}
