//! Negative controls: small shops on a real Redis, each with one bug seen in real shops, under the same
//! load, recorder and checker as the engine. A checker that never finds anything proves nothing.

mod ledger;
mod shop;

use std::thread;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_testkit::sale::{
    Account, Allowed, Answer, Breach, Demand, Invariant, Kind, Profile, Recorder, Wish, violations,
};
use tenure_testkit::{RespClient, Seed};

use shop::{Bug, ITEM, Shop};

use Invariant::{
    ConfirmedOnce, Conserved, Monotone, NoneForgotten, NotOversold, Quiet, ReleasedOnce,
    SameAnswer, SoldOutTrue, WithinLimit,
};

const CLIENTS: u64 = 4;
const WISHES: usize = 250;
const UNITS: u64 = 160;
const LIMIT: u64 = 3;

#[test]
fn a_shop_without_bugs_breaks_nothing() {
    assert_eq!(run(None), []);
}

#[test]
fn read_subtract_and_write_back() {
    breaks(Bug::GetSet, &[NotOversold]);
}

#[test]
fn a_crash_between_decrement_and_publication() {
    breaks(Bug::DecrementThenSend, &[Conserved]);
}

#[test]
fn an_off_by_one_comparison() {
    breaks(Bug::OffByOne, &[NotOversold, Conserved]);
}

#[test]
fn units_released_once_per_message() {
    breaks(Bug::UnconditionalRevert, &[Conserved]);
}

#[test]
fn an_acknowledgement_before_the_commit() {
    breaks(Bug::AckBeforeCommit, &[NoneForgotten]);
}

#[test]
fn a_queue_that_is_trimmed() {
    breaks(Bug::MaxLen, &[NoneForgotten, Conserved]);
}

#[test]
fn stock_that_is_reloaded_at_every_start() {
    breaks(Bug::PreheatOverwrites, &[NotOversold]);
}

#[test]
fn a_ledger_without_a_unique_key() {
    breaks(Bug::NoUniqueKey, &[ConfirmedOnce]);
}

#[test]
fn a_retry_that_places_a_second_order() {
    breaks(Bug::NoRequestId, &[SameAnswer]);
}

#[test]
fn a_limit_that_is_checked_before_it_is_written() {
    breaks(Bug::LimitReadBefore, &[WithinLimit]);
}

#[test]
fn stock_in_separate_buckets() {
    breaks(Bug::Buckets, &[SoldOutTrue]);
}

#[test]
fn a_state_change_without_comparison() {
    breaks(Bug::BlindCancel, &[ReleasedOnce, Monotone]);
}

#[test]
fn unclaimed_entries_of_a_dead_consumer() {
    breaks(Bug::NoClaim, &[NoneForgotten, Quiet]);
}

#[track_caller]
fn breaks(bug: Bug, expected: &[Invariant]) {
    let found = run(Some(bug));
    for invariant in expected {
        let hits = found.iter().filter(|breach| breach.invariant == *invariant);
        assert!(hits.count() > 0, "`{invariant}` is not broken: {found:#?}");
    }
}

/// A whole sale: concurrent buyers, consumers that sometimes die, and the check at the end.
fn run(bug: Option<Bug>) -> Vec<Breach> {
    let seed = Seed::new(7);
    let dir = tempfile::tempdir().unwrap();
    let shop = Shop::open(bug, UNITS, LIMIT);
    thread::scope(|scope| {
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|client| {
                let (shop, dir) = (&shop, dir.path());
                scope.spawn(move || buy(shop, &Recorder::create(dir, client), client, seed))
            })
            .collect();
        while !clients.iter().all(thread::ScopedJoinHandle::is_finished) {
            shop.consume();
            thread::sleep(Duration::from_millis(1));
        }
    });
    sell_out(&shop, dir.path());
    settle(&shop, dir.path());
    let account = Account::load(dir.path());
    violations(&account, &shop.books(), Allowed::default())
}

fn buy(shop: &Shop, recorder: &Recorder, client: u64, seed: Seed) {
    let mut redis = shop.redis();
    let mut rng = seed.part(1_000 + client).rng();
    let profile = Profile {
        item: ITEM.into(),
        buyers: 80,
        units_max: 2,
        repeated_percent: 20,
        storm_percent: 10,
    };
    let mut orders = Vec::new();
    for wish in Demand::new(seed, client, vec![profile]).take(WISHES) {
        for _ in 0..wish.times {
            let request = recorder.ask(ITEM, &wish.buyer, &wish.request, wish.units);
            let answer = shop.ask(&mut redis, &wish, &mut rng);
            request.answered(answer.answer, answer.word, answer.order.as_deref());
            orders.extend(answer.order);
        }
        // Usually one that has had time to reach the ledger.
        if let Some(order) = orders.choose(&mut rng).filter(|_| orders.len() > 5) {
            follow(shop, recorder, &mut redis, order, &mut rng);
        }
    }
}

/// A buyer queries an order, then pays or cancels twice.
fn follow(shop: &Shop, recorder: &Recorder, redis: &mut RespClient, order: &str, rng: &mut StdRng) {
    look(shop, recorder, order);
    for _ in 0..2 {
        let kind = [Kind::Pay, Kind::Cancel, Kind::Cancel][rng.random_range(0..3)];
        let request = recorder.about(kind, ITEM, order);
        let done = match kind {
            Kind::Pay => shop.pay(order),
            _ => shop.cancel(redis, order, rng),
        };
        match done {
            Some(state) => request.answered(Answer::Done, &state.to_string(), None),
            None => request.answered(Answer::Refused, "state", None),
        }
    }
}

fn look(shop: &Shop, recorder: &Recorder, order: &str) {
    let request = recorder.about(Kind::Look, ITEM, order);
    let state = shop.state(order).to_string();
    request.answered(Answer::State, &state, None);
}

/// Buys all remaining units. Cancelled orders may have released units, and only an empty stock reveals an
/// off-by-one comparison.
fn sell_out(shop: &Shop, dir: &std::path::Path) {
    let recorder = Recorder::create(dir, CLIENTS + 1);
    let mut redis = shop.redis();
    let mut rng = Seed::new(0).rng();
    // More buyers than units after any bug, so that the loop ends even if a shop never sells out.
    for buyer in 0..2 * UNITS {
        let wish = Wish {
            item: ITEM.into(),
            buyer: format!("last-{buyer:03}"),
            request: "only".into(),
            units: 1,
            times: 1,
        };
        let request = recorder.ask(ITEM, &wish.buyer, &wish.request, wish.units);
        let answer = shop.ask_alive(&mut redis, &wish, &mut rng);
        request.answered(answer.answer, answer.word, answer.order.as_deref());
        if answer.word == "sold-out" {
            return;
        }
    }
}

/// Repeats all unresolved requests, drains the queue and queries every order.
fn settle(shop: &Shop, dir: &std::path::Path) {
    let recorder = Recorder::create(dir, 0);
    let mut redis = shop.redis();
    let mut rng = Seed::new(0).rng();
    for operation in Account::load(dir).unresolved() {
        let request = recorder.ask(ITEM, &operation.buyer, &operation.request, operation.units);
        let wish = Wish {
            item: ITEM.into(),
            buyer: operation.buyer.clone(),
            request: operation.request.clone(),
            units: operation.units,
            times: 1,
        };
        let answer = shop.ask_alive(&mut redis, &wish, &mut rng);
        request.answered(answer.answer, answer.word, answer.order.as_deref());
    }
    shop.drain();
    for order in shop.books().orders {
        look(shop, &recorder, &order.id);
    }
}
