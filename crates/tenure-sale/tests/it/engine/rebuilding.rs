//! Gate and ledger loaded anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_sale::{ErrorKind, NewItem, OrderState, Outcome};

use super::stage::{Stage, agrees, ask, buy, drained, fails, on_sale, request, settled, sold};

on! { [memory_sqlite, redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    a_rebuild_in_the_middle_of_a_rush_loses_nothing,
    two_rebuilds_at_once_do_no_harm,
}

on! { [redis_sqlite, spread_sqlite]:
    a_rebuild_drains_without_a_consumer,
    a_draft_is_not_loaded,
    a_gate_of_another_ledger_is_not_overwritten,
}

async fn a_rebuild_in_the_middle_of_a_rush_loses_nothing(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 1_000_000).await;
    let over = Arc::new(AtomicBool::new(false));
    let buyers = (0..16).map(|buyer| {
        let (sale, over) = (sale.clone(), Arc::clone(&over));
        tokio::spawn(async move {
            let mut accepted: u64 = 0;
            while !over.load(Ordering::Relaxed) {
                match ask(&sale, &format!("{buyer}-{accepted}"), "r").await {
                    Outcome::Accepted(_) => accepted += 1,
                    // The rebuild took longer than a buyer waits for it, on a crowded machine.
                    Outcome::StaleEpoch => {}
                    outcome => panic!("{outcome:?}"),
                }
            }
            accepted
        })
    });
    let buyers: Vec<_> = buyers.collect();
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        sale.rebuild("i").await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let mut accepted = 0;
    for buyer in buyers {
        accepted += buyer.await.unwrap();
    }
    drained(&sale).await;
    // Not one of them is lost or rejected.
    let counts = sale.ledger().counts("i").await.unwrap();
    let counts = counts.iter().map(|count| (count.state, count.orders));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [(OrderState::Reserved, accepted)]
    );
    agrees(&sale).await;
}

async fn two_rebuilds_at_once_do_no_harm(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 5).await;
    let order = buy(&sale, "anna").await;
    let other = if stage.redis.is_some() {
        stage.open().await
    } else {
        sale.clone()
    };
    let (first, second) = tokio::join!(sale.rebuild("i"), other.rebuild("i"));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.epoch.max(second.epoch), order.epoch() + 2);
    assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
    agrees(&sale).await;
}

async fn a_rebuild_drains_without_a_consumer(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 5).await;
    let order = buy(&sale, "anna").await;
    sale.rebuild("i").await.unwrap();
    assert_eq!(
        sale.order(&order).await.unwrap().state,
        OrderState::Reserved
    );
    assert_eq!(sold(&sale).await, 1);
    agrees(&sale).await;
}

async fn a_draft_is_not_loaded(stage: Stage) {
    let sale = stage.open().await;
    sale.create(&NewItem::new("i", 5).unwrap()).await.unwrap();
    fails(sale.rebuild("i").await, ErrorKind::Conflict);
    assert_eq!(ask(&sale, "anna", "r").await, Outcome::NoItem);
}

async fn a_gate_of_another_ledger_is_not_overwritten(stage: Stage) {
    let sale = stage.open().await;
    on_sale(&sale, 5).await;
    for _ in 0..3 {
        sale.rebuild("i").await.unwrap();
    }
    // As if it had been loaded by a version that left no id.
    let mut redis = stage.redis().client();
    redis.command(&["DEL", "tenure:sale:gate"]);
    let elsewhere = Stage::memory_sqlite();
    let other = tenure_sale::Sale::open(stage.gate_url(), elsewhere.ledger_url()).await;
    let other = other.unwrap();
    other.create(&NewItem::new("i", 99).unwrap()).await.unwrap();
    let error = fails(other.open_item("i").await, ErrorKind::Conflict);
    assert!(error.contains("another ledger"), "{error}");
    let told = sale.gate().ask(&request("anna", "r")).await.unwrap();
    assert!(matches!(told.outcome, Outcome::Accepted(_)), "{told:?}");
}
