//! Units: how many there are, and who has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Case;
use crate::check::Violation;
use crate::sale::books::{Item, Movement};

/// Orders never hold more than there is.
pub(super) fn not_oversold(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in &case.books.items {
        let Some(total) = item.total else { continue };
        let held: u64 = case
            .books
            .holding(&item.name)
            .map(|order| order.units)
            .sum();
        if held > total {
            let said = format!("{held} units are held, there are {total}");
            violations.push(Violation::new("oversold", &item.name, &[&said]));
        }
        violations.extend(oversold_on_the_way(case, item, total));
    }
    violations
}

/// The first commit after which orders held more than there was.
fn oversold_on_the_way(case: &Case<'_>, item: &Item, total: u64) -> Option<Violation> {
    let mut total = case.books.first_total(item, total);
    let mut held = 0_u64;
    for (number, movement) in case.books.postings(&item.name).enumerate() {
        match movement {
            Movement::Reserved { units, .. } => held += units,
            Movement::Released { units, .. } => held = held.saturating_sub(*units),
            Movement::Added(units) => total += units,
            Movement::Withdrawn(units) => total = total.saturating_sub(*units),
        }
        if held > total {
            let said = format!("{held} of {total} units were held after movement {number}");
            let rule = "oversold on the way";
            return Some(Violation::new(rule, &item.name, &[&said, movement]));
        }
    }
    None
}

/// No buyer has more than one may have.
pub(super) fn within_limit(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in &case.books.items {
        let Some(limit) = item.limit else { continue };
        let mut has: HashMap<&str, u64> = HashMap::new();
        for order in case.books.holding(&item.name) {
            *has.entry(&order.buyer).or_default() += order.units;
        }
        for (buyer, units) in has.iter().filter(|(_, units)| **units > limit) {
            let said = format!("`{buyer}` has {units} units, the limit is {limit}");
            violations.push(Violation::new("above the limit", &item.name, &[&said]));
        }
        let mut has: HashMap<&str, u64> = HashMap::new();
        for movement in case.books.postings(&item.name) {
            if let Movement::Reserved { buyer, units, .. } = movement {
                let has = has.entry(buyer).or_default();
                *has += units;
                if *has > limit {
                    let said = format!("`{buyer}` then had {has} units, the limit is {limit}");
                    let rule = "above the limit on the way";
                    violations.push(Violation::new(rule, &item.name, &[movement, &said]));
                }
            } else if let Movement::Released { buyer, units, .. } = movement {
                let has = has.entry(buyer).or_default();
                *has = has.saturating_sub(*units);
            }
        }
    }
    violations
}

/// Left, queued and sold are all there is.
pub(super) fn conserved(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in &case.books.items {
        let held: u64 = case
            .books
            .holding(&item.name)
            .map(|order| order.units)
            .sum();
        if held != item.sold {
            let said = format!("orders hold {held} units, the ledger counts {}", item.sold);
            violations.push(Violation::new("miscounted", &item.name, &[&said]));
        }
        violations.extend(quota_drift(case, item));
        let Some(total) = item.total else { continue };
        let counter = item.counter;
        if counter.left < 0 {
            let said = format!("{} units are left at the gate", counter.left);
            violations.push(Violation::new("below zero", &item.name, &[&said]));
        }
        let accounted = i128::from(counter.left) + i128::from(counter.queued_units + held);
        if accounted != i128::from(total) {
            let said = format!(
                "{} left at the gate, {} queued, {held} held: {accounted} of {total} units",
                counter.left, counter.queued_units
            );
            violations.push(Violation::new("drift", &item.name, &[&said]));
        }
    }
    violations
}

/// Buyers of whom the gate believes something else than the ledger knows.
fn quota_drift(case: &Case<'_>, item: &Item) -> Vec<Violation> {
    let Some(quotas) = &item.quotas else {
        return Vec::new();
    };
    let mut has: BTreeMap<&str, u64> = BTreeMap::new();
    for order in case.books.holding(&item.name) {
        *has.entry(&order.buyer).or_default() += order.units;
    }
    let believed: BTreeMap<&str, u64> = quotas.iter().map(|(it, has)| (&**it, *has)).collect();
    let buyers: BTreeSet<&str> = has.keys().chain(believed.keys()).copied().collect();
    let differ = buyers
        .into_iter()
        .filter(|buyer| has.get(buyer) != believed.get(buyer));
    differ
        .map(|buyer| {
            let (has, believed) = (has.get(buyer), believed.get(buyer));
            let said = format!(
                "`{buyer}` has {}, the gate believes {}",
                has.unwrap_or(&0),
                believed.unwrap_or(&0)
            );
            Violation::new("drift of a quota", &item.name, &[&said])
        })
        .collect()
}

/// Each order's units are taken once and go back once.
pub(super) fn released_once(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut held: HashMap<&str, bool> = HashMap::new();
    for posting in &case.books.journal {
        let (order, takes) = match &posting.movement {
            Movement::Reserved { order, .. } => (order, true),
            Movement::Released { order, .. } => (order, false),
            Movement::Added(_) | Movement::Withdrawn(_) => continue,
        };
        let holds = held.entry(order).or_default();
        if *holds == takes {
            let rule = if takes {
                "taken twice"
            } else {
                "released without being held"
            };
            violations.push(Violation::new(rule, order, &[&posting.movement]));
        }
        *holds = takes;
    }
    for order in &case.books.orders {
        let by_journal = held.remove(order.id.as_str()).unwrap_or_default();
        if by_journal != order.state.holds_units() {
            let said = if by_journal {
                "by the journal it holds its units"
            } else {
                "by the journal it holds none"
            };
            violations.push(Violation::new(
                "journal and order differ",
                &order.id,
                &[order, &said],
            ));
        }
    }
    for order in held.into_iter().filter(|(_, holds)| *holds) {
        let said = "its units are held, and the ledger has no such order";
        violations.push(Violation::new("held by nobody", order.0, &[&said]));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::Invariant::{Conserved, NotOversold, ReleasedOnce, WithinLimit};
    use super::super::testing::*;
    use crate::sale::{Answer, Movement, State};

    #[test]
    fn more_held_than_there_is() {
        let mut sale = good();
        let deed = ask("dan", "1", 1, 85, Answer::Accepted, "", Some("a.1.4"));
        sale.deed(deed);
        sale.books
            .orders
            .push(order("a.1.4", "dan", 1, State::Paid));
        sale.books.journal.push(reserved("a.1.4", "dan", 1));
        sale.books.items[0].sold = 4;
        sale.books.items[0].quotas = None;
        sale.breaks(&[NotOversold, Conserved]);
    }

    #[test]
    fn more_held_than_there_was_for_a_moment() {
        let mut sale = good();
        // The release comes after the reservation that needed it.
        sale.books.journal.swap(2, 3);
        sale.breaks(&[NotOversold]);
        // Unless units had been added before, and were withdrawn after.
        let mut sale = good();
        sale.books.journal.swap(2, 3);
        sale.books.journal.insert(2, posting(Movement::Added(1)));
        sale.books.journal.push(posting(Movement::Withdrawn(1)));
        sale.breaks(&[]);
    }

    #[test]
    fn more_than_a_buyer_may_have() {
        let mut sale = good();
        sale.books.items[0].limit = Some(1);
        sale.breaks(&[WithinLimit]);
    }

    #[test]
    fn more_than_a_buyer_may_have_for_a_moment() {
        let mut sale = good();
        sale.books.items[0].limit = Some(1);
        sale.books.orders[2].state = State::Expired;
        sale.books.journal.push(released("a.1.3", "cid", 2));
        sale.books.items[0].sold = 1;
        sale.books.items[0].counter.left = 2;
        sale.books.items[0].quotas = Some([("ann".into(), 1)].into());
        sale.breaks(&[WithinLimit]);
    }

    #[test]
    fn units_that_are_nowhere_or_twice() {
        for left in [-1, 1] {
            let mut sale = good();
            sale.books.items[0].counter.left = left;
            sale.breaks(&[Conserved]);
        }
        let mut sale = good();
        sale.books.items[0].sold = 2;
        sale.breaks(&[Conserved]);
        let mut sale = good();
        sale.books.items[0].total = None;
        sale.books.items[0].counter.left = 99;
        sale.breaks(&[]);
    }

    #[test]
    fn a_buyer_who_has_other_units_than_the_gate_believes() {
        for (buyer, units) in [("ann", 2), ("bob", 1)] {
            let mut sale = good();
            let quotas = sale.books.items[0].quotas.as_mut().expect("there are some");
            quotas.insert(buyer.into(), units);
            sale.breaks(&[Conserved]);
        }
        let mut sale = good();
        sale.books.items[0].quotas = Some([("ann".into(), 1)].into());
        sale.breaks(&[Conserved]);
        sale.books.items[0].quotas = None;
        sale.breaks(&[]);
    }

    #[test]
    fn units_that_go_back_twice_or_never() {
        let mut sale = good();
        sale.books.journal.push(released("a.1.2", "bob", 1));
        sale.breaks(&[ReleasedOnce]);
        let mut sale = good();
        sale.books.journal.push(released("a.1.1", "ann", 1));
        sale.breaks(&[ReleasedOnce]);
        let mut sale = good();
        sale.books.journal.insert(1, reserved("a.1.1", "ann", 1));
        sale.breaks(&[NotOversold, ReleasedOnce]);
        let mut sale = good();
        sale.books.journal.remove(0);
        sale.breaks(&[ReleasedOnce]);
    }

    #[test]
    fn units_of_an_order_that_is_not_there() {
        let mut sale = good();
        let ghost = sale.books.orders.remove(1);
        sale.books.journal.remove(2);
        sale.account
            .deeds
            .retain(|deed| deed.order.as_ref() != Some(&ghost.id));
        sale.breaks(&[NotOversold, ReleasedOnce]);
    }
}
