//! What watchers receive.

use std::time::{Duration, SystemTime};

use tenure_sale::{Event, Events, ItemState, Mode, OrderState};
use tokio::time::timeout;

use super::stage::{SOON, Stage, buy, drained, on_sale, reserve};

on! { [memory_sqlite, redis_sqlite, spread_sqlite]:
    watchers_are_told_what_happens,
    who_resumes_misses_nothing,
    a_slow_watcher_misses_nothing,
    who_resumes_too_late_is_told_so,
}

/// The next event that has a number.
async fn next(events: &mut Events) -> Event {
    let numbered = async {
        loop {
            let event = events.next().await;
            if event.number().is_some() {
                return event;
            }
        }
    };
    timeout(SOON, numbered).await.unwrap()
}

async fn watchers_are_told_what_happens(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 5).await;
    let mut events = sale.events("i", None).await.unwrap();
    let mut other = sale.events("i", None).await.unwrap();
    let order = reserve(&sale, "anna").await;
    for events in [&mut events, &mut other] {
        let Event::Orders { orders, state, .. } = next(events).await else {
            panic!("an order was committed");
        };
        assert_eq!(
            (&orders[..], state),
            (&[order.clone()][..], OrderState::Reserved)
        );
    }
    sale.pay(&order).await.unwrap();
    let event = next(&mut events).await;
    assert!(
        matches!(
            &event,
            Event::Orders {
                state: OrderState::Paid,
                ..
            }
        ),
        "{event:?}"
    );
    sale.adjust("i", 2, "delivery", "d").await.unwrap();
    let event = next(&mut events).await;
    assert!(
        matches!(&event, Event::Stock { delta: 2, reason, .. } if reason == "delivery"),
        "{event:?}"
    );
    sale.close("i").await.unwrap();
    let event = next(&mut events).await;
    assert!(
        matches!(
            &event,
            Event::State {
                state: ItemState::Closed,
                ..
            }
        ),
        "{event:?}"
    );
    let told = async { while other.next().await != (Event::Left { units: Some(6) }) {} };
    timeout(SOON, told).await.unwrap();
}

async fn who_resumes_misses_nothing(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 50).await;
    let mut events = sale.events("i", None).await.unwrap();
    reserve(&sale, "anna").await;
    let number = next(&mut events).await.number();
    drop(events);
    let mut expected = Vec::new();
    for buyer in 0..20 {
        expected.push(reserve(&sale, &buyer.to_string()).await);
    }
    let mut events = sale.events("i", number).await.unwrap();
    let (mut seen, mut last) = (Vec::new(), number.unwrap());
    while seen.len() < expected.len() {
        let event = next(&mut events).await;
        assert!(event.number().unwrap() > last);
        last = event.number().unwrap();
        if let Event::Orders { orders, .. } = event {
            seen.extend(orders);
        }
    }
    assert_eq!(seen, expected);
}

async fn who_resumes_too_late_is_told_so(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 5).await;
    let order = reserve(&sale, "anna").await;
    drained(&sale).await;
    let change = sale
        .reconcile("i", Mode::DryRun)
        .await
        .unwrap()
        .ledger_change;
    let later = SystemTime::now() + Duration::from_hours(1);
    let forgotten = sale.ledger().forget_changes("i", change, later).await;
    assert!(forgotten.unwrap() > 0);
    sale.pay(&order).await.unwrap();
    let mut events = sale.events("i", Some(0)).await.unwrap();
    assert_eq!(next(&mut events).await, Event::Missed { number: change });
    assert_eq!(next(&mut events).await.number(), Some(change + 1));
}

async fn a_slow_watcher_misses_nothing(stage: Stage) {
    let (sale, _consumer) = stage.open_consumed().await;
    on_sale(&sale, 1000).await;
    let mut slow = sale.events("i", None).await.unwrap();
    // It has caught up, and then more happens than is kept for it.
    reserve(&sale, "first").await;
    next(&mut slow).await;
    let mut expected = 0;
    for buyer in 0..150 {
        let order = buy(&sale, &buyer.to_string()).await;
        sale.wait(&order, SOON).await.unwrap();
        sale.cancel(&order).await.unwrap();
        expected += 2;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut seen = 0;
    while seen < expected {
        match next(&mut slow).await {
            Event::Orders { orders, .. } => seen += orders.len(),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(seen, expected);
}
