//! Epochs: what a gate is loaded with, and who may load it.

use std::time::{Duration, SystemTime};

use tenure::Fence;
use tenure_sale::gate::Remembered;
use tenure_sale::{ErrorKind, ItemState, OrderState, Terms};

use super::setup::{ITEM, Setup, id, on_every_ledger, order, order_as};

on_every_ledger!(
    an_epoch_is_loaded_with_what_is_left,
    an_old_fence_begins_nothing,
    of_two_rebuilds_at_once_the_newer_fence_is_last,
    buyers_come_page_by_page,
    answers_come_page_by_page,
    answers_are_those_that_count,
    changes_that_the_gate_has_are_forgotten,
);

const DAY: Duration = Duration::from_hours(24);

async fn an_epoch_is_loaded_with_what_is_left(setup: Setup) {
    let terms = Terms {
        limit_per_buyer: Some(5),
        ..Terms::default()
    };
    let load = setup.selling_on(10, terms.clone()).await;
    assert_eq!((load.epoch, load.left, load.change), (1, Some(10), 0));
    assert_eq!((load.state, load.fence), (ItemState::Draft, Fence::new(1)));
    let batch = [order(1, "bob", 3), order(2, "eve", 2)];
    setup.ledger.commit(&batch).await.unwrap();
    setup.ledger.cancel(&id(1, 2)).await.unwrap();
    let (from, to) = ([ItemState::Draft], ItemState::Open);
    setup.ledger.set_state(ITEM, &from, to).await.unwrap();
    let load = setup.ledger.next_epoch(ITEM, Fence::new(7)).await.unwrap();
    assert_eq!((load.epoch, load.left, load.change), (2, Some(7), 3));
    assert_eq!((load.state, load.terms), (to, terms));
    assert_eq!(setup.item().await.epoch, 2);
}

async fn an_old_fence_begins_nothing(setup: Setup) {
    setup.selling(10).await;
    setup.ledger.next_epoch(ITEM, Fence::new(5)).await.unwrap();
    for old in [0, 4, 5, u64::MAX] {
        let begun = setup.ledger.next_epoch(ITEM, Fence::new(old)).await;
        assert_eq!(begun.unwrap_err().kind(), ErrorKind::Conflict, "{old}");
    }
    assert_eq!(setup.item().await.epoch, 2);
    let begun = setup.ledger.next_epoch("nowhere", Fence::new(9)).await;
    assert_eq!(begun.unwrap_err().kind(), ErrorKind::NoItem);
}

async fn of_two_rebuilds_at_once_the_newer_fence_is_last(setup: Setup) {
    setup.selling(10).await;
    let begin = |fence| {
        let ledger = setup.ledger.clone();
        tokio::spawn(async move { ledger.next_epoch(ITEM, Fence::new(fence)).await })
    };
    let running: Vec<_> = (2..10).map(begin).collect();
    let mut loads = Vec::new();
    for load in running {
        loads.extend(load.await.unwrap().ok());
    }
    loads.sort_by_key(|load| load.epoch);
    assert!(loads.is_sorted_by_key(|load| load.fence));
    assert_eq!(loads.last().unwrap().fence, Fence::new(9));
    let epochs: Vec<u64> = loads.iter().map(|load| load.epoch).collect();
    assert_eq!(epochs, (2..2 + epochs.len() as u64).collect::<Vec<_>>());
}

async fn buyers_come_page_by_page(setup: Setup) {
    setup.selling(100).await;
    let names = ["Zoe", "ada", "bob", "Ärger", "換"];
    let batch: Vec<_> = (1..)
        .zip(names.iter().chain(&names))
        .map(|(number, buyer)| order(number, buyer, number))
        .collect();
    setup.ledger.commit(&batch).await.unwrap();
    setup.ledger.cancel(&id(1, 2)).await.unwrap();
    setup.ledger.pay(&id(1, 3)).await.unwrap();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = setup.ledger.buyers(ITEM, after.as_deref(), 2).await;
        let page = page.unwrap();
        let Some((last, _)) = page.last() else {
            break;
        };
        after = Some(last.clone());
        all.extend(page);
    }
    all.sort();
    let mut expected = [
        ("Zoe", 7),
        ("ada", 7),
        ("bob", 11),
        ("Ärger", 13),
        ("換", 15),
    ];
    expected.sort_unstable();
    let expected = expected.map(|(buyer, units)| (buyer.to_owned(), units));
    assert_eq!(all, expected);
}

async fn answers_come_page_by_page(setup: Setup) {
    setup.selling(100).await;
    let batch: Vec<_> = (1..=5).map(|n| order(n, "bob", n)).collect();
    setup.ledger.commit(&batch).await.unwrap();
    setup.ledger.next_epoch(ITEM, Fence::new(2)).await.unwrap();
    let newer = order_as(id(2, 1), "eve", "r", 1);
    setup.ledger.commit(&[newer]).await.unwrap();
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = setup.ledger.answers(ITEM, DAY, after.as_ref(), 4).await;
        let page: Vec<Remembered> = page.unwrap();
        let Some(last) = page.last() else {
            break;
        };
        after = Some(last.order.clone());
        all.extend(page.into_iter().map(|answer| answer.order));
    }
    let mut expected: Vec<_> = (1..=5).map(|n| id(1, n)).collect();
    expected.push(id(2, 1));
    assert_eq!(all, expected);
}

async fn answers_are_those_that_count(setup: Setup) {
    setup.selling(10).await;
    let old = SystemTime::now() - 2 * DAY;
    let mut batch: Vec<_> = (1..=4).map(|n| order(n, "bob", 1)).collect();
    for entry in &mut batch[..2] {
        entry.accepted_at = old;
    }
    // Its request is the third order already; and one that does not fit.
    batch.push(order_as(id(1, 5), "bob", "r3", 1));
    batch.push(order(6, "bob", 9));
    setup.ledger.commit(&batch).await.unwrap();
    setup.ledger.cancel(&id(1, 2)).await.unwrap();
    setup.ledger.cancel(&id(1, 4)).await.unwrap();
    setup.ledger.next_epoch(ITEM, Fence::new(2)).await.unwrap();
    setup.ledger.commit(&[order(7, "bob", 1)]).await.unwrap();
    assert_eq!(setup.state(&id(1, 7)).await, Some(OrderState::Lost));
    let answers = setup.ledger.answers(ITEM, DAY, None, 100).await.unwrap();
    // The second was cancelled, and its request cannot become another order; the fifth is the third's twin;
    // the sixth was rejected today; the seventh is lost.
    let numbers: Vec<u64> = answers.iter().map(|answer| answer.order.number()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 6]);
    assert_eq!(
        (answers[2].buyer.as_str(), answers[2].request.as_str()),
        ("bob", "r3")
    );
    // Nobody waits for the answer to one that was rejected long ago.
    let kept = setup.ledger.answers(ITEM, Duration::ZERO, None, 100).await;
    assert_eq!(kept.unwrap().len(), 4);
}

async fn changes_that_the_gate_has_are_forgotten(setup: Setup) {
    setup.selling(10).await;
    for number in 1..=5 {
        let batch = [order(number, "bob", 1)];
        setup.ledger.commit(&batch).await.unwrap();
    }
    let (past, future) = (SystemTime::now() - DAY, SystemTime::now() + DAY);
    let forget = async |applied, before| {
        let ledger = &setup.ledger;
        ledger.forget_changes(ITEM, applied, before).await.unwrap()
    };
    assert_eq!(forget(5, past).await, 0);
    assert_eq!(forget(3, future).await, 3);
    assert_eq!(forget(3, future).await, 0);
    assert_eq!(setup.changes_after(3).await.len(), 2);
    assert_eq!(
        setup.ledger.changes(ITEM, 0, 10).await.unwrap()[0].number,
        4
    );
    let load = setup.ledger.next_epoch(ITEM, Fence::new(2)).await.unwrap();
    assert_eq!(load.change, 5);
}
