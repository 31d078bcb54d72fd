//! Entries of the queue, and what becomes of each.

use std::slice::from_ref;

use tenure::Fence;
use tenure_sale::gate::{Entry, Wanted};
use tenure_sale::ledger::{Fate, Moved, What};
use tenure_sale::{NewItem, OrderState, Terms};

use super::setup::{ITEM, Setup, again, entry, id, on_every_ledger, order, order_as, withdrawal};

on_every_ledger!(
    a_batch_is_reserved_in_one_change,
    an_entry_that_comes_again_is_known,
    an_order_with_other_content_is_refused,
    one_bad_entry_leaves_the_others_alone,
    what_does_not_fit_is_rejected_and_not_given_back,
    what_no_order_could_use_goes_back,
    a_buyer_beyond_the_limit_is_rejected_and_the_units_go_back,
    a_request_that_is_an_order_already_is_rejected,
    a_rejected_request_may_become_an_order_later,
    a_wish_to_cancel_meets_its_order,
    a_wish_to_cancel_makes_no_second_order_of_a_request,
    entries_of_an_older_epoch_are_lost,
    entries_of_a_newer_epoch_are_refused,
    a_withdrawal_is_done_once,
    a_withdrawal_that_cannot_be_returns_its_units,
    a_late_payment_gets_units_again,
    a_late_payment_without_units_is_to_be_refunded,
    a_late_payment_beyond_the_limit_is_to_be_refunded,
    an_order_that_needs_no_units_again_returns_them,
    the_dead_keep_their_units,
    several_items_in_one_batch,
    an_unlimited_item_never_sells_out,
);

const RESERVED: Fate = Fate::Settled(OrderState::Reserved);
const REJECTED: Fate = Fate::Settled(OrderState::Rejected);
const CANCELLED: Fate = Fate::Settled(OrderState::Cancelled);

async fn a_batch_is_reserved_in_one_change(setup: Setup) {
    setup.selling(10).await;
    let batch: Vec<Entry> = (1..=5).map(|n| order(n, "bob", 1)).collect();
    assert_eq!(
        setup.ledger.commit(&batch).await.unwrap(),
        vec![RESERVED; 5]
    );

    assert_eq!(setup.item().await.sold, 5);
    let orders = (1..=5).map(|n| id(1, n)).collect();
    let state = OrderState::Reserved;
    assert_eq!(
        setup.changes_after(0).await,
        [What::Committed { orders, state }]
    );
    let kept = setup.ledger.order(&id(1, 3)).await.unwrap().unwrap();
    assert_eq!((kept.buyer.as_str(), kept.request.as_str()), ("bob", "r3"));
    assert_eq!((kept.units, kept.pay_by), (1, None));
    assert_eq!(kept.accepted_at, batch[2].accepted_at);
    assert_eq!(setup.ledger.commit(&[]).await.unwrap(), vec![]);
}

async fn an_entry_that_comes_again_is_known(setup: Setup) {
    setup.selling(10).await;
    let one = order(1, "bob", 2);
    // Twice in one batch, and in another one.
    let twice = [one.clone(), one.clone()];
    let known = Fate::Known(OrderState::Reserved);
    assert_eq!(
        setup.ledger.commit(&twice).await.unwrap(),
        [RESERVED, known.clone()]
    );
    assert_eq!(setup.ledger.commit(from_ref(&one)).await.unwrap(), [known]);
    setup.ledger.pay(&one.id).await.unwrap();
    let fates = setup.ledger.commit(&[one]).await.unwrap();
    assert_eq!(fates, [Fate::Known(OrderState::Paid)]);
    assert_eq!(setup.item().await.sold, 2);
    assert_eq!(setup.changes_after(0).await.len(), 2);
}

async fn an_order_with_other_content_is_refused(setup: Setup) {
    setup.selling(10).await;
    setup.ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
    for other in [
        order(1, "eve", 1),
        order(1, "bob", 2),
        order_as(id(1, 1), "bob", "other", 1),
    ] {
        let fates = setup.ledger.commit(&[other]).await.unwrap();
        assert!(matches!(&fates[..], [Fate::Refused(reason)] if reason.contains("sku.7.1.1")));
    }
    assert_eq!(setup.item().await.sold, 1);
}

async fn one_bad_entry_leaves_the_others_alone(setup: Setup) {
    setup.selling(10).await;
    let long = "x".repeat(10_000);
    let batch = [
        order(1, "bob", 1),
        entry(id(1, 2), Err("no json".into())),
        order(3, "", 1),
        order(4, "nul\0", 1),
        order(5, &long, 1),
        order(6, "bob", 0),
        order(7, "bob", u64::MAX),
        order_as(id(1, 8), "bob", "\n", 1),
        order_as("nowhere.1.1".parse().unwrap(), "bob", "r", 1),
        withdrawal(10, "nul\0", 1, None),
        withdrawal(11, "w", 0, None),
        again(12, id(1, 99), "bob", 1),
        order(13, "eve", 1),
    ];
    let fates = setup.ledger.commit(&batch).await.unwrap();
    assert_eq!((&fates[0], &fates[12]), (&RESERVED, &RESERVED));
    for fate in &fates[1..12] {
        assert!(matches!(fate, Fate::Refused(_)), "{fate:?}");
    }
    assert_eq!(fates[1], Fate::Refused("no json".into()));
    assert_eq!(setup.item().await.sold, 2);
}

async fn what_does_not_fit_is_rejected_and_not_given_back(setup: Setup) {
    setup.selling(3).await;
    let batch: Vec<Entry> = (1..=5).map(|n| order(n, "bob", 1)).collect();
    let fates = setup.ledger.commit(&batch).await.unwrap();
    assert_eq!(fates[..3], vec![RESERVED; 3]);
    assert_eq!(fates[3..], vec![REJECTED; 2]);
    assert_eq!(setup.item().await.sold, 3);
    assert_eq!(
        setup.changes_after(0).await,
        [
            What::Committed {
                orders: vec![id(1, 1), id(1, 2), id(1, 3)],
                state: OrderState::Reserved,
            },
            What::Committed {
                orders: vec![id(1, 4), id(1, 5)],
                state: OrderState::Rejected,
            },
        ]
    );
    let fates = setup.ledger.commit(&batch[3..4]).await.unwrap();
    assert_eq!(fates, [Fate::Known(OrderState::Rejected)]);
}

/// Two are free; orders for three and for one come, so the gate had at least two too many. One remains
/// that is nobody's.
async fn what_no_order_could_use_goes_back(setup: Setup) {
    setup.selling(2).await;
    let batch = [order(1, "bob", 3), order(2, "eve", 1)];
    let fates = setup.ledger.commit(&batch).await.unwrap();
    assert_eq!(fates, [REJECTED, RESERVED]);
    let changes = setup.changes_after(0).await;
    assert!(matches!(changes[2], What::Returned { units: 1, .. }));
    assert_eq!(changes.len(), 3);
}

async fn a_buyer_beyond_the_limit_is_rejected_and_the_units_go_back(setup: Setup) {
    let limit_per_buyer = Some(2);
    let terms = Terms {
        limit_per_buyer,
        ..Terms::default()
    };
    setup.selling_on(10, terms).await;
    setup.ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
    let batch = [order(2, "bob", 1), order(3, "bob", 1), order(4, "eve", 2)];
    let fates = setup.ledger.commit(&batch).await.unwrap();
    assert_eq!(fates, [RESERVED, REJECTED, RESERVED]);
    let released = What::Released {
        order: id(1, 3),
        state: OrderState::Rejected,
        buyer: "bob".into(),
        units: 1,
    };
    assert!(setup.changes_after(1).await.contains(&released));
    // What was cancelled does not count.
    setup.ledger.cancel(&id(1, 1)).await.unwrap();
    let fates = setup.ledger.commit(&[order(5, "bob", 1)]).await.unwrap();
    assert_eq!(fates, [RESERVED]);
    let buyers = setup.ledger.buyers(ITEM, None, 10).await.unwrap();
    assert_eq!(buyers, [("bob".into(), 2), ("eve".into(), 2)]);
}

async fn a_request_that_is_an_order_already_is_rejected(setup: Setup) {
    setup.selling(10).await;
    let first = order_as(id(1, 1), "bob", "r", 1);
    let forgotten = order_as(id(1, 2), "bob", "r", 1);
    let again = order_as(id(1, 3), "bob", "r", 1);
    let fates = setup.ledger.commit(&[first, forgotten]).await.unwrap();
    assert_eq!(fates, [RESERVED, REJECTED]);
    assert_eq!(setup.ledger.commit(&[again]).await.unwrap(), [REJECTED]);
    assert_eq!(setup.item().await.sold, 1);
    // Both ids are answered, and the request is the first.
    assert_eq!(setup.state(&id(1, 3)).await, Some(OrderState::Rejected));
    let of_request = setup.ledger.order_of(ITEM, "bob", "r").await.unwrap();
    assert_eq!(of_request.unwrap().id, id(1, 1));
    let changes = setup.changes_after(0).await;
    let released = |what: &&What| matches!(what, What::Released { units: 1, .. });
    assert_eq!(changes.iter().filter(released).count(), 2);
}

async fn a_rejected_request_may_become_an_order_later(setup: Setup) {
    setup.selling(1).await;
    let first = order_as(id(1, 1), "eve", "r", 1);
    let rejected = order_as(id(1, 2), "bob", "r", 1);
    let fates = setup.ledger.commit(&[first, rejected]).await.unwrap();
    assert_eq!(fates, [RESERVED, REJECTED]);
    setup.ledger.cancel(&id(1, 1)).await.unwrap();
    let later = order_as(id(1, 3), "bob", "r", 1);
    assert_eq!(setup.ledger.commit(&[later]).await.unwrap(), [RESERVED]);
    let of_request = setup.ledger.order_of(ITEM, "bob", "r").await.unwrap();
    assert_eq!(of_request.unwrap().id, id(1, 3));
}

/// Whichever of the two is cancelled, and whether they come at once or one after the other.
async fn a_wish_to_cancel_makes_no_second_order_of_a_request(setup: Setup) {
    setup.selling(10).await;
    let rounds = [(1, true), (2, true), (1, false), (2, false)];
    for (round, (cancelled, at_once)) in (1_u64..).zip(rounds) {
        let request = format!("r{round}");
        let twin = |number| id(1, 10 * round + number);
        let wished = setup.ledger.cancel(&twin(cancelled)).await.unwrap();
        assert_eq!(wished, Moved::Unknown);
        let twins = [1, 2].map(|number| order_as(twin(number), "bob", &request, 1));
        let mut fates = Vec::new();
        for batch in twins.chunks(if at_once { 2 } else { 1 }) {
            fates.extend(setup.ledger.commit(batch).await.unwrap());
        }
        let first = if cancelled == 1 { CANCELLED } else { RESERVED };
        assert_eq!(fates, [first, REJECTED], "{request}");
    }
    assert_eq!(setup.item().await.sold, 2);
}

async fn a_wish_to_cancel_meets_its_order(setup: Setup) {
    setup.selling(10).await;
    for _ in 0..2 {
        let wished = setup.ledger.cancel(&id(1, 1)).await.unwrap();
        assert_eq!(wished, Moved::Unknown);
    }
    let batch = [order(1, "bob", 3), order(2, "bob", 1)];
    let fates = setup.ledger.commit(&batch).await.unwrap();
    assert_eq!(fates, [CANCELLED, RESERVED]);
    assert_eq!(setup.item().await.sold, 1);
    let released = What::Released {
        order: id(1, 1),
        state: OrderState::Cancelled,
        buyer: "bob".into(),
        units: 3,
    };
    assert!(setup.changes_after(0).await.contains(&released));
    let fates = setup.ledger.commit(&batch[..1]).await.unwrap();
    assert_eq!(fates, [Fate::Known(OrderState::Cancelled)]);
}

async fn entries_of_an_older_epoch_are_lost(setup: Setup) {
    setup.selling(10).await;
    setup.ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
    setup.ledger.cancel(&id(1, 2)).await.unwrap();
    setup.ledger.next_epoch(ITEM, Fence::new(2)).await.unwrap();
    let late = [
        order(1, "bob", 1),
        order(2, "bob", 1),
        order(3, "eve", 1),
        withdrawal(4, "w", 1, None),
        order_as(id(2, 5), "eve", "r3", 1),
    ];
    let fates = setup.ledger.commit(&late).await.unwrap();
    let known = Fate::Known(OrderState::Reserved);
    assert_eq!(
        fates,
        [known, Fate::Stale, Fate::Stale, Fate::Stale, RESERVED]
    );
    assert_eq!(setup.state(&id(1, 2)).await, Some(OrderState::Lost));
    assert_eq!(setup.item().await.sold, 2);
    assert!(setup.changes_after(1).await.contains(&What::Committed {
        orders: vec![id(1, 2), id(1, 3)],
        state: OrderState::Lost,
    }));
    let fates = setup.ledger.commit(&late[1..2]).await.unwrap();
    assert_eq!(fates, [Fate::Known(OrderState::Lost)]);
    // It was queried before it arrived.
    setup.ledger.mark_lost(&id(1, 6)).await.unwrap();
    let fates = setup.ledger.commit(&[order(6, "bob", 1)]).await.unwrap();
    assert_eq!(fates, [Fate::Known(OrderState::Lost)]);
}

async fn entries_of_a_newer_epoch_are_refused(setup: Setup) {
    setup.selling(10).await;
    let made_up = order_as(id(9, 1), "bob", "r", 1);
    let fates = setup.ledger.commit(from_ref(&made_up)).await.unwrap();
    assert_eq!(fates, [Fate::Ahead]);
    setup.ledger.bury(&made_up, "why not").await.unwrap();
    assert_eq!(setup.state(&id(9, 1)).await, None);
}

async fn a_withdrawal_is_done_once(setup: Setup) {
    setup.selling(10).await;
    assert_eq!(setup.ledger.withdrawal(ITEM, "w").await.unwrap(), None);
    let done = withdrawal(1, "w", 4, Some(10));
    for _ in 0..2 {
        let fates = setup.ledger.commit(from_ref(&done)).await.unwrap();
        assert_eq!(fates, [Fate::Withdrawal(true)]);
    }
    assert_eq!(setup.item().await.total, 6);
    assert_eq!(
        setup.ledger.withdrawal(ITEM, "w").await.unwrap(),
        Some(true)
    );
    // The gate forgot it and set units aside again: those go back, once.
    let twice = withdrawal(2, "w", 4, None);
    for _ in 0..2 {
        let fates = setup.ledger.commit(from_ref(&twice)).await.unwrap();
        assert_eq!(fates, [Fate::Withdrawal(false)]);
    }
    assert_eq!(setup.item().await.total, 6);
    assert_eq!(
        setup.ledger.withdrawal(ITEM, "w").await.unwrap(),
        Some(true)
    );
    let reason = "broken".to_owned();
    assert_eq!(
        setup.changes_after(0).await,
        [
            What::Withdrawn {
                units: 4,
                reason: reason.clone()
            },
            What::Returned { units: 4, reason },
        ]
    );
}

async fn a_withdrawal_that_cannot_be_returns_its_units(setup: Setup) {
    setup.selling(10).await;
    setup.ledger.commit(&[order(1, "bob", 8)]).await.unwrap();
    let batch = [
        withdrawal(2, "too many", 3, None),
        withdrawal(3, "unexpected", 1, Some(9)),
        withdrawal(4, "fits", 2, Some(10)),
    ];
    let fates = setup.ledger.commit(&batch).await.unwrap();
    let (no, yes) = (Fate::Withdrawal(false), Fate::Withdrawal(true));
    assert_eq!(fates, [no.clone(), no, yes]);
    assert_eq!(setup.item().await.total, 8);
    let found = setup.ledger.withdrawal(ITEM, "too many").await.unwrap();
    assert_eq!(found, Some(false));
}

async fn a_late_payment_gets_units_again(setup: Setup) {
    setup.selling(2).await;
    setup.ledger.commit(&[order(1, "bob", 2)]).await.unwrap();
    for round in 0..2 {
        if round == 0 {
            setup.ledger.cancel(&id(1, 1)).await.unwrap();
        }
        let paid = again(2, id(1, 1), "bob", 2);
        let fates = setup.ledger.commit(&[paid]).await.unwrap();
        let state = OrderState::Paid;
        let expected = if round == 0 {
            Fate::Settled(state)
        } else {
            Fate::Known(state)
        };
        assert_eq!(fates, [expected]);
    }
    assert_eq!(setup.item().await.sold, 2);
    let order = id(1, 1);
    let state = OrderState::Paid;
    assert_eq!(setup.changes_after(2).await, [What::Moved { order, state }]);
}

async fn a_late_payment_without_units_is_to_be_refunded(setup: Setup) {
    setup.selling(2).await;
    setup.ledger.commit(&[order(1, "bob", 2)]).await.unwrap();
    setup.ledger.cancel(&id(1, 1)).await.unwrap();
    setup.ledger.commit(&[order(2, "eve", 2)]).await.unwrap();
    let paid = again(3, id(1, 1), "bob", 2);
    let fates = setup.ledger.commit(&[paid]).await.unwrap();
    assert_eq!(fates, [Fate::Settled(OrderState::PaidUnfulfilled)]);
    assert_eq!(setup.item().await.sold, 2);
}

async fn a_late_payment_beyond_the_limit_is_to_be_refunded(setup: Setup) {
    let terms = Terms {
        limit_per_buyer: Some(1),
        ..Terms::default()
    };
    setup.selling_on(5, terms).await;
    setup.ledger.commit(&[order(1, "bob", 1)]).await.unwrap();
    setup.ledger.cancel(&id(1, 1)).await.unwrap();
    setup.ledger.commit(&[order(2, "bob", 1)]).await.unwrap();
    let paid = again(3, id(1, 1), "bob", 1);
    let fates = setup.ledger.commit(&[paid]).await.unwrap();
    let state = OrderState::PaidUnfulfilled;
    assert_eq!(fates, [Fate::Settled(state)]);
    let (order, buyer) = (id(1, 1), "bob".to_owned());
    let released = What::Released {
        order,
        state,
        buyer,
        units: 1,
    };
    assert!(setup.changes_after(3).await.contains(&released));
    assert_eq!(setup.item().await.sold, 1);
}

async fn an_order_that_needs_no_units_again_returns_them(setup: Setup) {
    setup.selling(4).await;
    setup.ledger.commit(&[order(1, "bob", 2)]).await.unwrap();
    setup.ledger.pay(&id(1, 1)).await.unwrap();
    for _ in 0..2 {
        let needless = again(2, id(1, 1), "bob", 2);
        let fates = setup.ledger.commit(&[needless]).await.unwrap();
        assert_eq!(fates, [Fate::Known(OrderState::Paid)]);
    }
    let changes = setup.changes_after(2).await;
    let released = What::Released {
        order: id(1, 1),
        state: OrderState::Paid,
        buyer: "bob".into(),
        units: 2,
    };
    assert_eq!(changes, [released]);
    // Not what the order is in the ledger.
    for wrong in [again(3, id(1, 1), "eve", 2), again(3, id(1, 1), "bob", 1)] {
        let fates = setup.ledger.commit(&[wrong]).await.unwrap();
        assert!(matches!(&fates[..], [Fate::Refused(_)]));
    }
}

async fn the_dead_keep_their_units(setup: Setup) {
    setup.selling(3).await;
    let poison = order(1, "bob", 2);
    for _ in 0..2 {
        setup
            .ledger
            .bury(&poison, "again\0 and again")
            .await
            .unwrap();
    }
    assert_eq!(setup.state(&id(1, 1)).await, Some(OrderState::Dead));
    assert_eq!(setup.item().await.sold, 2);
    let unreadable = entry(id(1, 2), Err("no json".into()));
    setup.ledger.bury(&unreadable, "no json").await.unwrap();
    assert_eq!(setup.state(&id(1, 2)).await, None);
    // What the ledger took long ago is not dead.
    setup.ledger.commit(&[order(3, "eve", 1)]).await.unwrap();
    setup
        .ledger
        .bury(&order(3, "eve", 1), "late")
        .await
        .unwrap();
    assert_eq!(setup.state(&id(1, 3)).await, Some(OrderState::Reserved));
    let fates = setup.ledger.commit(&[poison]).await.unwrap();
    assert_eq!(fates, [Fate::Known(OrderState::Dead)]);
}

async fn several_items_in_one_batch(setup: Setup) {
    setup.selling(1).await;
    for name in ["a", "z"] {
        let new = NewItem::new(name, 1).unwrap();
        setup.ledger.create(&new).await.unwrap();
        setup.ledger.next_epoch(name, Fence::new(1)).await.unwrap();
    }
    let of = |item: &str| order_as(format!("{item}.1.1").parse().unwrap(), "bob", "r", 1);
    let batch = [of("z"), order(1, "bob", 1), of("a"), order(2, "bob", 1)];
    let fates = setup.ledger.commit(&batch).await.unwrap();
    assert_eq!(fates, [RESERVED, RESERVED, RESERVED, REJECTED]);
    for item in setup.ledger.items(&[]).await.unwrap() {
        assert_eq!(item.sold, 1, "{}", item.name);
    }
}

async fn an_unlimited_item_never_sells_out(setup: Setup) {
    let new = NewItem::unlimited(ITEM).unwrap();
    setup.ledger.create(&new).await.unwrap();
    let load = setup.ledger.next_epoch(ITEM, Fence::new(1)).await.unwrap();
    assert_eq!(load.left, None);
    let batch: Vec<Entry> = (1..=9).map(|n| order(n, "bob", 1_000_000)).collect();
    assert_eq!(
        setup.ledger.commit(&batch).await.unwrap(),
        vec![RESERVED; 9]
    );
    assert_eq!(setup.item().await.sold, 9_000_000);
    let fates = setup.ledger.commit(&[withdrawal(10, "w", 1, None)]).await;
    assert_eq!(fates.unwrap(), [Fate::Withdrawal(false)]);
    let what = Ok(Wanted::Again {
        order: id(1, 1),
        buyer: "bob".into(),
        units: 1_000_000,
    });
    setup.ledger.cancel(&id(1, 1)).await.unwrap();
    let fates = setup.ledger.commit(&[entry(id(1, 11), what)]).await;
    assert_eq!(fates.unwrap(), [Fate::Settled(OrderState::Paid)]);
}
