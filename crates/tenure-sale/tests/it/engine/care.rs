//! Items that are broken beside healthy ones.

use std::time::Duration;

use tenure_sale::{NewItem, OrderId, OrderState, Outcome, Request, Sale, Terms};

use super::stage::{Stage, becomes, consume, quick, settled, until};

on! { [redis_sqlite, redis_postgres]:
    an_item_that_cannot_be_told_does_not_keep_others_from_being_told,
}

on! { [redis_sqlite]:
    an_item_that_cannot_expire_does_not_keep_others_from_expiring,
}

/// What the gate has of a buyer of `a` and of `c` is no number, so it cannot be told of a
/// cancellation. `b` and `d` come after them.
async fn an_item_that_cannot_be_told_does_not_keep_others_from_being_told(stage: Stage) {
    let sale = stage.open().await;
    let consumer = consume(&sale);
    let mut orders = Vec::new();
    for item in ["a", "b", "c", "d"] {
        orders.push(bought(&sale, item, Terms::default()).await);
    }
    for item in ["c", "d"] {
        sale.close(item).await.unwrap();
    }
    consumer.stop().await;
    let mut redis = stage.redis().client();
    for item in ["a", "c"] {
        redis.command(&["HSET", &buyers(item), "anna", "many"]);
    }
    // Not by way of the sale, which would tell the gate at once.
    for order in &orders {
        sale.ledger().cancel(order).await.unwrap();
    }
    let _consumer = consume(&sale);
    left_of(&sale, "b", 10).await;
    left_of(&sale, "d", 10).await;
    // A gate that is to be loaded again comes after them, too.
    redis.command(&["DEL", "tenure:sale:{b}:gate"]);
    left_of(&sale, "b", 10).await;

    until("the failures are counted", async || {
        sale.stats().care_failed > 1
    })
    .await;
    for item in ["a", "c"] {
        redis.command(&["HSET", &buyers(item), "anna", "1"]);
        left_of(&sale, item, 10).await;
    }
}

/// The books of `a` are wrong, so that none of its orders can expire.
async fn an_item_that_cannot_expire_does_not_keep_others_from_expiring(stage: Stage) {
    let sale = stage.open().await;
    let unswept = quick().sweep_every(Duration::from_hours(1));
    let consumer = sale.consume(unswept).unwrap();
    let terms = Terms {
        pay_within: Some(Duration::from_millis(1)),
        ..Terms::default()
    };
    // The first sweep comes at once: it must not find them.
    let kept = bought(&sale, "a", Terms::default()).await;
    consumer.stop().await;
    sale.set_terms("a", &terms).await.unwrap();
    stage.sql("UPDATE sale_orders SET pay_by = 1; UPDATE sale_items SET sold = 0");
    let _consumer = consume(&sale);
    let order = bought(&sale, "b", terms).await;
    becomes(&sale, &order, OrderState::Expired).await;
    left_of(&sale, "b", 10).await;
    assert_eq!(sale.order(&kept).await.unwrap().state, OrderState::Reserved);
    assert!(sale.stats().care_failed > 0);
}

/// An order for one of ten units of an item that has a limit.
async fn bought(sale: &Sale, item: &str, terms: Terms) -> OrderId {
    let terms = Terms {
        limit_per_buyer: Some(5),
        ..terms
    };
    let new = NewItem::new(item, 10).unwrap().terms(terms);
    sale.create(&new).await.unwrap();
    sale.open_item(item).await.unwrap();
    let request = Request::new(item, "anna", "r").unwrap();
    let Outcome::Accepted(order) = sale.submit(&request).await.unwrap().outcome else {
        panic!("it is on sale");
    };
    settled(sale, &order).await;
    order
}

async fn left_of(sale: &Sale, item: &str, units: u64) {
    until(&format!("{units} units of {item} are left"), async || {
        let standing = sale.gate().standing(item).await.unwrap();
        standing.is_some_and(|standing| standing.left == Some(units))
    })
    .await;
}

fn buyers(item: &str) -> String {
    format!("tenure:sale:{{{item}}}:buyers")
}
