//! Stock raised and lowered while it is sold.

use tenure_sale::{ErrorKind, NewItem, OrderState, Outcome};

use super::stage::{
    Stage, agrees, ask, fails, left, left_becomes, on_sale, reserve, settled, sold,
};

on! { [memory_sqlite, redis_sqlite, redis_postgres, spread_sqlite, spread_postgres]:
    stock_is_raised_once_per_reference,
    stock_is_lowered_to_what_is_sold_and_no_further,
    stock_is_set_only_as_expected,
    stock_moves_while_it_is_sold,
}

on! { [memory_sqlite]:
    a_draft_is_raised_and_lowered,
}

async fn stock_is_raised_once_per_reference(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 1).await;
    reserve(&sale, "anna").await;
    assert_eq!(ask(&sale, "ben", "r").await, Outcome::SoldOut);
    for _ in 0..2 {
        let item = sale.adjust("i", 3, "delivery", "d-1").await.unwrap();
        assert_eq!(item.total, 4);
    }
    left_becomes(&sale, 3).await;
    reserve(&sale, "ben").await;
    agrees(&sale).await;
}

async fn stock_is_lowered_to_what_is_sold_and_no_further(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 5).await;
    reserve(&sale, "anna").await;
    reserve(&sale, "ben").await;
    for _ in 0..2 {
        let item = sale.adjust("i", -2, "broken", "b-1").await.unwrap();
        assert_eq!(item.total, 3);
    }
    assert_eq!(left(&sale).await, 1);
    let error = fails(
        sale.adjust("i", -2, "broken", "b-2").await,
        ErrorKind::Conflict,
    );
    assert!(error.contains("1 are left"), "{error}");
    fails(sale.set_stock("i", 1, None).await, ErrorKind::Conflict);
    assert_eq!(sale.set_stock("i", 2, None).await.unwrap().total, 2);
    assert_eq!(ask(&sale, "cleo", "r").await, Outcome::SoldOut);
    agrees(&sale).await;
}

async fn stock_is_set_only_as_expected(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 5).await;
    fails(sale.set_stock("i", 9, Some(4)).await, ErrorKind::Conflict);
    assert_eq!(sale.set_stock("i", 9, Some(5)).await.unwrap().total, 9);
    assert_eq!(sale.set_stock("i", 9, Some(9)).await.unwrap().total, 9);
    assert_eq!(sale.set_stock("i", 4, Some(9)).await.unwrap().total, 4);
    left_becomes(&sale, 4).await;
    agrees(&sale).await;
}

async fn stock_moves_while_it_is_sold(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 30).await;
    let buyers = (0..60).map(|buyer| {
        let sale = sale.clone();
        tokio::spawn(async move {
            let outcome = ask(&sale, &format!("b{buyer}"), "r").await;
            outcome.order().cloned()
        })
    });
    let buyers: Vec<_> = buyers.collect();
    for turn in 0..5 {
        sale.adjust("i", 6, "delivery", &format!("up-{turn}"))
            .await
            .unwrap();
        // It may be sold by then.
        let _ = sale
            .adjust("i", -4, "broken", &format!("down-{turn}"))
            .await;
    }
    let mut accepted = 0;
    for buyer in buyers {
        if let Some(order) = buyer.await.unwrap() {
            assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
            accepted += 1;
        }
    }
    let report = agrees(&sale).await;
    assert_eq!(sold(&sale).await, accepted);
    assert_eq!(report.item.total, accepted + report.left.unwrap());
}

async fn a_draft_is_raised_and_lowered(stage: Stage) {
    let sale = stage.open().await;
    sale.create(&NewItem::new("i", 5).unwrap()).await.unwrap();
    assert_eq!(sale.set_stock("i", 9, None).await.unwrap().total, 9);
    assert_eq!(sale.set_stock("i", 4, Some(9)).await.unwrap().total, 4);
    assert_eq!(sale.set_stock("i", 2, Some(4)).await.unwrap().total, 2);
    fails(
        sale.adjust("i", -3, "broken", "b").await,
        ErrorKind::Conflict,
    );
    sale.open_item("i").await.unwrap();
    assert_eq!(left(&sale).await, 2);
    agrees(&sale).await;
}
