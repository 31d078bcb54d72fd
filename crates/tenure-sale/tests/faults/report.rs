//! What is printed at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tenure_testkit::Seed;
use tenure_testkit::sale::{Account, Answer, Books, Breach, Invariant, Kind};

use crate::deployment::Deployment;

/// How many violations of a kind are shown in full.
const SHOWN_MAX: usize = 3;
/// The same at the very end, where the last lines of a long log must hold as many kinds as possible.
const SHOWN_AGAIN_MAX: usize = 2;

pub struct Report {
    pub deployment: Deployment,
    pub seed: Seed,
    /// How long this deployment was broken.
    pub seconds: u64,
    pub took: Duration,
    /// How long after everything was healed each item sold again.
    pub sold_again: Duration,
    pub processes: u64,
    pub account: Account,
    pub books: Books,
    pub breaches: Vec<Breach>,
    /// Panics, processes that hang, what did not come to rest.
    pub complaints: Vec<String>,
    pub dir: PathBuf,
}

/// What must happen in each three seconds: a run that does nothing proves nothing.
const LEAST: [(&str, u64); 3] = [
    ("attempts", 300),
    ("accepted", 15),
    ("faults that took effect", 1),
];

impl Report {
    pub fn is_green(&self) -> bool {
        self.breaches.is_empty() && self.complaints.is_empty() && self.shortfalls().is_empty()
    }

    /// What there was too little of.
    fn shortfalls(&self) -> Vec<String> {
        let counts = [
            self.asked(|_| true),
            self.asked(|answer| answer == Answer::Accepted),
            self.faults().values().map(|(effective, _)| effective).sum(),
        ];
        let least = LEAST.iter().zip(counts);
        let missed = least.filter(|((_, least), count)| *count < least * self.seconds / 3);
        missed
            .map(|((what, _), count)| format!("too few {what}: {count}"))
            .collect()
    }

    fn asked(&self, wanted: impl Fn(Answer) -> bool) -> u64 {
        let asks = self.account.operations.iter();
        let asks = asks.filter(|operation| operation.kind == Kind::Ask && wanted(operation.answer));
        asks.count() as u64
    }

    /// Those that took effect, and all.
    fn faults(&self) -> BTreeMap<&str, (u64, u64)> {
        let mut faults: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for fault in &self.account.faults {
            let counts = faults.entry(&fault.kind).or_default();
            counts.0 += u64::from(fault.took_effect);
            counts.1 += 1;
        }
        faults
    }

    fn refused(&self) -> BTreeMap<&str, u64> {
        let mut words = BTreeMap::new();
        for operation in &self.account.operations {
            if operation.kind == Kind::Ask && operation.answer == Answer::Refused {
                *words.entry(operation.word.as_str()).or_default() += 1;
            }
        }
        words
    }

    fn states(&self) -> BTreeMap<String, u64> {
        let mut states = BTreeMap::new();
        for order in &self.books.orders {
            *states.entry(order.state.to_string()).or_default() += 1;
        }
        states
    }

    /// All that keeps this from being green, in a few lines.
    pub fn failures(&self) -> String {
        let mut lines = Vec::new();
        for invariant in Invariant::ALL {
            let of_it = || self.breaches.iter().filter(|it| it.invariant == invariant);
            let (name, count) = (invariant.name(), of_it().count());
            if count > 0 {
                lines.push(format!("{name}: {count} violations"));
            }
            lines.extend(of_it().take(SHOWN_AGAIN_MAX).map(ToString::to_string));
        }
        let complaints = self.complaints.iter().take(SHOWN_MAX).cloned();
        lines.extend(complaints.chain(self.shortfalls()));
        let lines: Vec<String> = lines
            .iter()
            .map(|line| format!("sale on {}: {line}\n", self.deployment))
            .collect();
        lines.concat()
    }

    fn write_breaches(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for invariant in Invariant::ALL {
            let of_it = || self.breaches.iter().filter(|it| it.invariant == invariant);
            row(
                f,
                invariant.name(),
                format!("{} violations", of_it().count()),
            )?;
            for breach in of_it().take(SHOWN_MAX) {
                writeln!(f, "{breach}")?;
            }
        }
        for complaint in &self.complaints {
            writeln!(f, "{complaint}")?;
        }
        for shortfall in self.shortfalls() {
            writeln!(f, "{shortfall}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (deployment, seed, seconds) = (self.deployment, self.seed, self.seconds);
        writeln!(
            f,
            "\nsale on {deployment}, {:.0} s",
            self.took.as_secs_f64()
        )?;
        row(f, "processes", self.processes)?;
        let again = format!("after {:.1} s", self.sold_again.as_secs_f64());
        row(f, "all items sell again", again)?;
        row(f, "attempts", self.asked(|_| true))?;
        for answer in [Answer::Accepted, Answer::Replayed, Answer::Unknown] {
            row(f, &answer.to_string(), self.asked(|it| it == answer))?;
        }
        for (word, count) in self.refused() {
            row(f, &format!("refused {word}"), count)?;
        }
        for (state, count) in self.states() {
            row(f, &format!("order {state}"), count)?;
        }
        for item in &self.books.items {
            let total = item.total.map_or("unlimited".into(), |it| it.to_string());
            let (sold, left) = (item.sold, item.counter.left);
            row(
                f,
                &format!("item {}", item.name),
                format!("{sold} sold, {left} left of {total}"),
            )?;
        }
        for (kind, (effective, all)) in self.faults() {
            row(f, &format!("fault {kind}"), format!("{effective} of {all}"))?;
        }
        self.write_breaches(f)?;
        if !self.is_green() {
            writeln!(f, "what everybody did is in {}", self.dir.display())?;
        }
        writeln!(
            f,
            "replay with: make faults-sale DEPLOYMENT={deployment} SEED={seed} SECONDS={seconds}"
        )
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {name:<28} {value}")
}
