//! Answers: the same for the same request, and true.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Case;
use crate::check::Violation;
use crate::sale::account::{Answer, Deed, Kind};
use crate::sale::books::Order;

/// The word with which a gate says that too few units are left.
const SOLD_OUT: &str = "sold-out";
/// The word with which a gate says that a request id stands for something else.
const CONFLICT: &str = "conflict";

/// One request, one order, however often it is sent.
pub(super) fn same_answer(case: &Case<'_>) -> Vec<Violation> {
    let mut requests: HashMap<_, Vec<&Deed>> = HashMap::new();
    for deed in case.account.deeds.iter().filter(|it| it.kind == Kind::Ask) {
        requests.entry(deed.key()).or_default().push(deed);
    }
    let mut violations = Vec::new();
    for deeds in requests.values() {
        let mut orders: HashMap<&str, &Deed> = HashMap::new();
        for deed in deeds.iter().filter(|deed| deed.is_order()) {
            let id = deed.order.as_deref().unwrap_or_default();
            if !case.is_lost(id) {
                orders.entry(id).or_insert(deed);
            }
        }
        if orders.len() > 1 {
            let lines: Vec<String> = orders.values().map(ToString::to_string).collect();
            let subject = &deeds[0].request;
            let evidence = lines.join("\n    ");
            violations.push(Violation::new("two orders told", subject, &[&evidence]));
        }
        violations.extend(taken_back(case, deeds));
        let wanted: BTreeSet<u64> = deeds.iter().map(|deed| deed.units).collect();
        if let Some(deed) = deeds.iter().find(|deed| deed.word == CONFLICT)
            && wanted.len() == 1
        {
            let rule = "a request contradicts itself";
            violations.push(Violation::new(rule, &deed.request, &[*deed]));
        }
    }
    violations
}

/// A request that has an order and is refused afterwards.
fn taken_back(case: &Case<'_>, deeds: &[&Deed]) -> Option<Violation> {
    let has_order = |deed: &&&Deed| {
        let id = deed.order.as_deref().unwrap_or_default();
        deed.is_order() && !case.is_lost(id)
    };
    let told = deeds.iter().filter(has_order);
    let told = told.min_by_key(|deed| deed.received_ns)?;
    let mut later = deeds
        .iter()
        .filter(|it| Some(it.sent_ns) > told.received_ns);
    let refused = later.find(|deed| {
        deed.answer == Answer::Refused && deed.settles() && deed.units == told.units
    })?;
    let rule = "told an order and then refused";
    Some(Violation::new(rule, &told.request, &[*told, *refused]))
}

/// Sold out is told only if, at some moment between question and answer, too few units may have been
/// left: all orders that could have held any by then together leave too few. Units that had gone back
/// by then count as held, so where orders end this finds less than there may be; where none does it
/// is exact.
pub(super) fn sold_out_true(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in &case.books.items {
        let Some(total) = item.total else { continue };
        let total = case.books.first_total(item, total);
        let mut taken = takings(case, &item.name);
        taken.sort_unstable();
        let mut refusals: Vec<&Deed> = case.account.deeds.iter().collect();
        refusals.retain(|deed| deed.item == item.name && deed.word == SOLD_OUT);
        refusals.sort_by_key(|deed| deed.received_ns);
        let (mut at, mut held) = (0, 0);
        for refusal in refusals {
            while at < taken.len() && Some(taken[at].0) <= refusal.received_ns {
                held += taken[at].1;
                at += 1;
            }
            if held + refusal.units <= total {
                let said = format!("at most {held} of {total} units can have been held by then");
                let rule = "sold out is not true";
                violations.push(Violation::new(rule, &item.name, &[refusal, &said]));
            }
        }
    }
    violations
}

/// When each request of an item may have taken units at the earliest, and how many. A request that
/// was told to have no order after all took none, if the server remembers.
fn takings(case: &Case<'_>, item: &str) -> Vec<(u64, u64)> {
    let orders = case.books.orders.iter();
    let in_ledger: HashSet<_> = orders.map(Order::key).collect();
    let mut first: HashMap<_, (u64, u64, bool)> = HashMap::new();
    let asks = case.account.deeds.iter();
    for deed in asks.filter(|deed| deed.kind == Kind::Ask && deed.item == item) {
        let taking = first
            .entry(deed.key())
            .or_insert((deed.sent_ns, deed.units, false));
        taking.1 = taking.1.max(deed.units);
        match deed.answer {
            Answer::Refused if !case.allowed.lossy && deed.settles() && deed.word != CONFLICT => {
                taking.2 &= in_ledger.contains(&deed.key());
            }
            Answer::Refused => {}
            _ => taking.2 = true,
        }
    }
    let taken = first
        .into_iter()
        .filter(|(key, (_, _, may))| *may || in_ledger.contains(key));
    taken.map(|(_, (sent, units, _))| (sent, units)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Invariant::{NoneForgotten, SameAnswer, SoldOutTrue};
    use super::super::testing::*;
    use crate::sale::Answer;

    #[test]
    fn another_order_for_the_same_request() {
        let mut sale = good();
        let other = ask("ann", "1", 1, 25, Answer::Accepted, "", Some("a.1.7"));
        sale.deed(other);
        sale.breaks(&[NoneForgotten, SameAnswer]);
    }

    #[test]
    fn a_request_that_has_an_order_and_is_refused() {
        let mut sale = good();
        sale.deed(ask("ann", "1", 1, 97, Answer::Refused, "sold-out", None));
        sale.breaks(&[SameAnswer]);
        // A gate that is busy refuses without looking.
        let mut sale = good();
        sale.deed(ask("ann", "1", 1, 97, Answer::Refused, "busy", None));
        sale.breaks(&[]);
    }

    #[test]
    fn a_request_that_contradicts_itself() {
        let mut sale = good();
        sale.deed(ask("ann", "1", 1, 25, Answer::Refused, "conflict", None));
        sale.breaks(&[SameAnswer]);
        let mut sale = good();
        sale.deed(ask("ann", "1", 2, 25, Answer::Refused, "conflict", None));
        sale.breaks(&[]);
    }

    #[test]
    fn sold_out_while_units_were_left() {
        let mut sale = good();
        sale.deed(ask("eve", "1", 1, 25, Answer::Refused, "sold-out", None));
        sale.breaks(&[SoldOutTrue]);
        // Two are not there any more by then, and one may not be.
        for (units, at) in [(2, 27), (3, 1)] {
            let mut sale = good();
            sale.deed(ask(
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
        sale.deed(ask("dan", "1", 1, 5, Answer::Unknown, "", None));
        sale.deed(ask("eve", "1", 2, 24, Answer::Refused, "sold-out", None));
        sale.breaks(&[]);
        // Until it is told that it has not.
        sale.deed(ask("dan", "1", 1, 98, Answer::Refused, "sold-out", None));
        sale.breaks(&[SoldOutTrue]);
    }
}
