//! Checks how many units exist and which orders hold them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Case;
use crate::check::Violation;
use crate::sale::books::{Item, Movement};

/// Orders never hold more units than exist.
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
            let evidence = format!("{held} units are held, but only {total} exist");
            violations.push(Violation::new("oversold", &item.name, &[&evidence]));
        }
        violations.extend(temporarily_oversold(case, item, total));
    }
    violations
}

/// The first commit after which orders held more units than existed.
fn temporarily_oversold(case: &Case<'_>, item: &Item, total: u64) -> Option<Violation> {
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
            let evidence = format!("{held} of {total} units were held after movement {number}");
            let rule = "temporarily oversold";
            return Some(Violation::new(rule, &item.name, &[&evidence, movement]));
        }
    }
    None
}

/// No buyer exceeds the limit.
pub(super) fn within_limit(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in &case.books.items {
        let Some(limit) = item.limit else { continue };
        let mut has: HashMap<&str, u64> = HashMap::new();
        for order in case.books.holding(&item.name) {
            *has.entry(&order.buyer).or_default() += order.units;
        }
        for (buyer, units) in has.iter().filter(|(_, units)| **units > limit) {
            let evidence = format!("`{buyer}` has {units} units, the limit is {limit}");
            violations.push(Violation::new("above the limit", &item.name, &[&evidence]));
        }
        let mut has: HashMap<&str, u64> = HashMap::new();
        for movement in case.books.postings(&item.name) {
            if let Movement::Reserved { buyer, units, .. } = movement {
                let has = has.entry(buyer).or_default();
                *has += units;
                if *has > limit {
                    let evidence = format!("`{buyer}` had {has} units then, the limit is {limit}");
                    let rule = "temporarily above the limit";
                    violations.push(Violation::new(rule, &item.name, &[movement, &evidence]));
                }
            } else if let Movement::Released { buyer, units, .. } = movement {
                let has = has.entry(buyer).or_default();
                *has = has.saturating_sub(*units);
            }
        }
    }
    violations
}

/// Left, queued and sold units add up to all units.
pub(super) fn conserved(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in &case.books.items {
        let held: u64 = case
            .books
            .holding(&item.name)
            .map(|order| order.units)
            .sum();
        if held != item.sold {
            let evidence = format!("orders hold {held} units, the ledger counts {}", item.sold);
            violations.push(Violation::new("miscounted", &item.name, &[&evidence]));
        }
        violations.extend(quota_drift(case, item));
        let Some(total) = item.total else { continue };
        let counter = item.counter;
        if counter.left < 0 {
            let evidence = format!("{} units are left at the gate", counter.left);
            violations.push(Violation::new("below zero", &item.name, &[&evidence]));
        }
        let accounted = i128::from(counter.left) + i128::from(counter.queued_units + held);
        if accounted != i128::from(total) {
            let evidence = format!(
                "{} left at the gate, {} queued, {held} held: {accounted} of {total} units",
                counter.left, counter.queued_units
            );
            violations.push(Violation::new("drift", &item.name, &[&evidence]));
        }
    }
    violations
}

/// Buyers whose units differ between gate and ledger.
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
            let evidence = format!(
                "`{buyer}` has {}, but {} at the gate",
                has.unwrap_or(&0),
                believed.unwrap_or(&0)
            );
            Violation::new("quota drift", &item.name, &[&evidence])
        })
        .collect()
}

/// Each order's units are reserved once and released once.
pub(super) fn released_once(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut held: HashMap<&str, bool> = HashMap::new();
    for posting in &case.books.journal {
        let (order, reserves) = match &posting.movement {
            Movement::Reserved { order, .. } => (order, true),
            Movement::Released { order, .. } => (order, false),
            Movement::Added(_) | Movement::Withdrawn(_) => continue,
        };
        let holds = held.entry(order).or_default();
        if *holds == reserves {
            let rule = if reserves {
                "reserved twice"
            } else {
                "released without being held"
            };
            violations.push(Violation::new(rule, order, &[&posting.movement]));
        }
        *holds = reserves;
    }
    for order in &case.books.orders {
        let by_journal = held.remove(order.id.as_str()).unwrap_or_default();
        if by_journal != order.state.holds_units() {
            let evidence = if by_journal {
                "according to the journal it holds its units"
            } else {
                "according to the journal it holds none"
            };
            violations.push(Violation::new(
                "journal and order differ",
                &order.id,
                &[order, &evidence],
            ));
        }
    }
    for order in held.into_iter().filter(|(_, holds)| *holds) {
        let evidence = "its units are held, but the ledger has no such order";
        violations.push(Violation::new(
            "held by an unknown order",
            order.0,
            &[&evidence],
        ));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::Invariant::{Conserved, NotOversold, ReleasedOnce, WithinLimit};
    use super::super::testing::*;
    use crate::sale::{Answer, Movement, State};

    #[test]
    fn more_held_than_exists() {
        let mut sale = good();
        let operation = ask("dan", "1", 1, 85, Answer::Accepted, "", Some("a.1.4"));
        sale.operation(operation);
        sale.books
            .orders
            .push(order("a.1.4", "dan", 1, State::Paid));
        sale.books.journal.push(reserved("a.1.4", "dan", 1));
        sale.books.items[0].sold = 4;
        sale.books.items[0].quotas = None;
        sale.breaks(&[NotOversold, Conserved]);
    }

    #[test]
    fn more_held_than_exists_temporarily() {
        let mut sale = good();
        // The release comes after the reservation that needs it.
        sale.books.journal.swap(2, 3);
        sale.breaks(&[NotOversold]);
        // Fine if units were added before and withdrawn after.
        let mut sale = good();
        sale.books.journal.swap(2, 3);
        sale.books.journal.insert(2, posting(Movement::Added(1)));
        sale.books.journal.push(posting(Movement::Withdrawn(1)));
        sale.breaks(&[]);
    }

    #[test]
    fn a_buyer_above_the_limit() {
        let mut sale = good();
        sale.books.items[0].limit = Some(1);
        sale.breaks(&[WithinLimit]);
    }

    #[test]
    fn a_buyer_temporarily_above_the_limit() {
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
    fn units_missing_or_counted_twice() {
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
    fn a_buyer_whose_units_differ_at_the_gate() {
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
    fn units_released_twice_or_never() {
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
    fn units_of_a_missing_order() {
        let mut sale = good();
        let ghost = sale.books.orders.remove(1);
        sale.books.journal.remove(2);
        sale.account
            .operations
            .retain(|operation| operation.order.as_ref() != Some(&ghost.id));
        sale.breaks(&[NotOversold, ReleasedOnce]);
    }
}
