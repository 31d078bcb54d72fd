//! The closed set of answers.

use std::time::SystemTime;

use tenure_sale::{Outcome, Terms};

use super::on_every_gate;
use super::stage::{Kind, Stage, load, ms};

on_every_gate! {
    a_unit_is_sold_once;
    the_same_request_is_the_same_order;
    a_never_loaded_item_is_neither_sold_out_nor_endless;
}

async fn a_unit_is_sold_once(kind: Kind) {
    let stage = Stage::of(kind, 2).await;
    let first = stage.answer("ann", "r1", 1).await;
    assert!(matches!(&first.outcome, Outcome::Accepted(order)
        if order.item() == stage.item && order.epoch() == 1 && order.number() == 0));
    assert_eq!(first.left, Some(1));
    let second = stage.answer("bob", "r1", 1).await;
    assert!(matches!(&second.outcome, Outcome::Accepted(order) if order.number() == 1));
    let third = stage.answer("cat", "r1", 1).await;
    assert_eq!((third.outcome, third.left), (Outcome::SoldOut, Some(0)));
    assert_eq!(stage.left().await, Some(0));
}

async fn the_same_request_is_the_same_order(kind: Kind) {
    let stage = Stage::with(
        kind,
        9,
        Terms {
            units_per_order: 3,
            ..Terms::default()
        },
    )
    .await;
    let order = stage.order("ann", "r1").await;
    assert_eq!(
        stage.ask("ann", "r1").await,
        Outcome::Replayed(order.clone())
    );
    let other = stage.answer("ann", "r1", 2).await.outcome;
    assert_eq!(other, Outcome::Conflict(order));
    assert_eq!(stage.left().await, Some(8));
    assert_ne!(
        stage.order("bob", "r1").await.number(),
        0,
        "the id is the buyer's own"
    );
}

async fn a_never_loaded_item_is_neither_sold_out_nor_endless(kind: Kind) {
    let stage = Stage::empty(kind).await;
    assert_eq!(stage.ask("ann", "r1").await, Outcome::NoItem);
    assert_eq!(stage.gate.standing(&stage.item).await.unwrap(), None);
    let _ = (SystemTime::now(), load(1, None, Terms::default()), ms(1));
}
