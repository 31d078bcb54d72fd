//! Many at once: nothing twice, nothing lost, no number left out.

use std::sync::Arc;
use std::time::Duration;

use tenure_sale::gate::Entry;
use tenure_sale::ledger::{Fate, Ledger, Moved, What};
use tenure_sale::{NewItem, OrderState, Terms};
use tokio::task::JoinSet;

use super::books::assert_balanced;
use super::setup::{ITEM, Setup, id, on_every_ledger, order, order_as};

on_every_ledger!(
    two_committers_of_the_same_entries_write_them_once,
    a_commit_and_a_cancel_at_once_agree,
    pay_cancel_and_expire_at_once_have_one_winner,
    changes_are_numbered_without_gaps_while_many_write,
    batches_of_several_items_do_not_stand_in_each_others_way,
    a_caller_that_goes_away_leaves_nothing_half_done,
);

async fn two_committers_of_the_same_entries_write_them_once(setup: Setup) {
    setup.selling(1000).await;
    for round in 0..10 {
        let batch: Vec<Entry> = (1..=20).map(|n| order(round * 20 + n, "bob", 1)).collect();
        let batch = Arc::new(batch);
        let commit = |ledger: Ledger, batch: Arc<Vec<Entry>>| {
            tokio::spawn(async move { ledger.commit(&batch).await.unwrap() })
        };
        let one = commit(setup.ledger.clone(), Arc::clone(&batch));
        let two = commit(setup.ledger.clone(), batch);
        let fates = one.await.unwrap().into_iter().zip(two.await.unwrap());
        let (settled, known) = (
            Fate::Settled(OrderState::Reserved),
            Fate::Known(OrderState::Reserved),
        );
        for pair in fates {
            let once = [
                (settled.clone(), known.clone()),
                (known.clone(), settled.clone()),
            ];
            assert!(once.contains(&pair), "{pair:?}");
        }
    }
    assert_eq!(setup.item().await.sold, 200);
    assert_balanced(&setup).await;
}

async fn a_commit_and_a_cancel_at_once_agree(setup: Setup) {
    setup.selling(100).await;
    for number in 1..=30 {
        let (ledger, entry) = (setup.ledger.clone(), order(number, "bob", 1));
        let committing = tokio::spawn(async move { ledger.commit(&[entry]).await.unwrap() });
        let cancelled = setup.ledger.cancel(&id(1, number)).await.unwrap();
        let fate = committing.await.unwrap().remove(0);
        match cancelled {
            Moved::Unknown => assert_eq!(fate, Fate::Settled(OrderState::Cancelled)),
            Moved::Done(_) => assert_eq!(fate, Fate::Settled(OrderState::Reserved)),
            other => panic!("{other:?}"),
        }
        let state = setup.state(&id(1, number)).await;
        assert_eq!(state, Some(OrderState::Cancelled));
    }
    assert_eq!(setup.item().await.sold, 0);
    assert_balanced(&setup).await;
}

async fn pay_cancel_and_expire_at_once_have_one_winner(setup: Setup) {
    let terms = Terms {
        pay_within: Some(Duration::from_millis(1)),
        ..Terms::default()
    };
    setup.selling_on(100, terms).await;
    let mut won = [0; 3];
    for number in 1..=30 {
        setup
            .ledger
            .commit(&[order(number, "bob", 1)])
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
        let order = id(1, number);
        let (one, two, three) = tokio::join!(
            setup.ledger.pay(&order),
            setup.ledger.cancel(&order),
            setup.ledger.expire(10),
        );
        let winners = [
            matches!(one.unwrap(), Moved::Done(_)),
            matches!(two.unwrap(), Moved::Done(_)),
            three.unwrap().contains(&order),
        ];
        assert_eq!(winners.iter().filter(|won| **won).count(), 1, "{winners:?}");
        for (count, winner) in won.iter_mut().zip(winners) {
            *count += u64::from(winner);
        }
    }
    assert_eq!(setup.item().await.sold, won[0]);
    assert_balanced(&setup).await;
}

async fn changes_are_numbered_without_gaps_while_many_write(setup: Setup) {
    setup.selling(100_000).await;
    let mut writers = JoinSet::new();
    for writer in 0..8_u64 {
        let ledger = setup.ledger.clone();
        writers.spawn(async move {
            for round in 0..8 {
                let first = 1 + writer * 1000 + round * 10;
                let batch: Vec<Entry> = (first..first + 3).map(|n| order(n, "bob", 1)).collect();
                ledger.commit(&batch).await.unwrap();
                ledger.pay(&id(1, first)).await.unwrap();
                ledger.cancel(&id(1, first + 1)).await.unwrap();
            }
        });
    }
    // A concurrent reader never sees a number before those below it.
    let mut seen = 0;
    while !writers.is_empty() {
        let changes = setup.ledger.changes(ITEM, seen, 1000).await.unwrap();
        for change in changes {
            assert_eq!(change.number, seen + 1);
            seen += 1;
        }
        if let Ok(Some(ended)) =
            tokio::time::timeout(Duration::from_millis(5), writers.join_next()).await
        {
            ended.unwrap();
        }
    }
    assert_eq!(setup.changes_after(0).await.len(), 8 * 8 * 3);
    assert_eq!(setup.item().await.sold, 8 * 8 * 2);
    assert_balanced(&setup).await;
}

async fn batches_of_several_items_do_not_stand_in_each_others_way(setup: Setup) {
    let names = ["a", "b", "c"];
    for name in names {
        let new = NewItem::new(name, 1000).unwrap();
        setup.ledger.create(&new).await.unwrap();
        let fence = tenure::Fence::new(1);
        setup.ledger.next_epoch(name, fence).await.unwrap();
    }
    let mut writers = JoinSet::new();
    for writer in 0..6_usize {
        let ledger = setup.ledger.clone();
        writers.spawn(async move {
            for round in 0..8_usize {
                // Each begins with another item.
                let batch: Vec<Entry> = (0..3)
                    .map(|at| {
                        let item = names[(at + writer) % 3];
                        let number = 1 + writer * 100 + round;
                        let id = format!("{item}.1.{number}").parse().unwrap();
                        order_as(id, "bob", &format!("r{number}"), 1)
                    })
                    .collect();
                ledger.commit(&batch).await.unwrap();
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    for item in setup.ledger.items(&[]).await.unwrap() {
        assert_eq!(item.sold, 48, "{}", item.name);
    }
}

async fn a_caller_that_goes_away_leaves_nothing_half_done(setup: Setup) {
    setup.selling(100_000).await;
    for round in 0..60_u64 {
        let first = 1 + round * 100;
        let batch: Vec<Entry> = (first..first + 50).map(|n| order(n, "bob", 1)).collect();
        let patience = Duration::from_micros(round * 60);
        let _ = tokio::time::timeout(patience, setup.ledger.commit(&batch)).await;
        // The next one is not in the way of what is left, and finds all or nothing.
        let fates = setup.ledger.commit(&batch).await.unwrap();
        assert!(
            fates.windows(2).all(|pair| pair[0] == pair[1]),
            "half of it"
        );
    }
    assert_eq!(setup.item().await.sold, 3000);
    let committed =
        |what: &What| matches!(what, What::Committed { orders, .. } if orders.len() == 50);
    assert!(setup.changes_after(0).await.iter().all(committed));
    assert_balanced(&setup).await;
}
