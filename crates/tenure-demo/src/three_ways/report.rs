//! What the demo says, in words that need no colour.

use std::fmt::Write;
use std::time::Duration;

use tenure_view::output::Paint;

use super::Options;
use super::sale::{AT_ONCE, Tally};
use super::shop::Shop;
use crate::ways::Way;

pub(crate) struct Report<'a> {
    paint: Paint,
    shop: &'a Shop,
}

impl<'a> Report<'a> {
    pub(crate) fn new(paint: Paint, shop: &'a Shop) -> Self {
        Self { paint, shop }
    }

    /// What is going to happen.
    pub(crate) fn opening(&self, options: &Options) -> String {
        format!(
            "{} units, {} buyers, {} shop instances that serve {AT_ONCE} buyers each at once,\n{}.\n",
            options.stock,
            options.buyers,
            options.clients,
            self.shop.place()
        )
    }

    pub(crate) fn heading(&self, way: Way) -> String {
        let heading = match way {
            Way::Naive => "1. Naive: read the stock, think for 1 ms, write it back".to_owned(),
            Way::Lock => format!(
                "2. Lock: the same while holding `{}`, and the write checks the fence",
                self.shop.lock_name()
            ),
            Way::Script => "3. Script: check, subtract and queue the order in one step, \
                            the thinking comes later"
                .to_owned(),
        };
        self.paint.bold(&heading).to_string()
    }

    /// What came of a sale: the verdict, the invariant with its numbers, the speed.
    pub(crate) fn outcome(&self, tally: &Tally) -> String {
        format!(
            "   {}\n   {}\n   {:.0} orders/s, {:.2} s\n",
            verdict(self.paint, tally),
            invariant(self.paint, tally),
            tally.orders_per_second(),
            tally.time.as_secs_f64()
        )
    }

    /// Why the script does not sell here.
    pub(crate) fn skipped(&self) -> String {
        let url = self.shop.first_place();
        format!(
            "   skipped: one atomic script needs one server, and no script spans several.\n   \
             Try: tenure demo --url {url}\n"
        )
    }

    /// All sales side by side.
    pub(crate) fn comparison(&self, tallies: &[Tally]) -> String {
        let mut table = comparison(tallies);
        table.push_str(
            "\np50, p99: the time within which 50 and 99 of 100 buyers had their answer.\n",
        );
        if self.shop.knows(Way::Script) {
            table.push_str(
                "By script there is no thinking between the check and the sale:\n\
                 an order's work is done after it, from the queue.\n",
            );
        }
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
        Way::Lock | Way::Script => {
            format!("{} {sold} units sold, no unit twice", paint.green("EXACT"))
        }
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

fn comparison(tallies: &[Tally]) -> String {
    let mut table = format!(
        "{:<8}{:>9}{:>10}{:>9}{:>11}{:>13}{:>13}\n",
        "way", "sold", "oversold", "left", "orders/s", "p50", "p99"
    );
    for tally in tallies {
        let _ = writeln!(
            table,
            "{:<8}{:>9}{:>10}{:>9}{:>11.0}{:>13}{:>13}",
            tally.way,
            tally.sold,
            tally.oversold(),
            tally.left,
            tally.orders_per_second(),
            milliseconds(tally.answers.percentile(50.0)),
            milliseconds(tally.answers.percentile(99.0)),
        );
    }
    table
}

/// One unit for all, so that they can be compared at a glance.
fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(way: Way, left: u64, sold: u64) -> Tally {
        Tally {
            way,
            initial: 100,
            left,
            sold,
            time: Duration::from_millis(500),
            answers: (1..=1_000).map(Duration::from_micros).collect(),
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
        check(
            &naive(69, 1_000),
            "OVERSOLD by 900",
            "100 = 69 + 1000  BROKEN",
        );
        check(&naive(90, 20), "MISCOUNTED", "100 = 90 + 20  BROKEN");
        check(&naive(60, 40), "40 units sold, right by luck", "holds");
        for way in [Way::Lock, Way::Script] {
            let exact = tally(way, 0, 100);
            check(&exact, "EXACT 100 units sold", "100 = 0 + 100  holds");
            check(&tally(way, 0, 99), "MISCOUNTED", "100 = 0 + 99  BROKEN");
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_way_under_one_heading() {
        let naive = tally(Way::Naive, 69, 1_000);
        let script = tally(Way::Script, 0, 100);
        let table = comparison(&[naive, tally(Way::Lock, 0, 100), script]);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let heading = ["way", "sold", "oversold", "left", "orders/s", "p50", "p99"];
        assert_eq!(rows[0], heading);
        let times = ["0.500", "ms", "0.990", "ms"];
        assert_eq!(rows[1][..5], ["naive", "1000", "900", "69", "2000"]);
        assert_eq!(rows[2][..5], ["lock", "100", "0", "0", "2000"]);
        assert_eq!(rows[3][..5], ["script", "100", "0", "0", "2000"]);
        assert!(rows[1..].iter().all(|row| row[5..] == times), "{table}");
        let mut widths = table.lines().map(|line| line.chars().count());
        let width = widths.next().unwrap();
        assert!(widths.all(|other| other == width), "{table}");
    }
}
