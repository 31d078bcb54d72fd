//! The queue between gate and ledger.

use std::time::{Duration, SystemTime};

use tenure_sale::gate::Wanted;
use tenure_sale::ledger::What;
use tenure_sale::{ErrorKind, ItemState, OrderId, Outcome, Terms};

use super::on_every_gate;
use super::stage::{Kind, Stage, ms};

on_every_gate! {
    entries_come_once_and_in_order;
    who_waits_is_woken;
    what_was_left_behind_is_claimed;
    an_acknowledged_entry_is_gone;
    the_dead_are_kept_apart_until_somebody_decides;
    an_order_is_found_wherever_it_is;
    several_consumers_share_the_work;
    an_item_that_nobody_loaded_has_an_empty_queue;
    units_in_the_queue_are_counted;
    a_finished_item_is_forgotten;
    entries_of_other_items_are_refused;
}

async fn entries_come_once_and_in_order(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let before = SystemTime::now() - ms(1000);
    for n in 0..3 {
        stage.order("ann", &format!("r{n}")).await;
    }
    let read = stage.read(2).await;
    assert_eq!(read.len(), 2);
    for (n, entry) in (0..).zip(&read) {
        let wanted = Wanted::Order {
            buyer: "ann".to_owned(),
            request: format!("r{n}"),
            units: 1,
        };
        assert_eq!(entry.what, Ok(wanted));
        assert_eq!((stage.nth(&entry.id), entry.deliveries), (n, 1));
        assert!(entry.accepted_at > before && entry.accepted_at < SystemTime::now() + ms(1000));
    }
    assert_eq!(stage.read(2).await.len(), 1);
    assert_eq!(stage.read(2).await.len(), 0);
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!(
        (standing.queued, standing.pending, standing.dead),
        (3, 3, 0)
    );
}

async fn who_waits_is_woken(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let (gate, item) = (stage.again().await, stage.item.clone());
    let patience = Duration::from_secs(20);
    let waiting = tokio::spawn(async move { gate.read(&item, "c1", 9, patience).await.unwrap() });
    tokio::time::sleep(ms(100)).await;
    stage.order("ann", "r1").await;
    let read = tokio::time::timeout(ms(5000), waiting).await.unwrap();
    assert_eq!(read.unwrap().len(), 1);
    let began = std::time::Instant::now();
    let read = stage.gate.read(&stage.item, "c1", 9, ms(150)).await;
    assert!(read.unwrap().is_empty());
    assert!(began.elapsed() >= ms(140), "{:?}", began.elapsed());
}

async fn what_was_left_behind_is_claimed(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    for n in 0..3 {
        stage.order("ann", &format!("r{n}")).await;
    }
    assert_eq!(stage.read(2).await.len(), 2);
    let claim = async |idle, count| {
        let claiming = stage.gate.claim(&stage.item, "c2", idle, count);
        claiming.await.unwrap()
    };
    assert!(claim(Duration::from_mins(1), 9).await.is_empty());
    let claimed = claim(Duration::ZERO, 1).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!((stage.nth(&claimed[0].id), claimed[0].deliveries), (0, 2));
    tokio::time::sleep(ms(50)).await;
    let claimed = claim(ms(20), 9).await;
    let seen: Vec<_> = claimed
        .iter()
        .map(|entry| (stage.nth(&entry.id), entry.deliveries))
        .collect();
    assert_eq!(seen, [(0, 3), (1, 2)], "the third was never handed out");
    assert_eq!(stage.nth(&stage.read(9).await[0].id), 2);
}

async fn an_acknowledged_entry_is_gone(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let order = stage.order("ann", "r1").await;
    let other = stage.order("ann", "r2").await;
    assert_eq!(stage.read(9).await.len(), 2);
    for _ in 0..2 {
        let entries = std::slice::from_ref(&order);
        stage.gate.acknowledge(&stage.item, entries).await.unwrap();
    }
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!((standing.queued, standing.pending), (1, 1));
    let claimed = stage.gate.claim(&stage.item, "c2", Duration::ZERO, 9).await;
    assert_eq!(claimed.unwrap()[0].id, other);
    assert_eq!(stage.left().await, Some(7), "its units stay set aside");
    assert_eq!(stage.ask("ann", "r1").await, Outcome::Replayed(order));
    stage.gate.acknowledge(&stage.item, &[]).await.unwrap();
}

async fn the_dead_are_kept_apart_until_somebody_decides(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let (first, second) = (
        stage.order("ann", "r1").await,
        stage.order("bob", "r1").await,
    );
    let read = stage.read(9).await;
    stage
        .gate
        .bury(&stage.item, &second, "the ledger says no")
        .await
        .unwrap();
    stage
        .gate
        .bury(&stage.item, &first, "neither")
        .await
        .unwrap();
    stage.gate.bury(&stage.item, &first, "twice").await.unwrap();
    let dead = stage.gate.dead(&stage.item, 9).await.unwrap();
    assert_eq!(dead[0], (read[1].clone(), "the ledger says no".to_owned()));
    assert_eq!(dead[1], (read[0].clone(), "neither".to_owned()));
    assert_eq!(dead.len(), 2);
    assert_eq!(stage.gate.dead(&stage.item, 1).await.unwrap().len(), 1);
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!(
        (standing.queued, standing.pending, standing.dead),
        (0, 0, 2)
    );
    assert_eq!(standing.left, Some(7), "their units stay set aside");
    assert!(stage.gate.unbury(&stage.item, &first).await.unwrap());
    assert!(!stage.gate.unbury(&stage.item, &first).await.unwrap());
    assert!(stage.gate.unbury(&stage.item, &second).await.unwrap());
    assert!(stage.gate.dead(&stage.item, 9).await.unwrap().is_empty());
}

async fn an_order_is_found_wherever_it_is(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let order = stage.order("ann", "r1").await;
    let find = async || stage.gate.find(&order).await.unwrap();
    assert_eq!(find().await.map(|entry| entry.deliveries), Some(0));
    let read = stage.read(9).await;
    assert_eq!(find().await.as_ref(), read.first());
    stage.gate.bury(&stage.item, &order, "why").await.unwrap();
    assert_eq!(find().await.as_ref(), read.first());
    assert!(stage.gate.unbury(&stage.item, &order).await.unwrap());
    assert_eq!(find().await, None);
    let nowhere = "nowhere.1.0".parse().unwrap();
    assert_eq!(stage.gate.find(&nowhere).await.unwrap(), None);
}

async fn several_consumers_share_the_work(kind: Kind) {
    let stage = Stage::of(kind, 300).await;
    let consuming = (0..3).map(|consumer| {
        let (gate, item) = (stage.gate.clone(), stage.item.clone());
        tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                let name = format!("c{consumer}");
                let read = gate.read(&item, &name, 7, ms(500)).await.unwrap();
                if read.is_empty() {
                    return seen;
                }
                let ids: Vec<_> = read.into_iter().map(|entry| entry.id).collect();
                gate.acknowledge(&item, &ids).await.unwrap();
                seen.extend(ids);
            }
        })
    });
    let consuming: Vec<_> = consuming.collect();
    for n in 0..300 {
        stage.order(&format!("buyer-{n}"), "r1").await;
    }
    let mut seen = Vec::new();
    for consumer in consuming {
        seen.extend(consumer.await.unwrap().iter().map(OrderId::number));
    }
    seen.sort_unstable();
    if stage.is_spread() {
        seen.dedup();
        assert_eq!(seen.len(), 300, "none twice");
    } else {
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
    }
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!((standing.queued, standing.pending), (0, 0));
}

async fn an_item_that_nobody_loaded_has_an_empty_queue(kind: Kind) {
    let stage = Stage::empty(kind).await;
    assert!(stage.read(9).await.is_empty());
    let claimed = stage.gate.claim(&stage.item, "c", Duration::ZERO, 9).await;
    assert!(claimed.unwrap().is_empty());
    assert!(stage.gate.dead(&stage.item, 9).await.unwrap().is_empty());
    assert_eq!(stage.gate.queued_units(&stage.item).await.unwrap(), 0);
    // A consumer may be there before the item.
    let (gate, item) = (stage.again().await, stage.item.clone());
    let waiting = tokio::spawn(async move { gate.read(&item, "c1", 9, ms(10_000)).await.unwrap() });
    tokio::time::sleep(ms(50)).await;
    stage
        .load(super::stage::load(1, Some(1), Terms::default()))
        .await;
    stage.order("ann", "r1").await;
    assert_eq!(waiting.await.unwrap().len(), 1);
}

async fn units_in_the_queue_are_counted(kind: Kind) {
    let terms = Terms {
        units_per_order: 3,
        ..Terms::default()
    };
    let stage = Stage::with(kind, 9000, terms).await;
    let asking = (0..1203).map(|n| {
        let (gate, id) = (stage.gate.clone(), format!("r{n}"));
        let request = stage.request("ann", &id).units(3).unwrap();
        tokio::spawn(async move { gate.ask(&request).await.unwrap() })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert!(asked.await.unwrap().outcome.order().is_some());
    }
    let units = stage.gate.queued_units(&stage.item).await.unwrap();
    assert_eq!(units, 3 * 1203);
    let read = stage.read(1203).await;
    let ids: Vec<_> = read.into_iter().map(|entry| entry.id).collect();
    stage.gate.acknowledge(&stage.item, &ids).await.unwrap();
    assert_eq!(stage.gate.queued_units(&stage.item).await.unwrap(), 0);
}

async fn a_finished_item_is_forgotten(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let forget = async || stage.gate.forget(&stage.item).await.unwrap();
    let order = stage.order("ann", "r1").await;
    assert!(!forget().await, "it is open");
    stage.tell(1, What::State(ItemState::Closed)).await;
    assert!(!forget().await, "an order waits");
    stage.gate.bury(&stage.item, &order, "why").await.unwrap();
    assert!(!forget().await, "an order is dead");
    assert!(stage.gate.unbury(&stage.item, &order).await.unwrap());
    assert!(forget().await);
    assert!(forget().await, "again");
    assert_eq!(stage.ask("ann", "r1").await, Outcome::NoItem);
    assert_eq!(stage.gate.standing(&stage.item).await.unwrap(), None);
}

async fn entries_of_other_items_are_refused(kind: Kind) {
    let stage = Stage::of(kind, 9).await;
    let other = "other.1.0".parse().unwrap();
    let entries = std::slice::from_ref(&other);
    let results = [
        stage.gate.acknowledge(&stage.item, entries).await,
        stage.gate.bury(&stage.item, &other, "why").await,
        stage.gate.unbury(&stage.item, &other).await.map(|_| ()),
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidOrder);
    }
    let error = stage.gate.standing("a{b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidItem);
}
