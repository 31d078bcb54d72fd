//! Accepted orders that never reached the ledger: announced, whoever is gone and whether or not
//! their buyers ask.

use tenure_sale::{OrderId, OrderState, Sale};

use super::stage::{
    Stage, agrees, ask, becomes, buy, consume, left_becomes, on_sale, reserve, settled, until,
};

on! { [redis_sqlite, redis_postgres, spread_sqlite]:
    lost_orders_are_announced_though_their_process_is_gone,
    trimmed_orders_are_lost_and_named_by_themselves,
}

on! { [redis_sqlite, spread_sqlite]:
    what_was_lost_before_this_version_is_announced,
    an_entry_that_an_operator_deletes_is_lost_by_itself,
    what_a_dead_letter_has_is_not_lost,
}

/// Some reached the ledger, and others between them did not, as after a failover.
async fn lost_orders_are_announced_though_their_process_is_gone(stage: Stage) {
    let first = stage.open().await;
    on_sale(&first, 1_000).await;
    let mut orders = Vec::new();
    for buyer in 0..40 {
        orders.push(buy(&first, &buyer.to_string()).await);
    }
    let entries = first.gate().read("i", "c", 100, std::time::Duration::ZERO);
    let entries = entries.await.unwrap();
    // A consumer that died with most of its entries: the last ones of each shelf are known.
    let kept: Vec<_> = entries
        .into_iter()
        .filter(|entry| is_last(&orders, &entry.id))
        .collect();
    first.ledger().commit(&kept).await.unwrap();
    drop(first);
    stage.redis().kill();
    stage.redis().restart_empty();

    let sale = stage.open().await;
    let _consumer = consume(&sale);
    let kept: Vec<OrderId> = kept.into_iter().map(|entry| entry.id).collect();
    let expected = orders.len() - kept.len();
    until("all are in the ledger", async || {
        lost(&sale).await.len() == expected
    })
    .await;
    assert_eq!(sale.stats().lost, expected as u64);
    for order in &orders {
        let state = sale.order(order).await.unwrap().state;
        let kept = kept.contains(order);
        assert_eq!(state == OrderState::Reserved, kept, "{order}: {state}");
    }
    reserve(&sale, "next").await;
    agrees(&sale).await;
    assert!(sale.verify("i").await.unwrap().holds());
}

/// Nobody repairs anything, and the gate still knows whose they were.
async fn trimmed_orders_are_lost_and_named_by_themselves(stage: Stage) {
    let first = stage.open().await;
    on_sale(&first, 10).await;
    let mut orders = Vec::new();
    for buyer in ["anna", "ben", "7e6d6fdc-4fcb-4f2e-9f0a-00112233445f"] {
        orders.push(buy(&first, buyer).await);
    }
    drop(first);
    let mut redis = stage.redis().client();
    for key in redis.command(&["KEYS", "tenure:sale:{i*:orders"]).array() {
        redis.command(&["XTRIM", key.text(), "MAXLEN", "0"]);
    }
    let sale = stage.open().await;
    let _consumer = consume(&sale);
    until("they are lost", async || lost(&sale).await.len() == 3).await;
    for (order, buyer) in orders
        .iter()
        .zip(["anna", "ben", "7e6d6fdc-4fcb-4f2e-9f0a-00112233445f"])
    {
        let order = sale.order(order).await.unwrap();
        assert_eq!(order.state, OrderState::Lost);
        assert_eq!((order.buyer.as_str(), order.request.as_str()), (buyer, "r"));
        assert_eq!(order.units, 1);
        assert!(order.note.is_some());
    }
    // Their units are there again, and their buyers may try again.
    left_becomes(&sale, 10).await;
    assert!(ask(&sale, "anna", "r").await.order().is_some());
    agrees(&sale).await;
    assert_eq!(sale.stats().lost, 3);
}

/// One entry in the middle, while others are sold.
async fn an_entry_that_an_operator_deletes_is_lost_by_itself(stage: Stage) {
    let first = stage.open().await;
    on_sale(&first, 10).await;
    let gone = buy(&first, "anna").await;
    let stays = buy(&first, "ben").await;
    let (epoch, place) = (gone.epoch(), gone.number() / stage.spread);
    let mut redis = stage.redis().client();
    let mut deleted = 0;
    for key in redis.command(&["KEYS", "tenure:sale:{i*:orders"]).array() {
        let id = format!("{epoch}-{place}");
        let has = redis.command(&["XRANGE", key.text(), &id, &id]);
        if format!("{has:?}").contains("anna") {
            deleted += redis.command(&["XDEL", key.text(), &id]).int();
        }
    }
    assert_eq!(deleted, 1);
    // A reader is told at once, by what the queue was given.
    assert_eq!(first.order(&gone).await.unwrap().state, OrderState::Lost);
    let _consumer = consume(&first);
    until("it is in the ledger", async || {
        lost(&first).await.len() == 1
    })
    .await;
    assert_eq!(first.order(&gone).await.unwrap().buyer, "anna");
    assert_eq!(settled(&first, &stays).await.state, OrderState::Reserved);
    left_becomes(&first, 9).await;
    agrees(&first).await;
}

/// A ledger that was written when nobody looked for lost orders.
async fn what_was_lost_before_this_version_is_announced(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let order = reserve_by_hand(&sale).await;
    sale.rebuild("i").await.unwrap();
    stage.sql(
        "DELETE FROM sale_orders WHERE state = 'lost'; \
         UPDATE sale_epochs SET counted = 0, entries = 3;",
    );
    let _consumer = consume(&sale);
    until("gaps are found", async || {
        lost(&sale).await.len() as u64 == 3 * stage.spread - 1
    })
    .await;
    assert_eq!(
        sale.order(&order).await.unwrap().state,
        OrderState::Reserved
    );
    let counted = lost(&sale).await;
    sale.rebuild("i").await.unwrap();
    assert_eq!(lost(&sale).await, counted);
}

/// A dead letter that cannot be read leaves no row.
async fn what_a_dead_letter_has_is_not_lost(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let mut redis = stage.redis().client();
    let keys = redis.command(&["KEYS", "tenure:sale:{i*:orders"]);
    let key = keys.array()[0].text().to_owned();
    redis.command(&["XADD", &key, "1-*", "nonsense", "1"]);
    let consumer = consume(&sale);
    until("it is buried", async || {
        sale.dead_letters("i", 10).await.unwrap().len() == 1
    })
    .await;
    consumer.stop().await;
    let epoch = sale.item("i").await.unwrap().unwrap().epoch;
    assert_eq!(epoch, 1, "it is no reason to rebuild");
    let letter = sale.dead_letters("i", 10).await.unwrap().remove(0);
    sale.rebuild("i").await.unwrap();
    assert!(lost(&sale).await.is_empty());
    sale.discard(&letter.entry.id).await.unwrap();
    let _consumer = consume(&sale);
    reserve(&sale, "anna").await;
    agrees(&sale).await;
    assert!(lost(&sale).await.is_empty());
}

async fn reserve_by_hand(sale: &Sale) -> OrderId {
    let order = buy(sale, "anna").await;
    let entries = sale.gate().read("i", "c", 10, std::time::Duration::ZERO);
    let entries = entries.await.unwrap();
    sale.ledger().commit(&entries).await.unwrap();
    sale.gate()
        .acknowledge("i", std::slice::from_ref(&order))
        .await
        .unwrap();
    becomes(sale, &order, OrderState::Reserved).await;
    order
}

/// Whether no later one of its shelf was accepted.
fn is_last(orders: &[OrderId], id: &OrderId) -> bool {
    let spread = |number: u64| number % 4;
    let same = |order: &&OrderId| spread(order.number()) == spread(id.number());
    orders
        .iter()
        .filter(same)
        .all(|order| order.number() <= id.number())
}

async fn lost(sale: &Sale) -> Vec<OrderId> {
    let lost = sale.ledger().orders_for("i", Some(OrderState::Lost), 1_000);
    let mut lost: Vec<OrderId> = lost
        .await
        .unwrap()
        .into_iter()
        .map(|order| order.id)
        .collect();
    lost.sort();
    lost
}
