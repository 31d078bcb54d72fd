//! The end: nothing waits, nothing is half done.

use super::Case;
use crate::check::Violation;

pub(super) fn quiet(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut dead = 0;
    for item in &case.books.items {
        let counter = item.counter;
        dead += counter.dead;
        if counter.queued > 0 || counter.pending > 0 {
            let said = format!("{} queued, {} pending", counter.queued, counter.pending);
            violations.push(Violation::new("not drained", &item.name, &[&said]));
        }
    }
    if dead != case.allowed.dead {
        let said = format!("{dead} are dead, {} were meant to be", case.allowed.dead);
        violations.push(Violation::new("dead letters", "all items", &[&said]));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::Invariant::Quiet;
    use super::super::testing::good;

    #[test]
    fn something_is_left_to_be_done() {
        let mut sale = good();
        sale.books.items[0].counter.queued = 1;
        sale.breaks(&[Quiet]);
        let mut sale = good();
        sale.books.items[0].counter.pending = 1;
        sale.breaks(&[Quiet]);
        let mut sale = good();
        sale.books.items[0].counter.dead = 1;
        sale.breaks(&[Quiet]);
        sale.allowed.dead = 1;
        sale.breaks(&[]);
        sale.allowed.dead = 2;
        sale.breaks(&[Quiet]);
    }
}
