//! Changes of state, of orders and of items: which are allowed, and what each announces.

use std::time::{Duration, UNIX_EPOCH};

use tenure_sale::ledger::{Count, Moved, What};
use tenure_sale::{ErrorKind, Item, ItemState, NewItem, OrderId, OrderState, Terms};

use super::setup::{ITEM, Setup, again, id, on_every_ledger, order, order_as};

on_every_ledger!(
    every_change_of_an_order_is_allowed_or_refused,
    units_go_back_exactly_once,
    an_order_expires_when_its_time_is_over,
    expiry_spares_what_was_paid_for,
    more_orders_expire_than_fit_one_transaction,
    a_revived_order_has_its_time_anew,
    an_order_is_lost_once,
    orders_that_cannot_be_are_unknown,
    orders_of_a_buyer_come_newest_first,
    counts_are_by_state,
    an_item_is_created_once,
    an_item_changes_its_state_by_compare_and_set,
    terms_are_kept_and_announced,
    terms_that_contradict_themselves_are_refused,
    units_are_added_once_for_each_reference,
    adding_is_refused_where_it_makes_no_sense,
);

fn paying_within(pay_within: Duration) -> Terms {
    Terms {
        pay_within: Some(pay_within),
        ..Terms::default()
    }
}

/// An order in each state that the ledger has, made the way it comes about.
async fn in_every_state(setup: &Setup) -> Vec<(OrderState, OrderId)> {
    let terms = paying_within(Duration::from_millis(1));
    setup.selling_on(6, terms).await;
    let ledger = &setup.ledger;
    ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
    expire_all(setup).await;
    ledger.set_terms(ITEM, &Terms::default()).await.unwrap();
    let batch: Vec<_> = (2..=5).map(|n| order(n, "bob", 1)).collect();
    ledger.commit(&batch).await.unwrap();
    ledger.pay(&id(1, 3)).await.unwrap();
    ledger.cancel(&id(1, 4)).await.unwrap();
    ledger.cancel(&id(1, 5)).await.unwrap();
    ledger.pay_unfulfilled(&id(1, 5)).await.unwrap();
    ledger.bury(&order(6, "bob", 1), "poison").await.unwrap();
    ledger.commit(&[order(7, "bob", 9)]).await.unwrap();
    ledger
        .next_epoch(ITEM, tenure::Fence::new(2))
        .await
        .unwrap();
    ledger.mark_lost(&id(1, 8)).await.unwrap();
    let states = [
        OrderState::Expired,
        OrderState::Reserved,
        OrderState::Paid,
        OrderState::Cancelled,
        OrderState::PaidUnfulfilled,
        OrderState::Dead,
        OrderState::Rejected,
        OrderState::Lost,
    ];
    let mut orders = Vec::new();
    for (number, state) in (1..).zip(states) {
        let order = id(1, number);
        assert_eq!(setup.state(&order).await, Some(state));
        orders.push((state, order));
    }
    orders
}

async fn expire_all(setup: &Setup) -> Vec<OrderId> {
    for _ in 0..200 {
        let expired = setup.ledger.expire(100).await.unwrap();
        if !expired.is_empty() {
            return expired;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("nothing expired");
}

async fn every_change_of_an_order_is_allowed_or_refused(setup: Setup) {
    use OrderState::{Cancelled, Dead, Expired, Lost, Paid, PaidUnfulfilled, Reserved};
    let orders = in_every_state(&setup).await;
    let allowed: [(&str, &[OrderState], OrderState); 5] = [
        ("lost", &[], Lost),
        // Those that change nothing of what the next one needs come first.
        ("pay_unfulfilled", &[Expired, Cancelled], PaidUnfulfilled),
        ("pay", &[Reserved], Paid),
        ("revive", &[Dead], Reserved),
        ("cancel", &[Reserved], Cancelled),
    ];
    for (verb, from, to) in allowed {
        for (_, order) in &orders {
            let before = setup.ledger.order(order).await.unwrap().unwrap();
            let moved = match verb {
                "lost" => setup.ledger.mark_lost(order).await,
                "pay_unfulfilled" => setup.ledger.pay_unfulfilled(order).await,
                "pay" => setup.ledger.pay(order).await,
                "revive" => setup.ledger.revive(order).await,
                _ => setup.ledger.cancel(order).await,
            };
            let after = setup.ledger.order(order).await.unwrap().unwrap();
            let expected = if before.state == to {
                Moved::Already(before)
            } else if from.contains(&before.state) {
                assert_eq!(after.state, to);
                Moved::Done(after)
            } else {
                assert_eq!(after, before);
                Moved::Refused(before)
            };
            assert_eq!(moved.unwrap(), expected, "{verb} {order}");
        }
    }
}

async fn units_go_back_exactly_once(setup: Setup) {
    setup.selling(10).await;
    let batch = [order(1, "bob", 3), order(2, "eve", 2)];
    setup.ledger.commit(&batch).await.unwrap();
    setup
        .ledger
        .bury(&order(3, "tom", 4), "poison")
        .await
        .unwrap();
    assert_eq!(setup.item().await.sold, 9);
    for _ in 0..3 {
        setup.ledger.cancel(&id(1, 1)).await.unwrap();
        setup.ledger.cancel(&id(1, 3)).await.unwrap();
    }
    assert_eq!(setup.item().await.sold, 2);
    let released = |number, buyer: &str, units| What::Released {
        order: id(1, number),
        state: OrderState::Cancelled,
        buyer: buyer.into(),
        units,
    };
    let expected = [released(1, "bob", 3), released(3, "tom", 4)];
    assert_eq!(setup.changes_after(2).await, expected);
}

async fn an_order_expires_when_its_time_is_over(setup: Setup) {
    setup
        .selling_on(10, paying_within(Duration::from_secs(2)))
        .await;
    let batch: Vec<_> = (1..=3).map(|n| order(n, "bob", 2)).collect();
    setup.ledger.commit(&batch).await.unwrap();
    let kept = setup.ledger.order(&id(1, 1)).await.unwrap().unwrap();
    let time = kept.pay_by.unwrap().duration_since(kept.accepted_at);
    // The clocks of gate and ledger are one here, to the millisecond.
    assert!(time.unwrap() >= Duration::from_millis(1_999));
    assert_eq!(setup.ledger.expire(10).await.unwrap(), []);
    tokio::time::sleep(Duration::from_millis(2_010)).await;
    // A page at a time, and nothing twice.
    assert_eq!(setup.ledger.expire(0).await.unwrap(), []);
    assert_eq!(setup.ledger.expire(2).await.unwrap().len(), 2);
    assert_eq!(setup.ledger.expire(2).await.unwrap().len(), 1);
    assert_eq!(setup.ledger.expire(2).await.unwrap(), []);
    assert_eq!(setup.item().await.sold, 0);
    let late = setup.ledger.pay(&id(1, 1)).await.unwrap();
    assert!(matches!(late, Moved::Refused(order) if order.state == OrderState::Expired));
    let paid = [again(4, id(1, 1), "bob", 2)];
    setup.ledger.commit(&paid).await.unwrap();
    assert_eq!(setup.state(&id(1, 1)).await, Some(OrderState::Paid));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(setup.ledger.expire(2).await.unwrap(), []);
}

async fn expiry_spares_what_was_paid_for(setup: Setup) {
    setup
        .selling_on(10, paying_within(Duration::from_millis(1)))
        .await;
    let batch: Vec<_> = (1..=2).map(|n| order(n, "bob", 1)).collect();
    setup.ledger.commit(&batch).await.unwrap();
    // Late, but its units are still there.
    setup.ledger.pay(&id(1, 1)).await.unwrap();
    assert_eq!(expire_all(&setup).await, [id(1, 2)]);
    assert_eq!(setup.item().await.sold, 1);
}

async fn more_orders_expire_than_fit_one_transaction(setup: Setup) {
    setup
        .selling_on(2000, paying_within(Duration::from_millis(1)))
        .await;
    let batch: Vec<_> = (1..=1100).map(|n| order(n, "bob", 1)).collect();
    setup.ledger.commit(&batch).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut expired = setup.ledger.expire(10_000).await.unwrap();
    expired.sort_unstable();
    let all: Vec<OrderId> = batch.into_iter().map(|entry| entry.id).collect();
    assert_eq!(expired, all);
    assert_eq!(setup.item().await.sold, 0);
    assert_eq!(setup.changes_after(1).await.len(), 1100);
    super::books::assert_balanced(&setup).await;
}

async fn a_revived_order_has_its_time_anew(setup: Setup) {
    setup
        .selling_on(10, paying_within(Duration::from_mins(1)))
        .await;
    setup
        .ledger
        .bury(&order(1, "bob", 1), "poison")
        .await
        .unwrap();
    let dead = setup.ledger.order(&id(1, 1)).await.unwrap().unwrap();
    assert_eq!(dead.pay_by, None);
    let Moved::Done(revived) = setup.ledger.revive(&id(1, 1)).await.unwrap() else {
        panic!("not revived");
    };
    assert!(revived.pay_by.is_some());
    assert_eq!(setup.item().await.sold, 1);
}

async fn an_order_is_lost_once(setup: Setup) {
    setup.selling(10).await;
    // It may still come.
    let moved = setup.ledger.mark_lost(&id(1, 1)).await.unwrap();
    assert_eq!(moved, Moved::Unknown);
    let fence = tenure::Fence::new(2);
    setup.ledger.next_epoch(ITEM, fence).await.unwrap();
    let moved = setup.ledger.mark_lost(&id(1, 1)).await.unwrap();
    assert!(matches!(moved, Moved::Done(_)));
    let moved = setup.ledger.mark_lost(&id(1, 1)).await.unwrap();
    assert!(matches!(moved, Moved::Already(_)));
    let (orders, state) = (vec![id(1, 1)], OrderState::Lost);
    let announced = [What::Committed { orders, state }];
    assert_eq!(setup.changes_after(0).await, announced);
    let mut counts = setup.ledger.counts(ITEM).await.unwrap();
    let lost = Count {
        state,
        orders: 1,
        units: 0,
    };
    assert_eq!(counts.pop(), Some(lost));
    // Many unknown buyers are no buyer.
    setup.ledger.mark_lost(&id(1, 2)).await.unwrap();
    assert_eq!(setup.ledger.orders_of("", 10).await.unwrap(), []);
}

async fn orders_that_cannot_be_are_unknown(setup: Setup) {
    setup.selling(10).await;
    let made_up: OrderId = "nowhere.1.1".parse().unwrap();
    for order in [made_up, id(1, 1), id(9, 1), id(0, 0)] {
        assert_eq!(setup.ledger.order(&order).await.unwrap(), None);
        assert_eq!(setup.ledger.pay(&order).await.unwrap(), Moved::Unknown);
        assert_eq!(setup.ledger.revive(&order).await.unwrap(), Moved::Unknown);
        assert_eq!(setup.ledger.cancel(&order).await.unwrap(), Moved::Unknown);
    }
    for text in ["", "nul\0", &"x".repeat(100_000)] {
        assert_eq!(setup.ledger.item(text).await.unwrap(), None);
        assert_eq!(setup.ledger.orders_of(text, 1).await.unwrap(), []);
        assert_eq!(setup.ledger.counts(text).await.unwrap(), []);
        assert_eq!(setup.ledger.changes(text, 0, 1).await.unwrap(), []);
        assert_eq!(setup.ledger.buyers(text, None, 1).await.unwrap(), []);
        let of_request = setup.ledger.order_of(ITEM, text, text).await.unwrap();
        assert_eq!(of_request, None);
        let withdrawal = setup.ledger.withdrawal(ITEM, text).await.unwrap();
        assert_eq!(withdrawal, None);
    }
    let count = usize::MAX;
    assert_eq!(
        setup.ledger.changes(ITEM, u64::MAX, count).await.unwrap(),
        []
    );
}

async fn orders_of_a_buyer_come_newest_first(setup: Setup) {
    setup.selling(10).await;
    for number in 1..=3 {
        let batch = [order(number, "bob", 1), order(number + 10, "eve", 1)];
        setup.ledger.commit(&batch).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let orders = setup.ledger.orders_of("bob", 2).await.unwrap();
    let ids: Vec<_> = orders.into_iter().map(|order| order.id).collect();
    assert_eq!(ids, [id(1, 3), id(1, 2)]);
}

async fn counts_are_by_state(setup: Setup) {
    setup.selling(10).await;
    let batch: Vec<_> = (1..=4).map(|n| order(n, "bob", n)).collect();
    setup.ledger.commit(&batch).await.unwrap();
    setup.ledger.pay(&id(1, 2)).await.unwrap();
    setup.ledger.cancel(&id(1, 3)).await.unwrap();
    let count = |state, orders, units| Count {
        state,
        orders,
        units,
    };
    let expected = [
        count(OrderState::Reserved, 2, 5),
        count(OrderState::Paid, 1, 2),
        count(OrderState::Cancelled, 1, 3),
    ];
    assert_eq!(setup.ledger.counts(ITEM).await.unwrap(), expected);
    assert_eq!(setup.ledger.counts("nowhere").await.unwrap(), []);
}

async fn an_item_is_created_once(setup: Setup) {
    let new = NewItem::new(ITEM, 7).unwrap();
    let item = setup.ledger.create(&new).await.unwrap();
    assert_eq!(Some(&item), setup.ledger.item(ITEM).await.unwrap().as_ref());
    assert_eq!(
        (item.state, item.total, item.sold),
        (ItemState::Draft, 7, 0)
    );
    assert_eq!((item.epoch, item.unlimited), (0, false));
    let error = setup.ledger.create(&new).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ItemExists);
    assert!(error.to_string().contains("`sku.7`"), "{error}");
    let huge = NewItem::new("huge", u64::MAX).unwrap();
    let error = setup.ledger.create(&huge).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUnits);
    let most = NewItem::new("most", tenure_sale::UNITS_MAX).unwrap();
    setup.ledger.create(&most).await.unwrap();
    let names = |items: Vec<Item>| items.into_iter().map(|item| item.name).collect::<Vec<_>>();
    let all = setup.ledger.items(&[]).await.unwrap();
    assert_eq!(names(all), ["most", ITEM]);
    let open = setup.ledger.items(&[ItemState::Open]).await.unwrap();
    assert_eq!(names(open), [""; 0]);
}

async fn an_item_changes_its_state_by_compare_and_set(setup: Setup) {
    setup.selling(1).await;
    let (draft, open) = (ItemState::Draft, ItemState::Open);
    let opened = setup.ledger.set_state(ITEM, &[draft], open).await.unwrap();
    assert_eq!(opened.state, open);
    assert_eq!(setup.item().await, opened);
    let error = setup
        .ledger
        .set_state(ITEM, &[draft], open)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("it is open"), "{error}");
    assert_eq!(setup.changes_after(0).await, [What::State(open)]);
    for missing in ["nowhere", "nul\0"] {
        let error = setup.ledger.set_state(missing, &[draft], open).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NoItem);
    }
}

async fn terms_are_kept_and_announced(setup: Setup) {
    setup.selling(1).await;
    let now = super::setup::accepted_at();
    let terms = Terms {
        starts_at: Some(now),
        ends_at: Some(now + Duration::from_secs(1)),
        limit_per_buyer: Some(3),
        units_per_order: 2,
        pay_within: Some(Duration::from_millis(1500)),
        backlog_max: 7,
        answers_kept: Duration::from_secs(5),
    };
    let item = setup.ledger.set_terms(ITEM, &terms).await.unwrap();
    assert_eq!(item.terms, terms);
    assert_eq!(setup.item().await, item);
    let announced = [What::Terms(Box::new(terms))];
    assert_eq!(setup.changes_after(0).await, announced);
}

/// Longer than a hundred years.
const TOO_LONG: Duration = Duration::from_hours(24 * 36_526);

async fn terms_that_contradict_themselves_are_refused(setup: Setup) {
    setup.selling(1).await;
    let now = super::setup::accepted_at();
    let default = Terms::default;
    // In the year 2255, where Lua's numbers are no longer exact.
    let too_late = UNIX_EPOCH + Duration::from_micros(1 << 53);
    for terms in [
        Terms {
            starts_at: Some(now),
            ends_at: Some(now),
            ..default()
        },
        Terms {
            limit_per_buyer: Some(0),
            ..default()
        },
        Terms {
            units_per_order: 0,
            ..default()
        },
        Terms {
            units_per_order: u64::MAX,
            ..default()
        },
        Terms {
            backlog_max: 0,
            ..default()
        },
        Terms {
            pay_within: Some(Duration::ZERO),
            ..default()
        },
        Terms {
            pay_within: Some(TOO_LONG),
            ..default()
        },
        Terms {
            answers_kept: TOO_LONG,
            ..default()
        },
        Terms {
            starts_at: Some(too_late),
            ..default()
        },
        Terms {
            ends_at: Some(too_late),
            ..default()
        },
    ] {
        let error = setup.ledger.set_terms(ITEM, &terms).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{terms:?}");
        let new = NewItem::new("other", 1).unwrap().terms(terms);
        let error = setup.ledger.create(&new).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSetting);
    }
    assert_eq!(setup.item().await.terms, Terms::default());
}

async fn units_are_added_once_for_each_reference(setup: Setup) {
    setup.selling(5).await;
    let add = async |units, reference: &str, expected| {
        let ledger = &setup.ledger;
        let item = ledger.add_units(ITEM, units, "found more", reference, expected);
        item.await.map(|item| item.total)
    };
    assert_eq!(add(2, "a", Some(5)).await.unwrap(), 7);
    assert_eq!(add(2, "a", Some(5)).await.unwrap(), 7);
    assert_eq!(add(3, "b", None).await.unwrap(), 10);
    for (units, reference, expected) in [(1, "c", Some(7)), (3, "a", None)] {
        let error = add(units, reference, expected).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }
    let added = |units| What::Added {
        units,
        reason: "found more".into(),
    };
    assert_eq!(setup.changes_after(0).await, [added(2), added(3)]);
    assert_eq!(setup.ledger.withdrawal(ITEM, "a").await.unwrap(), None);
    // A reference of a withdrawal is not one of an addition.
    let entry = super::setup::withdrawal(1, "w", 1, None);
    setup.ledger.commit(&[entry]).await.unwrap();
    let error = add(1, "w", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

async fn adding_is_refused_where_it_makes_no_sense(setup: Setup) {
    setup.selling(5).await;
    let unlimited = NewItem::unlimited("endless").unwrap();
    setup.ledger.create(&unlimited).await.unwrap();
    let long = "x".repeat(2000);
    for (item, units, reason, reference, kind) in [
        (ITEM, 0, "r", "a", ErrorKind::InvalidUnits),
        (ITEM, u64::MAX, "r", "a", ErrorKind::InvalidUnits),
        (
            ITEM,
            tenure_sale::UNITS_MAX,
            "r",
            "a",
            ErrorKind::InvalidUnits,
        ),
        (ITEM, 1, &*long, "a", ErrorKind::InvalidSetting),
        (ITEM, 1, "r", "", ErrorKind::InvalidSetting),
        (ITEM, 1, "r", &*long, ErrorKind::InvalidSetting),
        (ITEM, 1, "nul\0", "a", ErrorKind::InvalidSetting),
        ("endless", 1, "r", "a", ErrorKind::Conflict),
        ("nowhere", 1, "r", "a", ErrorKind::NoItem),
    ] {
        let added = setup.ledger.add_units(item, units, reason, reference, None);
        assert_eq!(added.await.unwrap_err().kind(), kind, "{item} {units}");
    }
    assert_eq!(setup.item().await.total, 5);
    let other = order_as("endless.0.1".parse().unwrap(), "bob", "r", 1);
    setup.ledger.commit(&[other]).await.unwrap();
}
