//! Units that lie on several shelves: none is lost or doubled on its way, and *sold out* is true.

use std::collections::BTreeSet;

use tenure_sale::gate::{Applied, Standing, Taken, Wanted};
use tenure_sale::ledger::What;
use tenure_sale::{ItemState, Outcome, Terms};

use super::stage::{Kind, SPREAD, Stage, change, load, ms};

/// Those on which an item really lies on several shelves.
const KINDS: [Kind; 2] = [Kind::RedisSpread, Kind::ClusterSpread];

/// Several processes, each with many buyers at once: who was told *sold out* was told the truth.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_gets_every_unit_and_is_told_the_truth() {
    for kind in KINDS {
        let stage = Stage::of(kind, 301).await;
        let gates = [stage.gate.clone(), stage.again().await, stage.again().await];
        // Three buyers have three homes at most: the units of the fourth shelf must be brought there.
        let buying = (0..900).map(|n| {
            let gate = gates[n % 3].clone();
            let request = stage.request(&format!("buyer-{}", n % 3), &format!("r{n}"));
            tokio::spawn(async move {
                loop {
                    match gate.ask(&request).await.unwrap().outcome {
                        // Units go to and fro: ask again.
                        Outcome::Busy => {}
                        outcome => return outcome,
                    }
                }
            })
        });
        let (mut orders, mut refused) = (BTreeSet::new(), 0);
        for outcome in buying.collect::<Vec<_>>() {
            match outcome.await.unwrap() {
                Outcome::Accepted(order) => assert!(orders.insert(order)),
                Outcome::SoldOut => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        // No buyer gets *sold out* before the last unit is gone.
        assert_eq!((orders.len(), refused), (301, 599), "{kind:?}");
        assert_eq!(at_rest(&stage).await.left, Some(0));
        assert_eq!(stage.read(900).await.len(), 301);
    }
}

/// The last unit may lie on any shelf, and the next buyer gets it.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_units_are_sold_to_whoever_comes() {
    for kind in KINDS {
        let stage = Stage::of(kind, 7).await;
        // All by one buyer, so all but two must be brought to one shelf.
        for n in 0..7 {
            stage.order("ann", &format!("r{n}")).await;
        }
        let answer = stage.answer("ann", "r7", 1).await;
        assert_eq!((answer.outcome, answer.left), (Outcome::SoldOut, Some(0)));
        assert_eq!(at_rest(&stage).await.left, Some(0));
        // One that comes back is for everybody.
        stage.tell(1, added(1)).await;
        stage.order("zoe", "r1").await;
        assert_eq!(stage.ask("ann", "r8").await, Outcome::SoldOut);
    }
}

/// Remnants on several shelves make one order.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_of_many_units_is_gathered_from_all_shelves() {
    for kind in KINDS {
        let terms = Terms {
            units_per_order: 9,
            ..Terms::default()
        };
        let stage = Stage::with(kind, 9, terms).await;
        let answer = stage.answer("ann", "r0", 9).await;
        assert!(answer.outcome.order().is_some(), "{answer:?}");
        assert_eq!(at_rest(&stage).await.left, Some(0));
        stage.tell(1, added(6)).await;
        let answer = stage.answer("bob", "r0", 7).await;
        assert_eq!((answer.outcome, answer.left), (Outcome::SoldOut, Some(6)));
        let wanted = |units| Wanted::Withdrawal {
            reference: format!("w{units}"),
            reason: "damaged".to_owned(),
            units,
            expected: None,
        };
        let taken = stage.gate.take(&stage.item, &wanted(7)).await.unwrap();
        assert_eq!(taken, Taken::SoldOut { left: 6 });
        let taken = stage.gate.take(&stage.item, &wanted(6)).await.unwrap();
        assert!(matches!(taken, Taken::Queued(_)));
        assert_eq!(at_rest(&stage).await.left, Some(0));
    }
}

/// Two who want nearly all of the rest: one gets it, the other learns that it is gone.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_want_the_rest_do_not_take_it_from_each_other_for_ever() {
    for round in 0..10 {
        let terms = Terms {
            units_per_order: 5,
            ..Terms::default()
        };
        let stage = Stage::with(Kind::RedisSpread, 6, terms).await;
        let gates = [stage.gate.clone(), stage.again().await];
        let buying = (0..8).map(|buyer| {
            let gate = gates[buyer % 2].clone();
            let request = stage.request(&format!("{round}-{buyer}"), "r");
            let request = request.units(5).unwrap();
            tokio::spawn(async move { gate.ask(&request).await.unwrap() })
        });
        let mut accepted = 0;
        for answer in buying.collect::<Vec<_>>() {
            let answer = answer.await.unwrap();
            match answer.outcome {
                Outcome::Accepted(_) => accepted += 1,
                outcome => {
                    assert_eq!(outcome, Outcome::SoldOut);
                    // Of the moment before the second look, in which others may have bought: never
                    // too few, and too few for this buyer.
                    let left = answer.left.unwrap();
                    assert!((1..5).contains(&left), "{left}");
                }
            }
        }
        assert_eq!(accepted, 1);
    }
}

/// A process that died between two steps of a move left a note: any other process finishes it, once.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_was_interrupted_is_finished_once() {
    for kind in KINDS {
        for (note, received) in [("1:0:3", false), ("1:0:3", true)] {
            let stage = Stage::of(kind, 0).await;
            stage.tell(1, added(3)).await;
            let giver = stage.shelf(1);
            // As if all had been gathered on shelf 1, given from there, and perhaps received.
            for nth in 0..SPREAD {
                let (left, came) = match nth {
                    0 if received => (3, 3),
                    1 => (0, 3),
                    _ => (0, 0),
                };
                let gone = if nth == 1 { 3 } else { 0 };
                let (left, came) = (format!("{left}"), format!("{came}"));
                let key = stage.shelf(nth);
                let gone = format!("{gone}");
                stage.redis(&["HSET", &key, "left", &left, "came", &came, "gone", &gone]);
            }
            stage.redis(&["HSET", &giver, "gave", "1", "out", note]);
            if received {
                let home = stage.shelf(0);
                stage.redis(&["HSET", &home, "from:1", "1"]);
            }
            let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
            assert_eq!(standing.moving, 3);
            // A crowd finds it, and at the same time an operator.
            let others = [stage.again().await, stage.again().await];
            let finishing = others.map(|gate| {
                let item = stage.item.clone();
                tokio::spawn(async move { gate.finish_moves(&item).await.unwrap() })
            });
            let mut sold = 0;
            for n in 0..5 {
                let outcome = stage.ask(&format!("buyer-{n}"), "r").await;
                sold += u32::from(outcome.order().is_some());
            }
            for finished in finishing {
                finished.await.unwrap();
            }
            assert_eq!(sold, 3, "received: {received}");
            assert_eq!(at_rest(&stage).await.left, Some(0));
        }
    }
}

/// The first look saw one shelf before units came there, and the other after they had left: only the
/// second look can know better.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_that_arrive_between_looks_are_seen() {
    let mut stage = Stage::empty(Kind::ClusterSpread).await;
    stage.spread = 3;
    stage.load(load(1, Some(0), Terms::default())).await;
    // Connected, and all shelves known.
    assert_eq!(stage.ask("ann", "r1").await, Outcome::SoldOut);
    let home = stage.shelf(2);
    let (mut giver, mut receiver) = (stage.client_of(&stage.shelf(1)), stage.client_of(&home));
    // The giver answers nothing for a while, and has nothing left when it does.
    giver.command(&["CLIENT", "PAUSE", "1500", "ALL"]);
    let asking = {
        let (gate, request) = (stage.gate.clone(), stage.request("ann", "r2"));
        tokio::spawn(async move { gate.ask(&request).await.unwrap() })
    };
    tokio::time::sleep(ms(500)).await;
    let arrived = ["left", "1", "came", "1", "from:1", "1"];
    receiver.command(&[&["HSET", &home], &arrived[..]].concat());
    let answer = asking.await.unwrap();
    assert!(answer.outcome.order().is_some(), "{answer:?}");
}

/// A relay told some shelves of a change, and died before it told the first.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_died_half_way_is_finished_once() {
    let stage = Stage::of(Kind::RedisSpread, 0).await;
    let changes = [change(1, added(8)), change(2, added(4))];
    let shelf = stage.shelf(3);
    stage.redis(&["HSET", &shelf, "change", "1", "left", "2", "came", "2"]);
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!(standing.change, 0, "it is what all have reached");
    let applying = stage.gate.apply(&stage.item, 1, 0, &changes);
    assert_eq!(applying.await.unwrap(), Applied::Done);
    let standing = at_rest(&stage).await;
    assert_eq!((standing.change, standing.left), (2, Some(12)));
    for shelf in &standing.shelves {
        assert_eq!((shelf.change, shelf.left), (2, Some(3)));
    }
}

/// A shelf was restored from an older copy: the missed changes are unknown, so it is loaded again.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shelf_that_is_behind_the_first_is_stale() {
    let stage = Stage::of(Kind::RedisSpread, 0).await;
    stage.tell(1, added(8)).await;
    stage.redis(&["HSET", &stage.shelf(2), "change", "0"]);
    let changes = [change(2, added(4))];
    let applying = stage.gate.apply(&stage.item, 1, 1, &changes);
    assert_eq!(applying.await.unwrap(), Applied::Stale);
}

/// Orders are committed and paid for long after the last unit is sold: that is no reason for another search.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_bring_no_units_do_not_hide_that_it_is_sold_out() {
    let stage = Stage::of(Kind::RedisSpread, 0).await;
    let (gate, item) = (stage.again().await, stage.item.clone());
    let telling = tokio::spawn(async move {
        for number in 1.. {
            let changes = [change(number, What::State(ItemState::Open))];
            let applying = gate.apply(&item, 1, number - 1, &changes);
            assert_eq!(applying.await.unwrap(), Applied::Done);
        }
    });
    for n in 0..200 {
        let outcome = stage.ask(&format!("buyer-{n}"), "r").await;
        assert_eq!(outcome, Outcome::SoldOut, "buyer-{n}");
    }
    assert!(!telling.is_finished());
    telling.abort();
}

/// What is still on its way when the item is loaded anew belongs to an epoch that is over.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_ends_every_move() {
    let stage = Stage::of(Kind::RedisSpread, 40).await;
    let giver = stage.shelf(1);
    stage.redis(&["HSET", &giver, "gave", "1", "out", "1:0:5", "left", "5"]);
    stage.load(load(2, Some(40), Terms::default())).await;
    stage.gate.finish_moves(&stage.item).await.unwrap();
    assert_eq!(at_rest(&stage).await.left, Some(40));
}

/// A shelf that lost what it knew makes the whole item stale: nothing may be brought from elsewhere.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shelf_that_forgot_makes_the_item_stale() {
    let stage = Stage::of(Kind::RedisSpread, 4).await;
    // Also if it says that it has nothing left: it may not know better.
    let shelf = stage.shelf(2);
    stage.redis(&["HSET", &shelf, "run", "another server", "left", "0"]);
    let mut outcomes = BTreeSet::new();
    for n in 0..20 {
        let outcome = stage.ask(&format!("buyer-{n}"), "r").await;
        outcomes.insert(format!("{outcome:?}").chars().take(8).collect::<String>());
    }
    assert!(!outcomes.contains("SoldOut"), "{outcomes:?}");
    assert!(outcomes.contains("StaleEpo"), "{outcomes:?}");
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert!(!standing.current);
}

/// A process that does not know that an item is spread learns it, whatever it asks first.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_learn_that_an_item_is_spread() {
    let stage = Stage::of(Kind::RedisSpread, 40).await;
    let order = stage.order("ann", "r1").await;
    let request = stage.request("ann", "r1");
    let replayed = stage.again().await.ask(&request).await.unwrap().outcome;
    assert_eq!(replayed, Outcome::Replayed(order.clone()));
    assert!(stage.again().await.find(&order).await.unwrap().is_some());
    let gate = stage.again().await;
    let standing = gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!((standing.left, standing.shelves.len()), (Some(39), 4));
    let gate = stage.again().await;
    gate.acknowledge(&stage.item, &[order]).await.unwrap();
    assert_eq!(stage.read(9).await.len(), 0);
}

/// A consumer that waits for an item before it is loaded does not know its spread yet, and the first
/// shelf has the keys of an item that is not spread. The orders it reads must be those that were
/// accepted.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_came_before_the_item_reads_the_orders_that_were_accepted() {
    for kind in KINDS {
        let stage = Stage::empty(kind).await;
        let (gate, item) = (stage.again().await, stage.item.clone());
        let patience = ms(10_000);
        let waiting = tokio::spawn(async move { gate.read(&item, "c1", 99, patience).await });
        tokio::time::sleep(ms(20)).await;
        stage.load(load(1, Some(40), Terms::default())).await;
        let mut orders = BTreeSet::new();
        for n in 0..20 {
            orders.insert(stage.order(&format!("buyer-{n}"), "r").await);
        }
        let mut read = waiting.await.unwrap().unwrap();
        read.extend(stage.read(99).await);
        let read: BTreeSet<_> = read.into_iter().map(|entry| entry.id).collect();
        assert_eq!(read, orders, "{kind:?}");
    }
}

/// With as many shelves as nodes, each node has one.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shelves_of_an_item_lie_on_different_nodes() {
    let mut stage = Stage::empty(Kind::ClusterSpread).await;
    stage.spread = 3;
    for n in 0..8 {
        stage.item = format!("apart-{n}");
        stage.load(load(1, Some(30), Terms::default())).await;
        let nodes: BTreeSet<_> = (0..3).map(|nth| stage.port_of(&stage.shelf(nth))).collect();
        assert_eq!(nodes.len(), 3, "{}", stage.item);
    }
}

/// Another program wrote to one shelf: the standing says to which.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shelf_that_somebody_wrote_to_is_named() {
    let stage = Stage::of(Kind::RedisSpread, 40).await;
    stage.order("ann", "r1").await;
    at_rest(&stage).await;
    stage.redis(&["HINCRBY", &stage.shelf(2), "left", "-3"]);
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    let drift: Vec<i128> = standing.shelves.iter().map(|shelf| shelf.drift).collect();
    assert_eq!(drift, [0, 0, 3, 0]);
}

fn added(units: u64) -> What {
    let reason = "found behind a shelf".to_owned();
    What::Added { units, reason }
}

/// The standing, of which all books agree and nothing moves.
async fn at_rest(stage: &Stage) -> Standing {
    let standing = stage.gate.standing(&stage.item).await.unwrap().unwrap();
    assert_eq!(standing.moving, 0, "{standing:?}");
    for shelf in &standing.shelves {
        assert_eq!(shelf.drift, 0, "{standing:?}");
    }
    standing
}
