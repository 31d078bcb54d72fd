//! Checks that every order was requested and none is forgotten.

use std::collections::{HashMap, HashSet};

use super::Case;
use crate::check::Violation;
use crate::sale::account::{Account, Answer, Kind, Operation};
use crate::sale::books::{Order, State};

/// The shop's word for an unknown order.
const NO_ORDER: &str = "no-order";

/// Answers and orders in the ledger correspond one to one.
pub(super) fn confirmed_once(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = twice_in_the_ledger(case);
    violations.extend(orders_never_requested(case));
    let reported = case
        .account
        .operations
        .iter()
        .filter(|operation| operation.is_order());
    for operation in reported {
        let order = operation.order.as_deref().and_then(|id| case.order(id));
        // Another invariant checks missing orders.
        let Some(order) = order.filter(|order| order.state != State::Lost) else {
            continue;
        };
        let asked = (operation.key(), operation.units);
        if asked != (order.key(), order.units) {
            let rule = "differs from the request";
            violations.push(Violation::new(rule, &order.id, &[operation, order]));
        }
    }
    for operation in &case.account.operations {
        let Some(State::Reserved | State::Paid) = reported_state(operation) else {
            continue;
        };
        let id = operation.order.as_deref().unwrap_or_default();
        match case.order(id) {
            None => {
                let rule = "confirmed, but not in the ledger";
                violations.push(Violation::new(rule, id, &[operation]));
            }
            Some(order) if matches!(order.state, State::Lost | State::Rejected) => {
                let rule = "confirmed, then lost or rejected";
                violations.push(Violation::new(rule, id, &[operation, order]));
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

fn orders_never_requested(case: &Case<'_>) -> Vec<Violation> {
    let asks = case.account.operations.iter();
    let asks = asks.filter(|operation| operation.kind == Kind::Ask);
    let asked: HashSet<_> = asks
        .map(|operation| (operation.key(), operation.units))
        .collect();
    let orders = case.books.orders.iter();
    let never_requested = orders
        .filter(|order| order.state != State::Lost && !asked.contains(&(order.key(), order.units)));
    never_requested
        .map(|order| Violation::new("never requested", &order.id, &[order]))
        .collect()
}

/// Every accepted order has reached a final state, and the buyer can learn it.
pub(super) fn none_forgotten(case: &Case<'_>) -> Vec<Violation> {
    let unknown_orders = case.account.operations.iter();
    let unknown_orders = unknown_orders.filter(|operation| operation.word == NO_ORDER);
    let mut violations: Vec<Violation> = unknown_orders
        .map(|operation| {
            let id = operation.order.as_deref().unwrap_or_default();
            Violation::new("accepted, then unknown", id, &[operation])
        })
        .collect();
    let mut judged = HashSet::new();
    for operation in case
        .account
        .operations
        .iter()
        .filter(|operation| operation.is_order())
    {
        let Some(id) = operation.order.as_deref() else {
            let rule = "accepted without an order id";
            violations.push(Violation::new(rule, &operation.request, &[operation]));
            continue;
        };
        if !judged.insert(id) {
            continue;
        }
        let Some(order) = case.order(id) else {
            if case.is_uncounted(id) {
                continue;
            }
            let rule = "accepted, but not in the books";
            violations.push(Violation::new(rule, id, &[operation]));
            continue;
        };
        let rule = match order.state {
            State::Queued => "accepted, but still queued",
            State::Lost if !case.allowed.lossy => "lost, although no write was lost",
            State::Rejected if !case.allowed.lossy => "accepted, then rejected",
            State::Lost if case.last_reported.get(id) != Some(&State::Lost) => {
                "lost, but not reported as lost"
            }
            _ => continue,
        };
        violations.push(Violation::new(rule, id, &[operation, order]));
    }
    violations
}

/// The last reported state of each order.
pub(super) fn last_reported(account: &Account) -> HashMap<&str, State> {
    let looks = account.operations.iter();
    let reported = looks
        .filter_map(|operation| Some((operation.order.as_deref()?, reported_state(operation)?)));
    reported.collect()
}

/// No order leaves a final state: a later report must be reachable from an earlier one, and the ledger's
/// state from both.
pub(super) fn monotone(case: &Case<'_>) -> Vec<Violation> {
    let mut reported: HashMap<&str, Vec<(&Operation, State)>> = HashMap::new();
    for operation in &case.account.operations {
        if let (Some(order), Some(state)) = (operation.order.as_deref(), reported_state(operation))
        {
            reported.entry(order).or_default().push((operation, state));
        }
    }
    let mut violations = Vec::new();
    for (id, reported) in reported {
        for (number, (later, state)) in reported.iter().enumerate() {
            let before = reported[..number].iter().filter(|(earlier, _)| {
                earlier
                    .received_ns
                    .is_some_and(|received| received <= later.sent_ns)
            });
            let contradicted = before.filter(|(_, before)| !before.may_become(*state));
            violations.extend(
                contradicted.map(|(earlier, _)| {
                    Violation::new("left a final state", id, &[*earlier, *later])
                }),
            );
        }
        let Some(order) = case.order(id) else {
            continue;
        };
        let contradicted = reported
            .iter()
            .filter(|(_, state)| !state.may_become(order.state));
        violations.extend(contradicted.map(|(operation, _)| {
            Violation::new(
                "the ledger contradicts the answer",
                id,
                &[*operation, order],
            )
        }));
    }
    violations
}

/// The order state in an answer.
fn reported_state(operation: &Operation) -> Option<State> {
    let has_state = matches!(operation.answer, Answer::State | Answer::Done);
    has_state.then(|| operation.word.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::Invariant::{ConfirmedOnce, Monotone, NoneForgotten};
    use super::super::testing::*;
    use crate::sale::{Answer, Kind, State};

    #[test]
    fn an_order_that_differs_from_the_request() {
        let mut sale = good();
        sale.account.operations[0].buyer = "eve".into();
        sale.account.operations[0].request = "9".into();
        sale.breaks(&[ConfirmedOnce]);
    }

    #[test]
    fn an_order_that_was_never_requested() {
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
        // A rejected one does not count if the server may lose writes.
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
    fn confirmed_then_lost() {
        let mut sale = good();
        sale.books.orders.remove(2);
        sale.books.journal.pop();
        sale.books.items[0].sold = 1;
        sale.books.items[0].counter.left = 2;
        sale.books.items[0].quotas = Some([("ann".into(), 1)].into());
        sale.breaks(&[ConfirmedOnce, NoneForgotten]);
    }

    #[test]
    fn accepted_then_forgotten() {
        for (state, lossy, broken) in [
            (State::Queued, false, true),
            (State::Rejected, false, true),
            (State::Rejected, true, false),
            (State::Lost, false, true),
            // No client has read it.
            (State::Lost, true, true),
        ] {
            let mut sale = good();
            sale.allowed.lossy = lossy;
            sale.books.orders[1].state = state;
            sale.account
                .operations
                .retain(|operation| operation.kind != Kind::Cancel);
            let expected: &[_] = if broken { &[NoneForgotten] } else { &[] };
            sale.breaks(expected);
        }
        let mut sale = good();
        sale.books.orders.remove(1);
        sale.books.journal.drain(1..3);
        sale.breaks(&[NoneForgotten]);
        let mut sale = good();
        sale.operation(about(Kind::Look, "a.1.2", 35, Answer::Refused, "no-order"));
        sale.breaks(&[NoneForgotten]);
    }

    #[test]
    fn lost_and_reported() {
        let mut sale = good();
        sale.allowed.lossy = true;
        sale.books.orders[1].state = State::Lost;
        sale.books.journal.drain(1..3);
        sale.account
            .operations
            .retain(|operation| operation.kind != Kind::Cancel);
        sale.operation(about(Kind::Look, "a.1.2", 99, Answer::State, "lost"));
        sale.breaks(&[]);
        // The same request may get another order then.
        let mut again = ask("bob", "1", 1, 75, Answer::Refused, "sold-out", None);
        sale.operation(again.clone());
        sale.breaks(&[]);
        again.answer = Answer::Accepted;
        again.order = Some("a.2.1".into());
        again.sent_ns = 76;
        sale.operation(again);
        sale.breaks(&[NoneForgotten]);
    }

    #[test]
    fn lost_and_reported_but_not_in_the_books() {
        let mut sale = good();
        sale.allowed.lossy = true;
        sale.books.orders.remove(1);
        sale.books.journal.drain(1..3);
        sale.account
            .operations
            .retain(|operation| operation.kind != Kind::Cancel);
        sale.operation(about(Kind::Look, "a.1.2", 99, Answer::State, "lost"));
        sale.breaks(&[NoneForgotten]);
        sale.allowed.uncounted = true;
        sale.breaks(&[]);
        sale.account.operations.pop();
        sale.breaks(&[NoneForgotten]);
    }

    #[test]
    fn a_final_state_that_changes() {
        let mut sale = good();
        sale.operation(about(Kind::Look, "a.1.2", 97, Answer::State, "reserved"));
        sale.breaks(&[Monotone]);
        let mut sale = good();
        sale.operation(about(Kind::Look, "a.1.3", 97, Answer::State, "paid"));
        sale.breaks(&[Monotone]);
        // Concurrent requests may report either state.
        let mut sale = good();
        sale.operation(about(Kind::Look, "a.1.2", 58, Answer::State, "reserved"));
        sale.operation(about(Kind::Look, "a.1.2", 62, Answer::State, "reserved"));
        sale.breaks(&[]);
    }
}
