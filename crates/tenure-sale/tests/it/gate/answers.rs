//! The closed set of answers, and what is checked before what.

use std::time::{Duration, SystemTime};

use tenure_sale::gate::Load;
use tenure_sale::{ErrorKind, ItemState, ORDER_UNITS_MAX, Outcome, Request, Terms};

use super::on_every_gate;
use super::stage::{Kind, Stage, load, ms};

on_every_gate! {
    a_unit_is_sold_once;
    the_same_request_is_the_same_order;
    a_never_loaded_item_is_neither_sold_out_nor_endless;
    more_than_is_left_is_sold_out_and_takes_nothing;
    a_buyer_gets_no_more_than_the_limit;
    an_order_has_no_more_units_than_allowed;
    the_window_opens_and_shuts_by_the_clock;
    a_paused_or_closed_item_is_not_sold;
    a_replay_is_answered_whatever_the_state;
    an_unlimited_item_never_sells_out;
    a_full_queue_is_busy;
    what_is_refused_is_not_remembered;
    two_items_do_not_touch_each_other;
    as_many_units_as_lua_can_count_are_exact;
    a_crowd_gets_every_unit_once;
    a_storm_of_the_same_request_is_one_order;
}

async fn a_unit_is_sold_once(kind: Kind) {
    let stage = Stage::of(kind, 2).await;
    let first = stage.answer("ann", "r1", 1).await;
    assert!(matches!(&first.outcome, Outcome::Accepted(order)
        if order.item() == stage.item && order.epoch() == 1 && stage.nth(order) == 0));
    assert_eq!(first.left, stage.said(1));
    let second = stage.answer("bob", "r1", 1).await;
    assert!(matches!(&second.outcome, Outcome::Accepted(order)
        if stage.is_spread() || order.number() == 1));
    let third = stage.answer("cat", "r1", 1).await;
    assert_eq!((third.outcome, third.left), (Outcome::SoldOut, Some(0)));
    assert_eq!(stage.left().await, Some(0));
}

async fn the_same_request_is_the_same_order(kind: Kind) {
    let stage = Stage::with(kind, 9, up_to(3)).await;
    let order = stage.order("ann", "r1").await;
    let replayed = Outcome::Replayed(order.clone());
    assert_eq!(stage.ask("ann", "r1").await, replayed);
    let request = stage.request("ann", "r1");
    let elsewhere = stage.again().await.ask(&request).await.unwrap();
    assert_eq!(elsewhere.outcome, replayed);
    let other = stage.answer("ann", "r1", 2).await.outcome;
    assert_eq!(other, Outcome::Conflict(order.clone()));
    assert_eq!(stage.left().await, Some(8));
    assert_ne!(
        stage.order("bob", "r1").await,
        order,
        "it is the buyer's own"
    );
}

async fn a_never_loaded_item_is_neither_sold_out_nor_endless(kind: Kind) {
    let stage = Stage::empty(kind).await;
    let answer = stage.answer("ann", "r1", 1).await;
    assert_eq!((answer.outcome, answer.left), (Outcome::NoItem, None));
    assert_eq!(stage.gate.standing(&stage.item).await.unwrap(), None);
}

async fn more_than_is_left_is_sold_out_and_takes_nothing(kind: Kind) {
    let stage = Stage::with(kind, 5, up_to(10)).await;
    assert_eq!(stage.answer("ann", "r1", 3).await.left, stage.said(2));
    let answer = stage.answer("bob", "r1", 3).await;
    assert_eq!((answer.outcome, answer.left), (Outcome::SoldOut, Some(2)));
    assert!(stage.answer("cat", "r1", 2).await.outcome.order().is_some());
    assert_eq!(stage.left().await, Some(0));
}

async fn a_buyer_gets_no_more_than_the_limit(kind: Kind) {
    let terms = Terms {
        limit_per_buyer: Some(3),
        ..up_to(5)
    };
    let stage = Stage::with(kind, 100, terms).await;
    assert!(stage.answer("ann", "r1", 2).await.outcome.order().is_some());
    let beyond = stage.answer("ann", "r2", 2).await;
    assert_eq!(
        (beyond.outcome, beyond.left),
        (Outcome::LimitReached, stage.said(98))
    );
    assert!(stage.answer("ann", "r3", 1).await.outcome.order().is_some());
    assert_eq!(stage.ask("ann", "r4").await, Outcome::LimitReached);
    assert_eq!(
        stage.answer("bob", "r1", 4).await.outcome,
        Outcome::LimitReached
    );
    assert!(stage.answer("bob", "r2", 3).await.outcome.order().is_some());
}

async fn an_order_has_no_more_units_than_allowed(kind: Kind) {
    let stage = Stage::with(kind, 100, up_to(2)).await;
    assert!(stage.answer("ann", "r1", 2).await.outcome.order().is_some());
    assert_eq!(
        stage.answer("ann", "r2", 3).await.outcome,
        Outcome::LimitReached
    );
    assert_eq!(stage.left().await, Some(98));
}

async fn the_window_opens_and_shuts_by_the_clock(kind: Kind) {
    let stage = Stage::empty(kind).await;
    let now = SystemTime::now();
    let hour = Duration::from_hours(1);
    let window = |starts_at, ends_at| Terms {
        starts_at,
        ends_at,
        ..Terms::default()
    };
    let mut epoch = 0;
    let mut answer = async |terms: Terms| {
        epoch += 1;
        stage.load(load(epoch, Some(9999), terms)).await;
        stage.ask("ann", &format!("r{epoch}")).await
    };
    assert_eq!(
        answer(window(Some(now + hour), None)).await,
        Outcome::NotStarted
    );
    assert_eq!(answer(window(None, Some(now - hour))).await, Outcome::Ended);
    assert_eq!(
        answer(window(Some(now - 2 * hour), Some(now - hour))).await,
        Outcome::Ended
    );
    assert!(
        answer(window(Some(now - hour), Some(now + hour)))
            .await
            .order()
            .is_some()
    );
    // The very moments: open from the first on, shut from the second on.
    let (opens, shuts) = (SystemTime::now() + ms(400), SystemTime::now() + ms(1600));
    assert_eq!(
        answer(window(Some(opens), Some(shuts))).await,
        Outcome::NotStarted
    );
    let mut sold = 0;
    loop {
        let (before, id) = (SystemTime::now(), format!("s{sold}"));
        let outcome = stage.ask("ann", &id).await;
        let after = SystemTime::now();
        match outcome {
            Outcome::NotStarted => assert!(before < opens),
            Outcome::Accepted(_) => {
                assert!(after >= opens && before < shuts);
                sold += 1;
            }
            other => {
                assert_eq!(other, Outcome::Ended);
                assert!(after >= shuts);
                break;
            }
        }
        tokio::time::sleep(ms(10)).await;
    }
    assert!(sold > 0, "the window was open");
}

async fn a_paused_or_closed_item_is_not_sold(kind: Kind) {
    for (state, outcome) in [
        (ItemState::Paused, Outcome::Paused),
        (ItemState::Closed, Outcome::Ended),
        (ItemState::Draft, Outcome::NotStarted),
    ] {
        let stage = Stage::empty(kind).await;
        let load = load(1, Some(5), Terms::default());
        stage.load(Load { state, ..load }).await;
        assert_eq!(stage.ask("ann", "r1").await, outcome);
        assert_eq!(stage.left().await, Some(5));
    }
}

async fn a_replay_is_answered_whatever_the_state(kind: Kind) {
    let stage = Stage::of(kind, 1).await;
    let order = stage.order("ann", "r1").await;
    assert_eq!(stage.ask("bob", "r1").await, Outcome::SoldOut);
    for (change, state) in [(1, ItemState::Paused), (2, ItemState::Closed)] {
        stage
            .tell(change, tenure_sale::ledger::What::State(state))
            .await;
        assert_eq!(
            stage.ask("ann", "r1").await,
            Outcome::Replayed(order.clone())
        );
    }
}

async fn an_unlimited_item_never_sells_out(kind: Kind) {
    let stage = Stage::empty(kind).await;
    stage.load(load(1, None, up_to(ORDER_UNITS_MAX))).await;
    for n in 0..5 {
        let answer = stage.answer("ann", &format!("r{n}"), ORDER_UNITS_MAX).await;
        assert!(answer.outcome.order().is_some());
        assert_eq!(answer.left, None);
    }
    assert_eq!(stage.left().await, None);
}

async fn a_full_queue_is_busy(kind: Kind) {
    let terms = Terms {
        backlog_max: 2,
        ..Terms::default()
    };
    let stage = Stage::with(kind, 9, terms).await;
    let first = stage.order("ann", "r1").await;
    stage.order("ann", "r2").await;
    assert_eq!(stage.ask("ann", "r3").await, Outcome::Busy);
    assert_eq!(stage.left().await, Some(7));
    stage.gate.acknowledge(&stage.item, &[first]).await.unwrap();
    stage.order("ann", "r3").await;
}

async fn what_is_refused_is_not_remembered(kind: Kind) {
    let stage = Stage::of(kind, 0).await;
    assert_eq!(stage.ask("ann", "r1").await, Outcome::SoldOut);
    let added = tenure_sale::ledger::What::Added {
        units: 1,
        reason: "found behind the shelf".to_owned(),
    };
    stage.tell(1, added).await;
    stage.order("ann", "r1").await;
}

async fn two_items_do_not_touch_each_other(kind: Kind) {
    let one = Stage::of(kind, 1).await;
    let mut two = Stage::at(one.url()).await;
    two.spread = one.spread;
    two.gate = one.gate.clone();
    two.load(load(7, Some(5), Terms::default())).await;
    one.order("ann", "r1").await;
    assert_eq!(one.ask("bob", "r1").await, Outcome::SoldOut);
    let order = two.order("ann", "r1").await;
    assert_eq!((order.epoch(), two.nth(&order)), (7, 0));
    assert_eq!((one.left().await, two.left().await), (Some(0), Some(4)));
    assert_eq!(one.read(9).await.len(), 1);
    assert_eq!(two.read(9).await.len(), 1);
}

async fn as_many_units_as_lua_can_count_are_exact(kind: Kind) {
    let most = tenure_sale::UNITS_MAX;
    let stage = Stage::of(kind, most).await;
    let answer = stage.answer("ann", "r1", 1).await;
    assert_eq!(answer.left, stage.said(most - 1));
    assert_eq!(stage.left().await, Some(most - 1));
    let beyond = load(2, Some(most + 1), Terms::default());
    assert!(stage.begin(2, beyond.fence).await.unwrap());
    let error = stage.finish(beyond).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUnits);
}

async fn a_crowd_gets_every_unit_once(kind: Kind) {
    let stage = Stage::of(kind, 50).await;
    let gates = [stage.gate.clone(), stage.again().await];
    let asking = (0..200).map(|buyer| {
        let gate = gates[buyer % 2].clone();
        let request = stage.request(&format!("buyer-{buyer}"), "r1");
        tokio::spawn(async move { gate.ask(&request).await.unwrap().outcome })
    });
    let asking: Vec<_> = asking.collect();
    let (mut orders, mut refused) = (std::collections::BTreeSet::new(), 0);
    for outcome in asking {
        match outcome.await.unwrap() {
            Outcome::Accepted(order) => assert!(orders.insert(order.number())),
            other => {
                assert_eq!(other, Outcome::SoldOut);
                refused += 1;
            }
        }
    }
    assert_eq!((orders.len(), refused), (50, 150));
    assert!(stage.is_spread() || orders.last() == Some(&49));
    assert_eq!(stage.left().await, Some(0));
    assert_eq!(stage.read(300).await.len(), 50);
}

async fn a_storm_of_the_same_request_is_one_order(kind: Kind) {
    let stage = Stage::of(kind, 50).await;
    let asking = (0..100).map(|_| {
        let (gate, request) = (stage.gate.clone(), stage.request("ann", "r1"));
        tokio::spawn(async move { gate.ask(&request).await.unwrap().outcome })
    });
    let asking: Vec<_> = asking.collect();
    let mut accepted = 0;
    for outcome in asking {
        let outcome = outcome.await.unwrap();
        assert_eq!(stage.nth(outcome.order().unwrap()), 0);
        accepted += u32::from(matches!(outcome, Outcome::Accepted(_)));
    }
    assert_eq!(accepted, 1);
    assert_eq!(stage.left().await, Some(49));
}

#[test]
fn requests_that_make_no_sense_never_reach_the_gate() {
    let long = "x".repeat(300);
    for (item, buyer, id, kind) in [
        ("", "b", "r", ErrorKind::InvalidItem),
        ("a{b}", "b", "r", ErrorKind::InvalidItem),
        (&long, "b", "r", ErrorKind::InvalidItem),
        ("i", "", "r", ErrorKind::InvalidBuyer),
        ("i", "a\nb", "r", ErrorKind::InvalidBuyer),
        ("i", &long, "r", ErrorKind::InvalidBuyer),
        ("i", "b", "", ErrorKind::InvalidRequest),
        ("i", "b", "r\n", ErrorKind::InvalidRequest),
        ("i", "b", &long, ErrorKind::InvalidRequest),
    ] {
        assert_eq!(Request::new(item, buyer, id).unwrap_err().kind(), kind);
    }
    let request = Request::new("i", "b", "r").unwrap();
    for units in [0, ORDER_UNITS_MAX + 1, u64::MAX] {
        let error = request.clone().units(units).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUnits);
    }
}

fn up_to(units_per_order: u64) -> Terms {
    Terms {
        units_per_order,
        ..Terms::default()
    }
}
