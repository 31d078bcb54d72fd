//! Checks that nothing is queued or pending at the end.

use super::Case;
use crate::check::Violation;

pub(super) fn quiet(case: &Case<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut dead = 0;
    for item in &case.books.items {
        let counter = item.counter;
        dead += counter.dead;
        if counter.queued > 0 || counter.pending > 0 {
            let evidence = format!("{} queued, {} pending", counter.queued, counter.pending);
            violations.push(Violation::new("not drained", &item.name, &[&evidence]));
        }
    }
    if dead != case.allowed.dead {
        let evidence = format!("{dead} dead orders, expected {}", case.allowed.dead);
        violations.push(Violation::new("dead letters", "all items", &[&evidence]));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::Invariant::Quiet;
    use super::super::testing::good;

    #[test]
    fn unfinished_work() {
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
