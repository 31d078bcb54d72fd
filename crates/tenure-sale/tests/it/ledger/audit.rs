//! Whether the books agree with themselves, and which entries they lack.

use tenure_sale::ledger::Audit;
use tenure_sale::{OrderId, OrderState};

use super::setup::{ITEM, Setup, again, id, on_every_ledger, order, withdrawal};

on_every_ledger!(
    the_books_of_an_undisturbed_sale_are_even,
    entries_that_did_not_arrive_are_missing,
    only_the_current_epoch_can_miss_something,
    orders_of_an_item_come_newest_first,
);

async fn audit(setup: &Setup) -> Audit {
    setup.ledger.audit(ITEM).await.unwrap().unwrap()
}

async fn the_books_of_an_undisturbed_sale_are_even(setup: Setup) {
    assert_eq!(setup.ledger.audit("unknown").await.unwrap(), None);
    setup.selling(10).await;
    assert!(audit(&setup).await.is_even());
    let batch = [order(0, "anna", 2), order(1, "ben", 1), order(2, "cleo", 9)];
    setup.ledger.commit(&batch).await.unwrap();
    setup.ledger.cancel(&id(1, 1)).await.unwrap();
    // Paid for late, it takes its units a second time.
    let late = again(3, id(1, 1), "ben", 1);
    setup.ledger.commit(&[late]).await.unwrap();
    let audit = audit(&setup).await;
    assert!(audit.is_even(), "{audit:?}");
    assert_eq!((audit.sold, audit.by_journal, audit.by_orders), (3, 3, 3));
    assert_eq!(audit.missing, []);
}

async fn entries_that_did_not_arrive_are_missing(setup: Setup) {
    setup.selling(10).await;
    // Withdrawals stand in the same queue.
    let batch = [
        order(2, "anna", 1),
        withdrawal(4, "w", 1, None),
        order(7, "ben", 1),
    ];
    setup.ledger.commit(&batch).await.unwrap();
    let missing: Vec<OrderId> = [0, 1, 3, 5, 6].map(|number| id(1, number)).into();
    let found = audit(&setup).await;
    assert_eq!(found.missing, missing);
    assert!(found.is_even());
    let rest: Vec<_> = [0, 1, 3, 5, 6].map(|n| order(n, "cleo", 1)).into();
    setup.ledger.commit(&rest).await.unwrap();
    assert_eq!(audit(&setup).await.missing, []);
}

async fn only_the_current_epoch_can_miss_something(setup: Setup) {
    setup.selling(10).await;
    setup.ledger.commit(&[order(5, "anna", 1)]).await.unwrap();
    assert_eq!(audit(&setup).await.missing.len(), 5);
    let fence = tenure::Fence::new(2);
    setup.ledger.next_epoch(ITEM, fence).await.unwrap();
    assert_eq!(audit(&setup).await.missing, []);
}

async fn orders_of_an_item_come_newest_first(setup: Setup) {
    setup.selling(10).await;
    let batch: Vec<_> = (0..4).map(|n| order(n, "anna", 1)).collect();
    setup.ledger.commit(&batch).await.unwrap();
    setup.ledger.pay(&id(1, 1)).await.unwrap();
    let ids = async |state, count| -> Vec<u64> {
        let orders = setup.ledger.orders_for(ITEM, state, count).await.unwrap();
        orders.iter().map(|order| order.id.number()).collect()
    };
    assert_eq!(ids(None, 3).await, [3, 2, 1]);
    assert_eq!(ids(Some(OrderState::Paid), 9).await, [1]);
    assert_eq!(ids(Some(OrderState::Lost), 9).await, [0_u64; 0]);
    assert_eq!(
        setup.ledger.orders_for("unknown", None, 9).await.unwrap(),
        []
    );
}
