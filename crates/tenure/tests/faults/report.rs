//! What is printed at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tenure_testkit::history::{Op, Outcome as Result};
use tenure_testkit::{History, Seed};

use crate::fleet::Finished;
use crate::judge::Verdict;
use crate::plan::Phase;

/// How many violations of a kind are shown in full.
const SHOWN_MAX: usize = 3;

pub struct Report {
    pub seed: Seed,
    pub seconds: u64,
    pub took: Duration,
    pub outcomes: Vec<Outcome>,
}

/// What came of one phase.
pub struct Outcome {
    phase: Phase,
    skipped: Option<&'static str>,
    took: Duration,
    clients: u64,
    operations: BTreeMap<String, u64>,
    grants: usize,
    losses: usize,
    /// Those that took effect, and all.
    faults: BTreeMap<String, (u64, u64)>,
    verdicts: Vec<Verdict>,
}

impl Outcome {
    pub fn skipped(phase: Phase, why: &'static str) -> Self {
        Self {
            phase,
            skipped: Some(why),
            took: Duration::ZERO,
            clients: 0,
            operations: BTreeMap::new(),
            grants: 0,
            losses: 0,
            faults: BTreeMap::new(),
            verdicts: Vec::new(),
        }
    }

    pub fn new(
        phase: Phase,
        history: &History,
        verdicts: Vec<Verdict>,
        finished: &Finished,
        took: Duration,
    ) -> Self {
        let mut faults: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for fault in &history.faults {
            let counts = faults.entry(fault.kind.clone()).or_default();
            counts.0 += u64::from(fault.took_effect);
            counts.1 += 1;
        }
        Self {
            phase,
            skipped: None,
            took,
            clients: finished.clients,
            operations: finished.operations.clone(),
            grants: history.count(Op::Acquire, Result::Granted),
            losses: history.count(Op::Lost, Result::Done),
            faults,
            verdicts,
        }
    }

    fn counts(&self, verdict: &Verdict) -> bool {
        self.phase.sound || verdict.always
    }

    fn violations(&self) -> usize {
        let counted = self.verdicts.iter().filter(|verdict| self.counts(verdict));
        counted.map(|verdict| verdict.violations.len()).sum()
    }
}

impl Report {
    pub fn is_green(&self) -> bool {
        self.outcomes
            .iter()
            .all(|outcome| outcome.violations() == 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outcome in &self.outcomes {
            write!(f, "{outcome}")?;
        }
        let sum = |of: &dyn Fn(&Outcome) -> u64| self.outcomes.iter().map(of).sum::<u64>();
        let operations = sum(&|outcome| outcome.operations.values().sum());
        let faults = sum(&|outcome| outcome.faults.values().map(|counts| counts.0).sum());
        let violations: usize = self.outcomes.iter().map(Outcome::violations).sum();
        writeln!(f)?;
        row(f, "operations", operations)?;
        row(f, "faults that took effect", faults)?;
        row(f, "violations", violations)?;
        row(f, "seed", self.seed)?;
        row(f, "seconds", format!("{:.0}", self.took.as_secs_f64()))?;
        let (seed, seconds) = (self.seed, self.seconds);
        writeln!(
            f,
            "replay with: SEED={seed} SECONDS={seconds} cargo test -p tenure --test faults"
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.phase.name;
        if let Some(why) = self.skipped {
            return writeln!(f, "\nphase {name}: skipped, {why}");
        }
        writeln!(f, "\nphase {name}, {:.0} s", self.took.as_secs_f64())?;
        row(f, "client processes", self.clients)?;
        for (kind, count) in &self.operations {
            row(f, kind, count)?;
        }
        row(f, "grants", self.grants)?;
        row(f, "losses noticed", self.losses)?;
        for (kind, (effective, all)) in &self.faults {
            row(f, &format!("fault {kind}"), format!("{effective} of {all}"))?;
        }
        for verdict in &self.verdicts {
            let only = if self.counts(verdict) {
                ""
            } else {
                ", reported only"
            };
            let count = verdict.violations.len();
            row(f, verdict.check, format!("{count} violations{only}"))?;
        }
        for verdict in self.verdicts.iter().filter(|verdict| self.counts(verdict)) {
            for violation in verdict.violations.iter().take(SHOWN_MAX) {
                writeln!(f, "{}: {violation}", verdict.check)?;
            }
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {name:<28} {value}")
}
