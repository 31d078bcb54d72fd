//! Checks that answers are consistent and correct.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Case;
use crate::check::Violation;
use crate::sale::account::{Answer, Kind, Operation};
use crate::sale::books::Order;

/// The gate's word for too few units left.
const SOLD_OUT: &str = "sold-out";
/// The gate's word for a request id that was used for a different request.
const CONFLICT: &str = "conflict";

/// One request, one order, however often it is sent.
pub(super) fn same_answer(case: &Case<'_>) -> Vec<Violation> {
    let mut requests: HashMap<_, Vec<&Operation>> = HashMap::new();
    for operation in case
        .account
        .operations
        .iter()
        .filter(|it| it.kind == Kind::Ask)
    {
        requests.entry(operation.key()).or_default().push(operation);
    }
    let mut violations = Vec::new();
    for operations in requests.values() {
        let mut orders: HashMap<&str, &Operation> = HashMap::new();
        for operation in operations.iter().filter(|operation| operation.is_order()) {
            let id = operation.order.as_deref().unwrap_or_default();
            if !case.is_lost(id) {
                orders.entry(id).or_insert(operation);
            }
        }
        if orders.len() > 1 {
            let lines: Vec<String> = orders.values().map(ToString::to_string).collect();
            let subject = &operations[0].request;
            let evidence = lines.join("\n    ");
            violations.push(Violation::new(
                "two order ids for one request",
                subject,
                &[&evidence],
            ));
        }
        violations.extend(refused_after_acceptance(case, operations));
        let wanted: BTreeSet<u64> = operations.iter().map(|operation| operation.units).collect();
        if let Some(operation) = operations
            .iter()
            .find(|operation| operation.word == CONFLICT)
            && wanted.len() == 1
        {
            let rule = "conflict without a different request";
            violations.push(Violation::new(rule, &operation.request, &[*operation]));
        }
    }
    violations
}

/// A request that was accepted and later refused.
fn refused_after_acceptance(case: &Case<'_>, operations: &[&Operation]) -> Option<Violation> {
    let has_order = |operation: &&&Operation| {
        let id = operation.order.as_deref().unwrap_or_default();
        operation.is_order() && !case.is_lost(id)
    };
    let accepted = operations.iter().filter(has_order);
    let accepted = accepted.min_by_key(|operation| operation.received_ns)?;
    let mut later = operations
        .iter()
        .filter(|it| Some(it.sent_ns) > accepted.received_ns);
    let refused = later.find(|operation| {
        operation.answer == Answer::Refused
            && operation.settles()
            && operation.units == accepted.units
    })?;
    let rule = "accepted, then refused";
    Some(Violation::new(
        rule,
        &accepted.request,
        &[*accepted, *refused],
    ))
}

/// *Sold out* is answered only if too few units may have been left at some moment between request and
/// answer, counting all orders that could have held units by then. Released units count as held, so this
/// check may miss violations if orders end; otherwise it is exact.
pub(super) fn sold_out_true(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in &case.books.items {
        let Some(total) = item.total else { continue };
        let total = case.books.first_total(item, total);
        let mut reserved = reservations(case, &item.name);
        reserved.sort_unstable();
        let mut refusals: Vec<&Operation> = case.account.operations.iter().collect();
        refusals.retain(|operation| operation.item == item.name && operation.word == SOLD_OUT);
        refusals.sort_by_key(|operation| operation.received_ns);
        let (mut at, mut held) = (0, 0);
        for refusal in refusals {
            while at < reserved.len() && Some(reserved[at].0) <= refusal.received_ns {
                held += reserved[at].1;
                at += 1;
            }
            if held + refusal.units <= total {
                let evidence =
                    format!("at most {held} of {total} units could have been held by then");
                let rule = "sold out, but units were left";
                violations.push(Violation::new(rule, &item.name, &[refusal, &evidence]));
            }
        }
    }
    violations
}

/// The earliest time at which each request of an item may have reserved units, and how many. A request that
/// was finally refused took none, unless the server loses writes.
fn reservations(case: &Case<'_>, item: &str) -> Vec<(u64, u64)> {
    let orders = case.books.orders.iter();
    let in_ledger: HashSet<_> = orders.map(Order::key).collect();
    let mut first: HashMap<_, (u64, u64, bool)> = HashMap::new();
    let asks = case.account.operations.iter();
    for operation in asks.filter(|operation| operation.kind == Kind::Ask && operation.item == item)
    {
        let reservation =
            first
                .entry(operation.key())
                .or_insert((operation.sent_ns, operation.units, false));
        reservation.1 = reservation.1.max(operation.units);
        match operation.answer {
            Answer::Refused
                if !case.allowed.lossy && operation.settles() && operation.word != CONFLICT =>
            {
                reservation.2 &= in_ledger.contains(&operation.key());
            }
            Answer::Refused => {}
            _ => reservation.2 = true,
        }
    }
    let reserved = first
        .into_iter()
        .filter(|(key, (_, _, may))| *may || in_ledger.contains(key));
    reserved
        .map(|(_, (sent, units, _))| (sent, units))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Invariant::{NoneForgotten, SameAnswer, SoldOutTrue};
    use super::super::testing::*;
    use crate::sale::Answer;

    #[test]
    fn a_second_order_for_the_same_request() {
        let mut sale = good();
        let other = ask("ann", "1", 1, 25, Answer::Accepted, "", Some("a.1.7"));
        sale.operation(other);
        sale.breaks(&[NoneForgotten, SameAnswer]);
    }

    #[test]
    fn a_request_is_accepted_then_refused() {
        let mut sale = good();
        sale.operation(ask("ann", "1", 1, 97, Answer::Refused, "sold-out", None));
        sale.breaks(&[SameAnswer]);
        // A busy gate refuses without checking.
        let mut sale = good();
        sale.operation(ask("ann", "1", 1, 97, Answer::Refused, "busy", None));
        sale.breaks(&[]);
    }

    #[test]
    fn a_conflict_without_a_different_request() {
        let mut sale = good();
        sale.operation(ask("ann", "1", 1, 25, Answer::Refused, "conflict", None));
        sale.breaks(&[SameAnswer]);
        let mut sale = good();
        sale.operation(ask("ann", "1", 2, 25, Answer::Refused, "conflict", None));
        sale.breaks(&[]);
    }

    #[test]
    fn sold_out_while_units_were_left() {
        let mut sale = good();
        sale.operation(ask("eve", "1", 1, 25, Answer::Refused, "sold-out", None));
        sale.breaks(&[SoldOutTrue]);
        // Two are gone by then, and a third may be.
        for (units, at) in [(2, 27), (3, 1)] {
            let mut sale = good();
            sale.operation(ask(
                "eve",
                "1",
                units,
                at,
                Answer::Refused,
                "sold-out",
                None,
            ));
            let true_then = at == 27;
            sale.breaks(if true_then { &[] } else { &[SoldOutTrue] });
        }
    }

    #[test]
    fn a_request_of_unknown_outcome_may_have_taken_units() {
        let mut sale = good();
        sale.operation(ask("dan", "1", 1, 5, Answer::Unknown, "", None));
        sale.operation(ask("eve", "1", 2, 24, Answer::Refused, "sold-out", None));
        sale.breaks(&[]);
        // Until it is refused.
        sale.operation(ask("dan", "1", 1, 98, Answer::Refused, "sold-out", None));
        sale.breaks(&[SoldOutTrue]);
    }
}
