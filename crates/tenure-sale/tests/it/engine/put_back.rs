//! A ledger that is put back: restored from an older copy while the gate knows later orders.

use std::time::Duration;

use tenure_sale::{ErrorKind, Mode, OrderId, OrderState, Outcome, Sale};

use super::stage::{
    Stage, agrees, ask, becomes, buy, consume, fails, left_becomes, on_sale, reserve, until,
};

on! { [redis_sqlite, spread_sqlite]:
    a_ledger_put_back_by_an_epoch_is_rebuilt_by_decision,
    a_ledger_put_back_within_an_epoch_is_noticed,
    a_rebuild_of_a_ledger_put_back_that_dies_is_done_again,
}

/// Anna's order is in the copy; Ben's and Carl's are not, and Dora's never reached the ledger.
struct Before {
    anna: OrderId,
    ben: OrderId,
    carl: OrderId,
    dora: OrderId,
}

async fn put_back(stage: &Stage, by_an_epoch: bool) -> Before {
    let sale = stage.open().await;
    on_sale(&sale, 10).await;
    let consumer = consume(&sale);
    let anna = reserve(&sale, "anna").await;
    stage.copy_ledger();
    let ben = reserve(&sale, "ben").await;
    if by_an_epoch {
        sale.rebuild("i").await.unwrap();
    }
    let carl = reserve(&sale, "carl").await;
    until("the gate knows all changes", async || {
        let change = sale.item("i").await.unwrap().unwrap();
        let report = sale.reconcile("i", Mode::DryRun).await.unwrap();
        report.settled && report.item == change
    })
    .await;
    consumer.stop().await;
    let dora = buy(&sale, "dora").await;
    drop(sale);
    stage.restore_ledger();
    Before {
        anna,
        ben,
        carl,
        dora,
    }
}

async fn reopen(stage: &Stage) -> Sale {
    let builder = stage.builder().rebuild_within(Duration::from_millis(50));
    builder.open().await.unwrap()
}

async fn a_ledger_put_back_by_an_epoch_is_rebuilt_by_decision(stage: Stage) {
    let before = put_back(&stage, true).await;
    is_rebuilt_by_decision(&stage, &before).await;
}

async fn a_ledger_put_back_within_an_epoch_is_noticed(stage: Stage) {
    let before = put_back(&stage, false).await;
    is_rebuilt_by_decision(&stage, &before).await;
}

async fn is_rebuilt_by_decision(stage: &Stage, before: &Before) {
    let sale = reopen(stage).await;
    let epoch = sale.item("i").await.unwrap().unwrap().epoch;
    let _consumer = consume(&sale);
    until("the gate has stopped", async || {
        let standing = sale.gate().standing("i").await.unwrap().unwrap();
        standing.state.is_none()
    })
    .await;
    assert_eq!(ask(&sale, "eve", "r").await, Outcome::StaleEpoch);
    let broken = sale.verify("i").await.unwrap().broken().join("\n");
    assert!(broken.contains("docs/restoring.md"), "{broken}");
    let told = fails(sale.open_item("i").await, ErrorKind::Conflict);
    assert!(told.contains("docs/restoring.md"), "{told}");
    // Nothing was lost, buried or sold meanwhile, and nobody rebuilt it.
    assert!(sale.dead_letters("i", 10).await.unwrap().is_empty());
    assert_eq!(sale.item("i").await.unwrap().unwrap().epoch, epoch);

    let item = sale.rebuild("i").await.unwrap();
    assert!(item.epoch > before.dora.epoch());
    becomes(&sale, &before.anna, OrderState::Reserved).await;
    becomes(&sale, &before.dora, OrderState::Reserved).await;
    // Whether they paid or cancelled since the copy, nobody knows.
    let letters = sale.dead_letters("i", 10).await.unwrap();
    let letters: Vec<OrderId> = letters.into_iter().map(|letter| letter.entry.id).collect();
    assert_eq!(letters.len(), 2, "{letters:?}");
    assert!(letters.contains(&before.ben) && letters.contains(&before.carl));
    let ben = sale.order(&before.ben).await.unwrap();
    assert_eq!((ben.buyer.as_str(), ben.request.as_str()), ("ben", "r"));
    left_becomes(&sale, 6).await;
    assert_eq!(
        sale.requeue(&before.ben).await.unwrap(),
        OrderState::Reserved
    );
    sale.discard(&before.carl).await.unwrap();
    left_becomes(&sale, 7).await;
    let eve = ask(&sale, "eve", "r").await;
    assert!(eve.order().is_some(), "{eve:?}");
    assert_eq!(
        ask(&sale, "ben", "r").await,
        Outcome::Replayed(before.ben.clone())
    );
    agrees(&sale).await;
    assert!(sale.verify("i").await.unwrap().holds());
    assert_eq!(sale.stats().rejected, 0);
}

/// The process that rebuilds dies when it has stopped the gate.
async fn a_rebuild_of_a_ledger_put_back_that_dies_is_done_again(stage: Stage) {
    let before = put_back(&stage, true).await;
    let sale = reopen(&stage).await;
    let next = before.dora.epoch() + 1;
    let fence = tenure::Fence::new((1 << 53) - 1);
    let begun = sale.gate().begin_load("i", next, fence, stage.spread).await;
    assert!(begun.unwrap());
    // The lock's fences are lower than this one.
    let mut redis = stage.redis().client();
    for key in redis.command(&["KEYS", "tenure:sale:{i*:gate"]).array() {
        redis.command(&["HSET", key.text(), "fence", "0"]);
    }
    is_rebuilt_by_decision(&stage, &before).await;
}
