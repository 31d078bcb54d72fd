//! Loading an item: who may, and what it does.

use tenure::Fence;
use tenure_sale::gate::{Load, Remembered};
use tenure_sale::{ErrorKind, Outcome, Terms};

use super::on_every_gate;
use super::stage::{Kind, Stage, load};

on_every_gate! {
    nothing_is_sold_while_it_is_loaded;
    an_older_load_is_refused;
    two_loads_at_once_end_as_one;
    buyers_and_answers_are_remembered;
    a_load_that_was_overtaken_can_do_nothing;
    a_finished_load_is_not_done_twice;
    the_queue_outlives_a_load;
    numbers_start_again_with_every_epoch;
    limits_of_what_can_be_loaded;
}

async fn nothing_is_sold_while_it_is_loaded(kind: Kind) {
    let stage = Stage::of(kind, 5).await;
    stage.order("ann", "r1").await;
    assert!(begin(&stage, 2, 2).await);
    let answer = stage.answer("bob", "r1", 1).await;
    assert_eq!((answer.outcome, answer.left), (Outcome::StaleEpoch, None));
    assert_eq!(
        stage.ask("ann", "r1").await,
        Outcome::StaleEpoch,
        "also a replay"
    );
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!(
        (standing.state, standing.epoch, standing.queued),
        (None, 2, 1)
    );
    assert!(finish(&stage, 2, 2).await);
    assert_eq!(stage.order("bob", "r1").await.epoch(), 2);
}

async fn an_older_load_is_refused(kind: Kind) {
    let stage = Stage::empty(kind).await;
    assert!(begin(&stage, 5, 50).await);
    assert!(!begin(&stage, 4, 60).await, "an older epoch");
    assert!(!begin(&stage, 6, 49).await, "an older fence");
    assert!(begin(&stage, 5, 50).await, "the same, not finished");
    assert!(
        begin(&stage, 5, 51).await,
        "another holder, same epoch, not finished"
    );
    assert!(finish(&stage, 5, 51).await);
    assert!(!begin(&stage, 5, 51).await, "the same, finished");
    assert!(begin(&stage, 6, 51).await);
}

async fn two_loads_at_once_end_as_one(kind: Kind) {
    let stage = Stage::empty(kind).await;
    let gates = [stage.gate.clone(), stage.again().await];
    let loading = (1..=8).map(|n| {
        let (gate, item) = (gates[n % 2].clone(), stage.item.clone());
        let spread = stage.spread;
        tokio::spawn(async move {
            let number = n as u64;
            let load = Load {
                spread,
                ..load(number, Some(number), Terms::default())
            };
            let begun = gate
                .begin_load(&item, number, load.fence, spread)
                .await
                .unwrap();
            (
                number,
                begun && gate.finish_load(&item, &load).await.unwrap(),
            )
        })
    });
    let mut last = 0;
    for loaded in loading.collect::<Vec<_>>() {
        if let (number, true) = loaded.await.unwrap() {
            last = last.max(number);
        }
    }
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!((standing.epoch, standing.left), (8, Some(8)));
    assert_eq!(last, 8);
}

async fn buyers_and_answers_are_remembered(kind: Kind) {
    let stage = Stage::empty(kind).await;
    let terms = Terms {
        limit_per_buyer: Some(2),
        units_per_order: 2,
        ..Terms::default()
    };
    assert!(begin(&stage, 3, 3).await);
    let buyers: Vec<_> = (0..1200).map(|n| (format!("b{n}"), 2)).collect();
    let remembered = |n: u64| Remembered {
        buyer: format!("b{n}"),
        request: "old".to_owned(),
        units: 2,
        order: format!("{}.2.{n}", stage.item).parse().unwrap(),
    };
    let answers: Vec<_> = (0..1200).map(remembered).collect();
    let fence = Fence::new(3);
    let loading = stage
        .gate
        .load_buyers(&stage.item, 3, fence, &buyers, &answers);
    assert!(loading.await.unwrap());
    assert!(stage.finish(load(3, Some(9), terms)).await.unwrap());
    for n in [0, 499, 500, 1199] {
        let buyer = format!("b{n}");
        let replayed = stage.answer(&buyer, "old", 2).await.outcome;
        assert_eq!(replayed, Outcome::Replayed(remembered(n).order));
        assert_eq!(stage.ask(&buyer, "new").await, Outcome::LimitReached);
        let other = stage.answer(&buyer, "old", 1).await.outcome;
        assert_eq!(other, Outcome::Conflict(remembered(n).order));
    }
    let order = stage.order("b1200", "new").await;
    assert_eq!(stage.nth(&order), 0);
}

async fn a_load_that_was_overtaken_can_do_nothing(kind: Kind) {
    let stage = Stage::empty(kind).await;
    let add = async |epoch, fence| {
        let buyers = [("ann".to_owned(), 1)];
        let adding = stage
            .gate
            .load_buyers(&stage.item, epoch, Fence::new(fence), &buyers, &[]);
        adding.await.unwrap()
    };
    assert!(!add(1, 1).await, "nothing has begun");
    assert!(!finish(&stage, 1, 1).await);
    assert!(begin(&stage, 1, 1).await);
    assert!(begin(&stage, 2, 2).await);
    assert!(!add(1, 1).await);
    assert!(!finish(&stage, 1, 1).await);
    assert!(!finish(&stage, 2, 1).await, "another fence");
    assert!(add(2, 2).await);
    assert!(finish(&stage, 2, 2).await);
    assert!(!add(2, 2).await, "it is finished");
}

async fn a_finished_load_is_not_done_twice(kind: Kind) {
    let stage = Stage::of(kind, 5).await;
    stage.order("ann", "r1").await;
    // The answer to the first was lost, say.
    assert!(finish(&stage, 1, 1).await);
    assert_eq!(stage.left().await, Some(4));
}

async fn the_queue_outlives_a_load(kind: Kind) {
    let stage = Stage::of(kind, 5).await;
    let order = stage.order("ann", "r1").await;
    stage.load(load(2, Some(4), Terms::default())).await;
    let newer = stage.order("bob", "r1").await;
    assert!(order < newer);
    let read: Vec<_> = stage
        .read(9)
        .await
        .into_iter()
        .map(|entry| entry.id)
        .collect();
    assert_eq!(read, [order, newer]);
}

async fn numbers_start_again_with_every_epoch(kind: Kind) {
    let stage = Stage::of(kind, 5).await;
    stage.order("ann", "r1").await;
    let order = stage.order("ann", "r2").await;
    assert_eq!((order.epoch(), stage.nth(&order)), (1, 1));
    stage.load(load(9, Some(4), Terms::default())).await;
    let order = stage.order("bob", "r1").await;
    assert_eq!((order.epoch(), stage.nth(&order)), (9, 0));
    let order = stage.order("bob", "r2").await;
    assert_eq!(stage.nth(&order), 1);
}

async fn limits_of_what_can_be_loaded(kind: Kind) {
    let stage = Stage::empty(kind).await;
    for (epoch, fence) in [(0, 1), (u64::MAX, 1), (1, u64::MAX)] {
        let beginning = stage.begin(epoch, Fence::new(fence));
        assert_eq!(
            beginning.await.unwrap_err().kind(),
            ErrorKind::InvalidSetting
        );
    }
}

async fn begin(stage: &Stage, epoch: u64, fence: u64) -> bool {
    stage.begin(epoch, Fence::new(fence)).await.unwrap()
}

async fn finish(stage: &Stage, epoch: u64, fence: u64) -> bool {
    let load = Load {
        fence: Fence::new(fence),
        ..load(epoch, Some(5), Terms::default())
    };
    stage.finish(load).await.unwrap()
}
