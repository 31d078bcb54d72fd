//! Units for what is no buyer's order.

use tenure_sale::gate::{Taken, Wanted};
use tenure_sale::ledger::What;
use tenure_sale::{ErrorKind, ItemState, Outcome, Terms};

use super::on_every_gate;
use super::stage::{Kind, Stage, load};

on_every_gate! {
    a_withdrawal_is_queued_once;
    units_are_taken_whatever_the_state;
    more_than_is_left_cannot_be_taken;
    an_order_that_is_paid_after_all_counts_for_its_buyer;
    an_order_is_not_paid_after_all_beyond_the_limit;
    a_reference_is_no_buyers_request;
    what_makes_no_sense_cannot_be_taken;
}

async fn a_withdrawal_is_queued_once(kind: Kind) {
    let stage = Stage::of(kind, 10).await;
    let wanted = withdrawal("w1", 4);
    let taken = stage.gate.take(&stage.item, &wanted).await.unwrap();
    let Taken::Queued(order) = taken else {
        panic!("not queued but {taken:?}");
    };
    let again = stage.gate.take(&stage.item, &wanted).await.unwrap();
    assert_eq!(again, Taken::Replayed(order.clone()));
    let other = stage.gate.take(&stage.item, &withdrawal("w1", 5)).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(stage.left().await, Some(6));
    let read = stage.read(9).await;
    assert_eq!(read.len(), 1);
    assert_eq!((&read[0].id, &read[0].what), (&order, &Ok(wanted)));
}

async fn units_are_taken_whatever_the_state(kind: Kind) {
    let stage = Stage::of(kind, 10).await;
    let states = [ItemState::Paused, ItemState::Closed];
    for (number, state) in (1..).zip(states) {
        stage.tell(number, What::State(state)).await;
        let wanted = withdrawal(state.word(), 1);
        let taken = stage.gate.take(&stage.item, &wanted);
        assert!(matches!(taken.await.unwrap(), Taken::Queued(_)));
    }
}

async fn more_than_is_left_cannot_be_taken(kind: Kind) {
    let stage = Stage::empty(kind).await;
    let take = async |units| {
        let wanted = withdrawal("w", units);
        stage.gate.take(&stage.item, &wanted).await.unwrap()
    };
    assert_eq!(take(1).await, Taken::NoItem);
    let terms = Terms {
        backlog_max: 1,
        ..Terms::default()
    };
    stage.load(load(1, Some(3), terms)).await;
    assert_eq!(take(4).await, Taken::SoldOut { left: 3 });
    // Each shelf has a queue of its own: that of the first is filled by a withdrawal.
    let first = withdrawal("first", 1);
    let taken = stage.gate.take(&stage.item, &first).await.unwrap();
    assert!(matches!(taken, Taken::Queued(_)));
    assert_eq!(take(1).await, Taken::Busy);
    assert!(stage.begin(2, tenure::Fence::new(2)).await.unwrap());
    assert_eq!(take(1).await, Taken::StaleEpoch);
}

async fn an_order_that_is_paid_after_all_counts_for_its_buyer(kind: Kind) {
    let terms = Terms {
        limit_per_buyer: Some(1),
        ..Terms::default()
    };
    let stage = Stage::with(kind, 3, terms).await;
    let order = stage.order("ann", "r1").await;
    let released = What::Released {
        order: order.clone(),
        state: tenure_sale::OrderState::Expired,
        buyer: "ann".to_owned(),
        units: 1,
    };
    stage.tell(1, released).await;
    let wanted = Wanted::Again {
        order,
        buyer: "ann".to_owned(),
        units: 1,
    };
    let taken = stage.gate.take(&stage.item, &wanted).await.unwrap();
    assert!(matches!(taken, Taken::Queued(_)));
    assert_eq!(stage.left().await, Some(2));
    assert_eq!(stage.ask("ann", "r2").await, Outcome::LimitReached);
    assert_eq!(stage.read(9).await[1].what, Ok(wanted));
}

/// Otherwise an order that was accepted in time could find no room in the ledger, if that hears of
/// the payment first.
async fn an_order_is_not_paid_after_all_beyond_the_limit(kind: Kind) {
    let terms = Terms {
        limit_per_buyer: Some(1),
        ..Terms::default()
    };
    let stage = Stage::with(kind, 3, terms).await;
    let order = stage.order("ann", "r1").await;
    let released = What::Released {
        order: order.clone(),
        state: tenure_sale::OrderState::Expired,
        buyer: "ann".to_owned(),
        units: 1,
    };
    stage.tell(1, released).await;
    stage.order("ann", "r2").await;
    let wanted = Wanted::Again {
        order,
        buyer: "ann".to_owned(),
        units: 1,
    };
    let taken = stage.gate.take(&stage.item, &wanted).await.unwrap();
    assert_eq!(taken, Taken::LimitReached);
    assert_eq!(stage.left().await, Some(2));
}

async fn a_reference_is_no_buyers_request(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let taken = stage.gate.take(&stage.item, &withdrawal("r1", 1)).await;
    assert!(matches!(taken.unwrap(), Taken::Queued(_)));
    stage.order("withdrawal", "r1").await;
    stage.order("again", "r1").await;
}

async fn what_makes_no_sense_cannot_be_taken(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let order = Wanted::Order {
        buyer: "ann".to_owned(),
        request: "r1".to_owned(),
        units: 1,
    };
    let elsewhere = Wanted::Again {
        order: "other.1.0".parse().unwrap(),
        buyer: "ann".to_owned(),
        units: 1,
    };
    for (wanted, kind) in [
        (order, ErrorKind::InvalidRequest),
        (elsewhere, ErrorKind::InvalidOrder),
        (withdrawal("w", 0), ErrorKind::InvalidUnits),
        (withdrawal("w", u64::MAX), ErrorKind::InvalidUnits),
        (withdrawal("", 1), ErrorKind::InvalidRequest),
        (withdrawal("a\nb", 1), ErrorKind::InvalidRequest),
    ] {
        let error = stage.gate.take(&stage.item, &wanted).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{wanted:?}");
    }
    assert_eq!(stage.left().await, Some(9));
}

fn withdrawal(reference: &str, units: u64) -> Wanted {
    Wanted::Withdrawal {
        reference: reference.to_owned(),
        reason: "damaged in storage".to_owned(),
        units,
        expected: Some(10),
    }
}
