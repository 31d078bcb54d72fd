//! The report of the pitfalls, readable without colour.

use std::fmt::Write;
use std::time::Duration;

use tenure_view::output::Paint;

use super::play::Outcome;
use super::rows::{ROWS, Row};
use crate::Ended;

/// Counts the outcomes of the pitfalls played so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    played: usize,
    /// Mistakes that caused the expected damage.
    shown: usize,
    /// Mistakes that Tenure avoided.
    held: usize,
    skipped: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Played { mistake, tenure } => {
                self.played += 1;
                self.shown += usize::from(mistake.is_expected);
                self.held += usize::from(tenure.is_expected);
            }
            Outcome::Skipped(_) => self.skipped += 1,
        }
    }

    pub(crate) fn ended(&self) -> Ended {
        if self.shown == self.played && self.held == self.played {
            Ended::Held
        } else {
            Ended::Broken
        }
    }

    pub(crate) fn line(&self, time: Duration) -> String {
        let Self {
            played,
            shown,
            held,
            skipped,
        } = self;
        let mut line = format!(
            "{shown} of {played} mistakes shown, {held} of {played} avoided with Tenure, in {:.1} s",
            time.as_secs_f64()
        );
        if *skipped > 0 {
            let _ = write!(line, "; {skipped} skipped");
        }
        line
    }
}

/// One pitfall: the usual code, its outcome, and the outcome with Tenure.
pub(crate) fn outcome(paint: Paint, row: &Row, outcome: &Outcome) -> String {
    let heading = paint.bold(row.name);
    let mut lines = format!("{heading}: {}\n", row.they_write);
    match outcome {
        Outcome::Played { mistake, tenure } => {
            let (label, words) = if mistake.is_expected {
                (paint.red("mistake"), "")
            } else {
                (paint.red("mistake"), "DID NOT SHOW: ")
            };
            let _ = writeln!(lines, "   {label}  {words}{}", mistake.words);
            let (label, words) = if tenure.is_expected {
                (paint.green("tenure"), "")
            } else {
                (paint.red("tenure"), "DID NOT HOLD: ")
            };
            let _ = write!(lines, "   {label}   {words}{}", tenure.words);
        }
        Outcome::Skipped(reason) => {
            let _ = write!(lines, "   skipped  {reason}");
        }
    }
    lines
}

/// Lists all pitfalls.
pub(crate) fn list(paint: Paint) -> String {
    let mut lines = String::new();
    for row in &ROWS {
        let Row {
            name,
            they_write,
            goes_wrong,
            tenure_does,
        } = row;
        let heading = paint.bold(name);
        let _ = write!(
            lines,
            "{heading}: {they_write}\n   mistake  {goes_wrong}\n   tenure   {tenure_does}\n"
        );
    }
    lines.truncate(lines.trim_end().len());
    lines
}

#[cfg(test)]
mod tests {
    use super::super::pitfall::Observed;
    use super::*;

    fn played(shows: bool, holds: bool) -> Outcome {
        Outcome::Played {
            mistake: Observed::when(shows, "two holders"),
            tenure: Observed::when(holds, "one holder"),
        }
    }

    #[track_caller]
    fn check(played: &Outcome, result: &[&str], exit: Ended) {
        let lines = outcome(Paint::none(), &ROWS[1], played);
        let mut tally = Tally::default();
        tally.add(played);
        let expected = [&["setnx-without-expiry: `SETNX`, work, `DEL`"], result].concat();
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
        assert_eq!(tally.ended(), exit);
    }

    #[test]
    fn each_outcome_is_described() {
        let good = ["   mistake  two holders", "   tenure   one holder"];
        check(&played(true, true), &good, Ended::Held);
        let no_show = ["   mistake  DID NOT SHOW: two holders", good[1]];
        check(&played(false, true), &no_show, Ended::Broken);
        let no_hold = [good[0], "   tenure   DID NOT HOLD: one holder"];
        check(&played(true, false), &no_hold, Ended::Broken);
        let skipped = Outcome::Skipped("there is no server".to_owned());
        check(&skipped, &["   skipped  there is no server"], Ended::Held);
    }

    #[test]
    fn the_tally_counts_each_kind() {
        let mut tally = Tally::default();
        for outcome in [
            played(true, true),
            played(true, false),
            Outcome::Skipped(String::new()),
        ] {
            tally.add(&outcome);
        }
        assert_eq!(
            tally.line(Duration::from_millis(1500)),
            "2 of 2 mistakes shown, 1 of 2 avoided with Tenure, in 1.5 s; 1 skipped"
        );
        assert_eq!(tally.ended(), Ended::Broken);
    }
}
