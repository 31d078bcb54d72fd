//! What the demo says, in words that need no colour.

use std::fmt::Write;

use super::sale::{AT_ONCE, Tally, Way};
use super::shop::Shop;
use crate::args::DemoArgs;
use crate::output::Paint;

pub struct Report<'a> {
    paint: Paint,
    shop: &'a Shop,
}

impl<'a> Report<'a> {
    pub fn new(paint: Paint, shop: &'a Shop) -> Self {
        Self { paint, shop }
    }

    /// What is going to happen.
    pub fn opening(&self, args: &DemoArgs) -> String {
        format!(
            "{} units, {} buyers, {} shop instances that serve {AT_ONCE} buyers each at once,\n{}.\n",
            args.stock,
            args.buyers,
            args.clients,
            self.shop.place()
        )
    }

    pub fn heading(&self, way: Way) -> String {
        let heading = match way {
            Way::Naive => "1. Naive: read the stock, think for 1 ms, write it back".to_owned(),
            Way::Locked => format!(
                "2. Lock: the same while holding `{}`, and the write checks the fence",
                self.shop.lock_name()
            ),
        };
        self.paint.bold(&heading).to_string()
    }

    /// What came of a sale: the verdict, the invariant with its numbers, the speed.
    pub fn outcome(&self, tally: &Tally) -> String {
        format!(
            "   {}\n   {}\n   {:.0} orders/s, {:.2} s\n",
            verdict(self.paint, tally),
            invariant(self.paint, tally),
            tally.orders_per_second(),
            tally.time.as_secs_f64()
        )
    }

    /// All sales side by side.
    pub fn comparison(&self, tallies: &[&Tally]) -> String {
        let mut table = comparison(tallies);
        if self.shop.is_embedded() {
            table.push_str("\nThe same on a server: tenure demo --url redis://127.0.0.1/");
        }
        table
    }
}

fn verdict(paint: Paint, tally: &Tally) -> String {
    let Tally {
        initial,
        left,
        sold,
        ..
    } = *tally;
    let oversold = tally.oversold();
    if oversold > 0 {
        let word = paint.red("OVERSOLD");
        return format!("{word} by {oversold}: {sold} orders confirmed for {initial} units");
    }
    if !tally.holds() {
        let word = paint.red("MISCOUNTED");
        return format!("{word}: {sold} of {initial} units sold, and {left} said to be left");
    }
    match tally.way {
        Way::Naive => format!("{sold} units sold, right by luck: try more buyers or instances"),
        Way::Locked => format!("{} {sold} units sold, no unit twice", paint.green("EXACT")),
    }
}

fn invariant(paint: Paint, tally: &Tally) -> String {
    let Tally {
        initial,
        left,
        sold,
        ..
    } = *tally;
    let state = if tally.holds() {
        paint.green("holds")
    } else {
        paint.red("BROKEN")
    };
    format!("initial = left + sold:  {initial} = {left} + {sold}  {state}")
}

fn comparison(tallies: &[&Tally]) -> String {
    let mut table = format!(
        "{:<8}{:>10}{:>10}{:>10}{:>12}{:>10}\n",
        "", "sold", "oversold", "left", "orders/s", "time"
    );
    for tally in tallies {
        let way = match tally.way {
            Way::Naive => "naive",
            Way::Locked => "lock",
        };
        let _ = writeln!(
            table,
            "{way:<8}{:>10}{:>10}{:>10}{:>12.0}{:>8.2} s",
            tally.sold,
            tally.oversold(),
            tally.left,
            tally.orders_per_second(),
            tally.time.as_secs_f64()
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tally(way: Way, left: u64, sold: u64) -> Tally {
        Tally {
            way,
            initial: 100,
            left,
            sold,
            answered: 1_000,
            time: Duration::from_millis(500),
        }
    }

    #[track_caller]
    fn check(tally: &Tally, verdict_begins: &str, invariant_ends: &str) {
        let paint = Paint::none();
        let told = verdict(paint, tally);
        assert!(told.starts_with(verdict_begins), "{told}");
        let told = invariant(paint, tally);
        assert!(told.ends_with(invariant_ends), "{told}");
    }

    #[test]
    fn each_outcome_has_its_words() {
        let naive = |left, sold| tally(Way::Naive, left, sold);
        let locked = |left, sold| tally(Way::Locked, left, sold);
        check(
            &naive(69, 1_000),
            "OVERSOLD by 900",
            "100 = 69 + 1000  BROKEN",
        );
        check(&naive(90, 20), "MISCOUNTED", "100 = 90 + 20  BROKEN");
        check(&naive(60, 40), "40 units sold, right by luck", "holds");
        check(
            &locked(0, 100),
            "EXACT 100 units sold",
            "100 = 0 + 100  holds",
        );
        check(&locked(0, 99), "MISCOUNTED", "100 = 0 + 99  BROKEN");
    }

    #[test]
    fn the_table_has_a_row_for_each_way() {
        let table = comparison(&[&tally(Way::Naive, 69, 1_000), &tally(Way::Locked, 0, 100)]);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["naive", "1000", "900", "69", "2000", "0.50", "s"]);
        assert_eq!(rows[2], ["lock", "100", "0", "0", "2000", "0.50", "s"]);
    }
}
