//! Orders: each the one that was asked for, and none forgotten.

use std::collections::{HashMap, HashSet};

use super::Case;
use crate::check::Violation;
use crate::sale::account::{Answer, Deed, Kind};
use crate::sale::books::{Order, State};

/// The word with which a shop says that there is no such order.
const NO_ORDER: &str = "no-order";

/// Answers and orders of the ledger are each other's, one to one.
pub(super) fn confirmed_once(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = twice_in_the_ledger(case);
    violations.extend(orders_nobody_asked_for(case));
    let told = case.account.deeds.iter().filter(|deed| deed.is_order());
    for deed in told {
        let order = deed.order.as_deref().and_then(|id| case.order(id));
        // What is not there is another invariant's matter.
        let Some(order) = order.filter(|order| order.state != State::Lost) else {
            continue;
        };
        let asked = (deed.key(), deed.units);
        if asked != (order.key(), order.units) {
            let rule = "not what was asked for";
            violations.push(Violation::new(rule, &order.id, &[deed, order]));
        }
    }
    for deed in &case.account.deeds {
        let Some(State::Reserved | State::Paid) = seen(deed) else {
            continue;
        };
        let id = deed.order.as_deref().unwrap_or_default();
        match case.order(id) {
            None => {
                let rule = "confirmed and not in the ledger";
                violations.push(Violation::new(rule, id, &[deed]));
            }
            Some(order) if matches!(order.state, State::Lost | State::Rejected) => {
                let rule = "confirmed and then taken back";
                violations.push(Violation::new(rule, id, &[deed, order]));
            }
            Some(_) => {}
        }
    }
    violations
}

fn twice_in_the_ledger(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut ids: HashMap<&str, &Order> = HashMap::new();
    let mut requests: HashMap<_, &Order> = HashMap::new();
    for order in &case.books.orders {
        if let Some(other) = ids.insert(&order.id, order) {
            let rule = "two orders with one id";
            violations.push(Violation::new(rule, &order.id, &[other, order]));
        }
        if order.state == State::Lost || case.is_lost(&order.id) {
            continue;
        }
        if let Some(other) = requests.insert(order.key(), order) {
            let rule = "two orders for one request";
            violations.push(Violation::new(rule, &order.id, &[other, order]));
        }
    }
    violations
}

fn orders_nobody_asked_for(case: &Case<'_>) -> Vec<Violation> {
    let asks = case.account.deeds.iter();
    let asks = asks.filter(|deed| deed.kind == Kind::Ask);
    let asked: HashSet<_> = asks.map(|deed| (deed.key(), deed.units)).collect();
    let orders = case.books.orders.iter();
    let unasked = orders
        .filter(|order| order.state != State::Lost && !asked.contains(&(order.key(), order.units)));
    unasked
        .map(|order| Violation::new("nobody asked for it", &order.id, &[order]))
        .collect()
}

/// Every accepted order has come to its end, and the buyer is told which.
pub(super) fn none_forgotten(case: &Case<'_>) -> Vec<Violation> {
    let denials = case.account.deeds.iter();
    let denials = denials.filter(|deed| deed.word == NO_ORDER);
    let mut violations: Vec<Violation> = denials
        .map(|deed| {
            let id = deed.order.as_deref().unwrap_or_default();
            Violation::new("accepted and then denied", id, &[deed])
        })
        .collect();
    let mut judged = HashSet::new();
    let last_told = last_told(case);
    for deed in case.account.deeds.iter().filter(|deed| deed.is_order()) {
        let Some(id) = deed.order.as_deref() else {
            let rule = "accepted without an order";
            violations.push(Violation::new(rule, &deed.request, &[deed]));
            continue;
        };
        if !judged.insert(id) {
            continue;
        }
        let Some(order) = case.order(id) else {
            let rule = "accepted and in no book";
            violations.push(Violation::new(rule, id, &[deed]));
            continue;
        };
        let rule = match order.state {
            State::Queued => "accepted and still queued",
            State::Lost if !case.allowed.lossy => "lost though nothing was dropped",
            State::Rejected if !case.allowed.lossy => "accepted and then rejected",
            State::Lost if last_told.get(id) != Some(&State::Lost) => "lost and nobody was told",
            _ => continue,
        };
        violations.push(Violation::new(rule, id, &[deed, order]));
    }
    violations
}

/// What each order was last told to be.
fn last_told<'a>(case: &Case<'a>) -> HashMap<&'a str, State> {
    let looks = case.account.deeds.iter();
    let told = looks.filter_map(|deed| Some((deed.order.as_deref()?, seen(deed)?)));
    told.collect()
}

/// No order comes back from its end: what was told later must follow from what was told before, and
/// the ledger's state from both.
pub(super) fn monotone(case: &Case<'_>) -> Vec<Violation> {
    let mut told: HashMap<&str, Vec<(&Deed, State)>> = HashMap::new();
    for deed in &case.account.deeds {
        if let (Some(order), Some(state)) = (deed.order.as_deref(), seen(deed)) {
            told.entry(order).or_default().push((deed, state));
        }
    }
    let mut violations = Vec::new();
    for (id, told) in told {
        for (number, (later, state)) in told.iter().enumerate() {
            let before = told[..number].iter().filter(|(earlier, _)| {
                earlier
                    .received_ns
                    .is_some_and(|received| received <= later.sent_ns)
            });
            let contradicted = before.filter(|(_, before)| !before.may_become(*state));
            violations.extend(contradicted.map(|(earlier, _)| {
                Violation::new("came back from its end", id, &[*earlier, *later])
            }));
        }
        let Some(order) = case.order(id) else {
            continue;
        };
        let contradicted = told
            .iter()
            .filter(|(_, state)| !state.may_become(order.state));
        violations.extend(
            contradicted
                .map(|(deed, _)| Violation::new("the ledger says otherwise", id, &[*deed, order])),
        );
    }
    violations
}

/// The state that an answer speaks of.
fn seen(deed: &Deed) -> Option<State> {
    let speaks = matches!(deed.answer, Answer::State | Answer::Done);
    speaks.then(|| deed.word.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::Invariant::{ConfirmedOnce, Monotone, NoneForgotten};
    use super::super::testing::*;
    use crate::sale::{Answer, Kind, State};

    #[test]
    fn an_order_that_is_not_what_was_asked_for() {
        let mut sale = good();
        sale.account.deeds[0].buyer = "eve".into();
        sale.account.deeds[0].request = "9".into();
        sale.breaks(&[ConfirmedOnce]);
    }

    #[test]
    fn an_order_that_nobody_asked_for() {
        let mut sale = good();
        sale.books
            .orders
            .push(order("a.1.9", "eve", 1, State::Cancelled));
        sale.breaks(&[ConfirmedOnce]);
    }

    #[test]
    fn two_orders_for_one_request() {
        let mut sale = good();
        sale.books
            .orders
            .push(order("a.1.9", "bob", 1, State::Expired));
        sale.breaks(&[ConfirmedOnce]);
        // One that fell through where the server forgets does not count.
        for (lossy, expected) in [(false, &[ConfirmedOnce][..]), (true, &[])] {
            let mut sale = good();
            sale.allowed.lossy = lossy;
            sale.books
                .orders
                .push(order("a.1.9", "bob", 1, State::Rejected));
            sale.breaks(expected);
        }
        let mut sale = good();
        let twin = sale.books.orders[1].clone();
        sale.books.orders.push(twin);
        sale.breaks(&[ConfirmedOnce]);
    }

    #[test]
    fn confirmed_and_then_gone() {
        let mut sale = good();
        sale.books.orders.remove(2);
        sale.books.journal.pop();
        sale.books.items[0].sold = 1;
        sale.books.items[0].counter.left = 2;
        sale.books.items[0].quotas = Some([("ann".into(), 1)].into());
        sale.breaks(&[ConfirmedOnce, NoneForgotten]);
    }

    #[test]
    fn accepted_and_never_heard_of_again() {
        for (state, lossy, broken) in [
            (State::Queued, false, true),
            (State::Rejected, false, true),
            (State::Rejected, true, false),
            (State::Lost, false, true),
            // Nobody looked at it.
            (State::Lost, true, true),
        ] {
            let mut sale = good();
            sale.allowed.lossy = lossy;
            sale.books.orders[1].state = state;
            sale.account.deeds.retain(|deed| deed.kind != Kind::Cancel);
            let expected: &[_] = if broken { &[NoneForgotten] } else { &[] };
            sale.breaks(expected);
        }
        let mut sale = good();
        sale.books.orders.remove(1);
        sale.books.journal.drain(1..3);
        sale.breaks(&[NoneForgotten]);
        let mut sale = good();
        sale.deed(about(Kind::Look, "a.1.2", 35, Answer::Refused, "no-order"));
        sale.breaks(&[NoneForgotten]);
    }

    #[test]
    fn lost_and_told() {
        let mut sale = good();
        sale.allowed.lossy = true;
        sale.books.orders[1].state = State::Lost;
        sale.books.journal.drain(1..3);
        sale.account.deeds.retain(|deed| deed.kind != Kind::Cancel);
        sale.deed(about(Kind::Look, "a.1.2", 99, Answer::State, "lost"));
        sale.breaks(&[]);
        // The same request may get another order then.
        let mut again = ask("bob", "1", 1, 75, Answer::Refused, "sold-out", None);
        sale.deed(again.clone());
        sale.breaks(&[]);
        again.answer = Answer::Accepted;
        again.order = Some("a.2.1".into());
        again.sent_ns = 76;
        sale.deed(again);
        sale.breaks(&[NoneForgotten]);
    }

    #[test]
    fn an_end_that_is_none() {
        let mut sale = good();
        sale.deed(about(Kind::Look, "a.1.2", 97, Answer::State, "reserved"));
        sale.breaks(&[Monotone]);
        let mut sale = good();
        sale.deed(about(Kind::Look, "a.1.3", 97, Answer::State, "paid"));
        sale.breaks(&[Monotone]);
        // What was asked for meanwhile may say either.
        let mut sale = good();
        sale.deed(about(Kind::Look, "a.1.2", 58, Answer::State, "reserved"));
        sale.deed(about(Kind::Look, "a.1.2", 62, Answer::State, "reserved"));
        sale.breaks(&[]);
    }
}
