//! Entries that the ledger does not take.

use tenure_sale::gate::{Entry, Wanted};
use tenure_sale::{ErrorKind, OrderId, OrderState, Sale};

use super::stage::{
    Stage, agrees, becomes, buy, consume, fails, left, left_becomes, on_sale, quick, reserve, sold,
    until,
};

on! { [redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    an_entry_that_contradicts_the_ledger_is_buried,
}

on! { [redis_sqlite, spread_sqlite]:
    an_entry_that_fails_alone_is_buried_and_requeued,
    an_entry_that_fails_alone_is_buried_and_discarded,
    an_entry_that_nobody_can_read_is_buried_and_discarded,
}

/// The ledger has an order of the same id with other content: something is very wrong.
async fn an_entry_that_contradicts_the_ledger_is_buried(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 3).await;
    let order = buy(&sale, "anna").await;
    let mut entry = sale.gate().find(&order).await.unwrap().unwrap();
    entry.what = Ok(Wanted::Order {
        buyer: "mallory".into(),
        request: "r".into(),
        units: 1,
    });
    sale.ledger().commit(&[entry]).await.unwrap();

    let _consumer = consume(&sale);
    let letter = one_is_buried(&sale).await;
    assert_eq!(letter.id, order);
    // What the ledger has is not touched, and the others are sold.
    let kept = sale.ledger().order(&order).await.unwrap().unwrap();
    assert_eq!(
        (&*kept.buyer, kept.state),
        ("mallory", OrderState::Reserved)
    );
    reserve(&sale, "ben").await;

    fails(sale.requeue(&order).await, ErrorKind::Conflict);
    sale.discard(&order).await.unwrap();
    assert!(sale.dead_letters("i", 10).await.unwrap().is_empty());
    let kept = sale.ledger().order(&order).await.unwrap().unwrap();
    assert_eq!(kept.state, OrderState::Reserved);
    agrees(&sale).await;
}

async fn an_entry_that_fails_alone_is_buried_and_requeued(stage: Stage) {
    let (sale, order) = poisoned(&stage).await;
    assert_eq!(one_is_buried(&sale).await.id, order);
    assert_eq!(sale.order(&order).await.unwrap().state, OrderState::Dead);
    // Its unit stays reserved until an operator decides.
    assert_eq!((left(&sale).await, sold(&sale).await), (7, 3));
    agrees(&sale).await;

    cure(&stage);
    assert_eq!(sale.requeue(&order).await.unwrap(), OrderState::Reserved);
    assert_eq!(sale.pay(&order).await.unwrap().state, OrderState::Paid);
    fails(sale.requeue(&order).await, ErrorKind::NoOrder);
    assert_eq!((left(&sale).await, sold(&sale).await), (7, 3));
    agrees(&sale).await;
}

async fn an_entry_that_fails_alone_is_buried_and_discarded(stage: Stage) {
    let (sale, order) = poisoned(&stage).await;
    one_is_buried(&sale).await;
    sale.discard(&order).await.unwrap();
    becomes(&sale, &order, OrderState::Cancelled).await;
    left_becomes(&sale, 8).await;
    assert_eq!(sold(&sale).await, 2);
    agrees(&sale).await;
}

async fn an_entry_that_nobody_can_read_is_buried_and_discarded(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 3).await;
    let mut client = stage.redis().client();
    client.command(&["XADD", "tenure:sale:{i}:orders", "1-99", "what", "is this"]);
    let _consumer = consume(&sale);
    let letter = one_is_buried(&sale).await;
    assert!(letter.what.is_err(), "{letter:?}");
    reserve(&sale, "anna").await;
    sale.discard(&letter.id).await.unwrap();
    assert!(sale.dead_letters("i", 10).await.unwrap().is_empty());
    agrees(&sale).await;
}

/// Three orders, one of which the ledger cannot write, with a consumer at work.
pub(super) async fn poisoned(stage: &Stage) -> (Sale, OrderId) {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    stage.sql(
        "CREATE TRIGGER poison BEFORE INSERT ON sale_orders WHEN new.buyer = 'poison' \
         AND new.state <> 'dead' BEGIN SELECT RAISE(ABORT, 'poison'); END",
    );
    buy(&sale, "anna").await;
    let order = buy(&sale, "poison").await;
    buy(&sale, "ben").await;
    let consumer = sale.consume(quick().deliveries_max(2)).unwrap();
    until("the others are sold", async || sold(&sale).await >= 2).await;
    // For the rest of the test.
    std::mem::forget(consumer);
    (sale, order)
}

pub(super) fn cure(stage: &Stage) {
    stage.sql("DROP TRIGGER poison");
}

pub(super) async fn one_is_buried(sale: &Sale) -> Entry {
    until("an entry is buried", async || {
        let dead = sale.dead_letters("i", 10).await.unwrap();
        dead.len() == 1
    })
    .await;
    let dead = sale.dead_letters("i", 10).await.unwrap();
    assert!(!dead[0].reason.is_empty());
    dead[0].entry.clone()
}
