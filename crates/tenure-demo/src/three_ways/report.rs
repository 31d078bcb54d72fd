//! The report of the demo, readable without colour.

use std::fmt::Write;
use std::time::Duration;

use tenure_view::output::Paint;

use super::options::Options;
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

    /// Describes the demo before it starts.
    pub(crate) fn opening(&self, options: &Options) -> String {
        format!(
            "{} units, {} buyers, {} shop instances that serve {AT_ONCE} buyers each at a \
             time,\n{}.\n",
            options.stock,
            options.buyers,
            options.clients,
            self.shop.place()
        )
    }

    pub(crate) fn heading(&self, way: Way) -> String {
        let heading = match way {
            Way::Naive => "1. Naive: read the stock, wait for 1 ms, write it back".to_owned(),
            Way::Lock => format!(
                "2. Lock: the same while holding `{}`, and the write checks the fence",
                self.shop.lock_name()
            ),
            Way::Script => "3. Script: check, subtract and queue the order in one step, the other \
                            work comes later"
                .to_owned(),
        };
        self.paint.bold(&heading).to_string()
    }

    /// The result of a sale: the verdict, the invariant with its numbers, the speed.
    pub(crate) fn outcome(&self, tally: &Tally) -> String {
        format!(
            "   {}\n   {}\n   {:.0} orders/s, {:.2} s\n",
            verdict(self.paint, tally),
            invariant(self.paint, tally),
            tally.orders_per_second(),
            tally.time.as_secs_f64()
        )
    }

    /// Why the script is skipped here.
    pub(crate) fn skipped(&self) -> String {
        let url = self.shop.first_place();
        format!(
            "   skipped: one atomic script needs one server, because a script cannot span \
             several.\n   \
             Try: tenure demo --url {url}\n"
        )
    }

    /// A table that compares all sales.
    pub(crate) fn comparison(&self, tallies: &[Tally]) -> String {
        let mut table = comparison(tallies);
        table.push_str("\np50, p99: response times of buyers.\n");
        if self.shop.supports(Way::Script) {
            table.push_str(
                "With the script, the work for an order is done afterwards, from the queue.\n",
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
        return format!("{word}: {sold} of {initial} units sold, but {left} left");
    }
    match tally.way {
        Way::Naive => format!("{sold} units sold, correct by luck: try more buyers or instances"),
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

/// Always in milliseconds, so that times are easy to compare.
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
        let text = verdict(paint, tally);
        assert!(text.starts_with(verdict_begins), "{text}");
        let text = invariant(paint, tally);
        assert!(text.ends_with(invariant_ends), "{text}");
    }

    #[test]
    fn each_outcome_is_described() {
        let naive = |left, sold| tally(Way::Naive, left, sold);
        check(
            &naive(69, 1_000),
            "OVERSOLD by 900",
            "100 = 69 + 1000  BROKEN",
        );
        check(&naive(90, 20), "MISCOUNTED", "100 = 90 + 20  BROKEN");
        check(&naive(60, 40), "40 units sold, correct by luck", "holds");
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
