//! A gate and a ledger that do not belong together.

use tenure_sale::{ErrorKind, NewItem, Outcome, Request, Sale};

use super::stage::{Stage, ask, buy, consume, fails, on_sale, reserve, until};

on! { [redis_sqlite, redis_postgres]:
    a_second_gate_of_a_ledger_is_refused,
}

on! { [redis_sqlite]:
    a_ledger_in_memory_leaves_no_id_at_a_gate,
    a_gate_of_another_ledger_is_refused_and_left_alone,
    a_gate_that_lost_its_data_is_the_same_gate,
    a_gate_that_nobody_uses_is_replaced,
    a_gate_that_was_replaced_sells_nothing,
}

/// Two instances with different databases of one server.
async fn a_second_gate_of_a_ledger_is_refused(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 2).await;
    let told = fails(
        Sale::open(other_gate(&stage), stage.ledger_url()).await,
        ErrorKind::LedgerInUse,
    );
    assert!(
        told.contains("another Redis database is its gate"),
        "{told}"
    );
    // Nothing was left there that would be in the way of the shop to which it belongs.
    let mut redis = stage.redis().client();
    redis.command(&["SELECT", "1"]);
    assert_eq!(redis.command(&["DBSIZE"]).int(), 0);
    let _consumer = consume(&sale);
    reserve(&sale, "anna").await;
}

async fn a_gate_of_another_ledger_is_refused_and_left_alone(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 2).await;
    sale.rebuild("i").await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let other = format!("sqlite:{}", dir.path().join("other.db").display());
    // It has an item of that name, and knows nothing of the epochs of the first one.
    let shop = Sale::open("memory://", &other).await.unwrap();
    shop.create(&NewItem::new("i", 9).unwrap()).await.unwrap();
    shop.open_item("i").await.unwrap();
    drop(shop);
    for ledger in [&other, "sqlite::memory:"] {
        let opened = Sale::open(stage.gate_url(), ledger).await;
        let told = fails(opened, ErrorKind::Conflict);
        assert!(told.contains("belongs to another ledger"), "{told}");
    }
    buy(&sale, "anna").await;
}

/// It ends with its process, and the next one has another.
async fn a_ledger_in_memory_leaves_no_id_at_a_gate(stage: Stage) {
    for item in ["first", "second"] {
        let sale = Sale::open(stage.gate_url(), "sqlite::memory:").await;
        let sale = sale.unwrap();
        sale.create(&NewItem::new(item, 1).unwrap()).await.unwrap();
        sale.open_item(item).await.unwrap();
    }
    on_sale(&stage.open().await, 1).await;
}

/// The processes that use it give it its id again, so others may come.
async fn a_gate_that_lost_its_data_is_the_same_gate(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 2).await;
    stage.redis().client().command(&["FLUSHALL"]);
    let other = stage.open().await;
    let _consumer = consume(&other);
    reserve(&sale, "anna").await;
    reserve(&other, "ben").await;
}

/// The shop moves to another server.
async fn a_gate_that_nobody_uses_is_replaced(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 2).await;
    let consumer = consume(&sale);
    reserve(&sale, "anna").await;
    consumer.stop().await;
    drop(sale);
    let moved = Sale::open(other_gate(&stage), stage.ledger_url()).await;
    let moved = moved.unwrap();
    let _consumer = consume(&moved);
    reserve(&moved, "ben").await;
    assert_eq!(ask(&moved, "carl", "r").await, Outcome::SoldOut);
}

/// As after a pause: the ledger has another gate by now.
async fn a_gate_that_was_replaced_sells_nothing(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 2).await;
    until("the sale has noticed", async || {
        // The other one is in use all the time.
        stage.sql(
            "UPDATE sale_ledger SET gate = 'another', \
             gate_seen_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        );
        let request = Request::new("i", "anna", "late").unwrap();
        let told = sale.submit(&request).await;
        matches!(told, Err(error) if error.kind() == ErrorKind::Conflict)
    })
    .await;
    fails(sale.rebuild("i").await, ErrorKind::Conflict);
}

fn other_gate(stage: &Stage) -> String {
    format!("{}1", stage.gate_url())
}
