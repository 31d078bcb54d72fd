//! A gate under a prefix, and a user that may touch nothing else.

use tenure_sale::OrderState;

use super::stage::{
    Stage, agrees, becomes, buy, drained, left, left_becomes, on_sale, reserve, settled, sold,
};

on! { [team_sqlite, spread_team_sqlite]:
    a_sale_under_a_prefix_touches_nothing_else,
}

async fn a_sale_under_a_prefix_touches_nothing_else(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 8).await;
    for buyer in ["anna", "ben", "cleo", "dan"] {
        let order = buy(&sale, buyer).await;
        assert_eq!(settled(&sale, &order).await.state, OrderState::Reserved);
        if buyer == "ben" {
            sale.cancel(&order).await.unwrap();
            becomes(&sale, &order, OrderState::Cancelled).await;
        } else {
            sale.pay(&order).await.unwrap();
        }
    }
    left_becomes(&sale, 5).await;
    // Units move between shelves.
    for buyer in 0..5 {
        reserve(&sale, &format!("buyer-{buyer}")).await;
    }
    drained(&sale).await;
    sale.rebuild("i").await.unwrap();
    assert_eq!((left(&sale).await, sold(&sale).await), (0, 8));
    agrees(&sale).await;
    let redis = stage.redis();
    let refused = redis.client().command(&["ACL", "LOG"]);
    assert!(refused.array().is_empty(), "refused: {refused:?}");
    let keys = redis.client().command(&["KEYS", "*"]);
    let keys: Vec<&str> = keys.array().iter().map(|key| key.text()).collect();
    assert!(keys.len() > 3, "{keys:?}");
    assert!(
        keys.iter().all(|key| key.starts_with("team-a:")),
        "{keys:?}"
    );
}
