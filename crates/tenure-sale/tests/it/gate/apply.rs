//! Changes of the ledger that are sent to the gate.

use tenure_sale::gate::{Applied, Load};
use tenure_sale::ledger::{Change, What};
use tenure_sale::{ErrorKind, ItemState, OrderId, OrderState, Outcome, Terms};

use super::on_every_gate;
use super::stage::{Kind, Stage, change, load, ms};

on_every_gate! {
    a_release_brings_units_and_quota_back;
    changes_take_effect_once_and_in_order;
    two_relays_at_once_do_it_once;
    a_release_reaches_a_paused_and_a_closed_item;
    another_epoch_is_stale;
    what_the_gate_did_itself_changes_only_the_number;
    terms_and_state_take_effect_together;
    a_new_limit_needs_a_rebuild;
    a_limit_that_is_lifted_frees_everybody;
    a_gap_between_changes_is_an_error;
    more_units_than_can_be_counted_are_refused;
    a_closed_item_forgets_in_time_and_needs_a_rebuild_to_open;
    a_closed_item_opens_again_in_time;
}

async fn a_release_brings_units_and_quota_back(kind: Kind) {
    let stage = Stage::with(kind, 5, limit(2)).await;
    let order = stage.order("ann", "r1").await;
    stage.order("ann", "r2").await;
    assert_eq!(stage.ask("ann", "r3").await, Outcome::LimitReached);
    stage.tell(1, released(&order, "ann", 1)).await;
    assert_eq!(stage.left().await, Some(4));
    stage.order("ann", "r3").await;
    assert_eq!(stage.ask("ann", "r4").await, Outcome::LimitReached);
    // The answer stays: the request became an order once.
    assert_eq!(stage.ask("ann", "r1").await, Outcome::Replayed(order));
}

async fn changes_take_effect_once_and_in_order(kind: Kind) {
    let stage = Stage::of(kind, 0).await;
    let all: Vec<Change> = (1..=4).map(|number| change(number, added(1))).collect();
    let apply = async |after: u64, changes: &[Change]| {
        let applying = stage.gate.apply(&stage.item, 1, after, changes);
        applying.await.unwrap()
    };
    assert_eq!(apply(0, &all[..2]).await, Applied::Done);
    assert_eq!(apply(0, &all[..2]).await, Applied::At(2));
    assert_eq!(apply(0, &all).await, Applied::At(2));
    assert_eq!(apply(3, &all[3..]).await, Applied::At(2));
    assert_eq!(stage.left().await, Some(2));
    assert_eq!(apply(2, &all[2..]).await, Applied::Done);
    assert_eq!(apply(4, &[]).await, Applied::Done);
    assert_eq!(apply(5, &[]).await, Applied::At(4));
    assert_eq!(stage.left().await, Some(4));
}

async fn two_relays_at_once_do_it_once(kind: Kind) {
    let stage = Stage::of(kind, 0).await;
    let relays = [stage.gate.clone(), stage.again().await];
    let relaying = relays.map(|gate| {
        let item = stage.item.clone();
        tokio::spawn(async move {
            let (mut at, mut done) = (0, 0);
            while at < 100 {
                let next = [change(at + 1, added(1))];
                match gate.apply(&item, 1, at, &next).await.unwrap() {
                    Applied::Done => (at, done) = (at + 1, done + 1),
                    Applied::At(number) => at = number,
                    Applied::Stale => panic!("the gate is current"),
                }
            }
            done
        })
    });
    let mut done = 0;
    for relay in relaying {
        done += relay.await.unwrap();
    }
    assert_eq!((done, stage.left().await), (100, Some(100)));
}

async fn a_release_reaches_a_paused_and_a_closed_item(kind: Kind) {
    let stage = Stage::with(kind, 5, limit(1)).await;
    let (ann, bob) = (
        stage.order("ann", "r1").await,
        stage.order("bob", "r1").await,
    );
    stage.tell(1, What::State(ItemState::Paused)).await;
    stage.tell(2, released(&ann, "ann", 1)).await;
    assert_eq!(stage.left().await, Some(4));
    stage.tell(3, What::State(ItemState::Closed)).await;
    stage.tell(4, released(&bob, "bob", 1)).await;
    assert_eq!(stage.left().await, Some(5));
    stage.tell(5, What::State(ItemState::Open)).await;
    stage.order("ann", "r2").await;
    stage.order("bob", "r2").await;
}

async fn another_epoch_is_stale(kind: Kind) {
    let stage = Stage::empty(kind).await;
    let apply = async |epoch| {
        let changes = [change(1, added(1))];
        let applying = stage.gate.apply(&stage.item, epoch, 0, &changes);
        applying.await.unwrap()
    };
    assert_eq!(apply(1).await, Applied::Stale, "the item is unknown");
    stage.load(load(2, Some(5), Terms::default())).await;
    assert_eq!(apply(1).await, Applied::Stale);
    assert_eq!(apply(3).await, Applied::Stale);
    assert!(stage.begin(3, tenure::Fence::new(3)).await.unwrap());
    assert_eq!(apply(3).await, Applied::Stale, "it is being loaded");
}

async fn what_the_gate_did_itself_changes_only_the_number(kind: Kind) {
    let stage = Stage::with(kind, 5, limit(1)).await;
    let order = stage.order("ann", "r1").await;
    let committed = What::Committed {
        orders: vec![order.clone()],
        state: OrderState::Reserved,
    };
    stage.tell(1, committed).await;
    let paid = OrderState::Paid;
    stage.tell(2, What::Moved { order, state: paid }).await;
    let reason = "broken".to_owned();
    stage.tell(3, What::Withdrawn { units: 3, reason }).await;
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!((standing.change, standing.left), (3, Some(4)));
    let reason = "not broken".to_owned();
    stage.tell(4, What::Returned { units: 3, reason }).await;
    assert_eq!(stage.left().await, Some(7));
    assert_eq!(stage.ask("ann", "r2").await, Outcome::LimitReached);
}

async fn terms_and_state_take_effect_together(kind: Kind) {
    let stage = Stage::with(kind, 10, limit(5)).await;
    let terms = Terms {
        units_per_order: 2,
        backlog_max: 1,
        ..limit(3)
    };
    let changes = [
        change(1, What::State(ItemState::Paused)),
        change(2, What::Terms(Box::new(terms))),
        change(3, What::State(ItemState::Open)),
    ];
    let applying = stage.gate.apply(&stage.item, 1, 0, &changes);
    assert_eq!(applying.await.unwrap(), Applied::Done);
    assert_eq!(
        stage.answer("ann", "r1", 3).await.outcome,
        Outcome::LimitReached
    );
    assert!(stage.answer("ann", "r1", 2).await.outcome.order().is_some());
    // Each shelf has a queue of its own.
    let second = if stage.is_spread() { "ann" } else { "bob" };
    assert_eq!(stage.ask(second, "r2").await, Outcome::Busy);
}

async fn a_new_limit_needs_a_rebuild(kind: Kind) {
    let stage = Stage::of(kind, 10).await;
    let changes = [change(1, What::Terms(Box::new(limit(1))))];
    let applying = stage.gate.apply(&stage.item, 1, 0, &changes);
    assert_eq!(applying.await.unwrap(), Applied::Stale);
}

async fn a_limit_that_is_lifted_frees_everybody(kind: Kind) {
    let stage = Stage::with(kind, 10, limit(1)).await;
    let order = stage.order("ann", "r1").await;
    stage.tell(1, What::Terms(Box::default())).await;
    stage.order("ann", "r2").await;
    stage.tell(2, released(&order, "ann", 1)).await;
    assert_eq!(stage.left().await, Some(9));
}

async fn a_gap_between_changes_is_an_error(kind: Kind) {
    let stage = Stage::of(kind, 10).await;
    let changes = [change(1, added(1)), change(3, added(1))];
    let applying = stage.gate.apply(&stage.item, 1, 0, &changes);
    assert_eq!(applying.await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(stage.left().await, Some(10));
}

async fn more_units_than_can_be_counted_are_refused(kind: Kind) {
    let stage = Stage::of(kind, 10).await;
    for units in [tenure_sale::UNITS_MAX - 9, tenure_sale::UNITS_MAX + 1] {
        if stage.is_spread() && units <= tenure_sale::UNITS_MAX {
            // No shelf has more than it can count, and the ledger has the sum.
            continue;
        }
        let changes = [change(1, added(units))];
        let applying = stage.gate.apply(&stage.item, 1, 0, &changes);
        assert!(applying.await.is_err());
        assert_eq!(stage.left().await, Some(10));
    }
}

async fn a_closed_item_forgets_in_time_and_needs_a_rebuild_to_open(kind: Kind) {
    let terms = Terms {
        answers_kept: ms(150),
        ..limit(1)
    };
    let stage = Stage::with(kind, 10, terms).await;
    let order = stage.order("ann", "r1").await;
    stage.tell(1, What::State(ItemState::Closed)).await;
    assert_eq!(
        stage.ask("ann", "r1").await,
        Outcome::Replayed(order.clone())
    );
    tokio::time::sleep(ms(200)).await;
    assert_eq!(stage.ask("ann", "r1").await, Outcome::Ended);
    stage.tell(2, released(&order, "ann", 1)).await;
    assert_eq!(stage.left().await, Some(10));
    let changes = [change(3, What::State(ItemState::Open))];
    let applying = stage.gate.apply(&stage.item, 1, 2, &changes);
    assert_eq!(applying.await.unwrap(), Applied::Stale);
}

async fn a_closed_item_opens_again_in_time(kind: Kind) {
    let terms = Terms {
        answers_kept: ms(300),
        ..limit(1)
    };
    let stage = Stage::empty(kind).await;
    let load = load(1, Some(10), terms);
    let state = ItemState::Closed;
    stage.load(Load { state, ..load }).await;
    stage.tell(1, What::State(ItemState::Open)).await;
    let order = stage.order("ann", "r1").await;
    stage.tell(2, What::State(ItemState::Closed)).await;
    stage.tell(3, What::State(ItemState::Paused)).await;
    stage.tell(4, What::State(ItemState::Open)).await;
    tokio::time::sleep(ms(350)).await;
    assert_eq!(stage.ask("ann", "r1").await, Outcome::Replayed(order));
    assert_eq!(stage.ask("ann", "r2").await, Outcome::LimitReached);
}

fn released(order: &OrderId, buyer: &str, units: u64) -> What {
    What::Released {
        order: order.clone(),
        state: OrderState::Cancelled,
        buyer: buyer.to_owned(),
        units,
    }
}

fn added(units: u64) -> What {
    What::Added {
        units,
        reason: "more came".to_owned(),
    }
}

fn limit(limit: u64) -> Terms {
    Terms {
        limit_per_buyer: Some(limit),
        units_per_order: 10,
        ..Terms::default()
    }
}
