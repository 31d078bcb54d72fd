//! What is printed at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tenure::Layout;
use tenure_testkit::history::{Op, Outcome as Result};
use tenure_testkit::{History, Seed};

use crate::fleet::Finished;
use crate::judge::Verdict;
use crate::plan::{Phase, SECONDS_DEFAULT};

/// How many violations of a kind are shown in full.
const SHOWN_MAX: usize = 3;
/// What a run of the default length must reach.
const OPERATIONS_MIN: u64 = 100_000;
const FAULTS_MIN: u64 = 100;
const KINDS_MIN: u64 = 12;
const HANDED_OFF_MIN: u64 = 1_000;

pub struct Report {
    pub seed: Seed,
    pub seconds: u64,
    /// If it was one only.
    pub layout: Option<Layout>,
    pub took: Duration,
    pub outcomes: Vec<Outcome>,
}

/// What came of one phase.
pub struct Outcome {
    phase: Phase,
    layout: Layout,
    skipped: Option<&'static str>,
    took: Duration,
    clients: u64,
    operations: BTreeMap<String, u64>,
    handed_off: u64,
    grants: usize,
    losses: usize,
    /// Those that took effect, and all.
    faults: BTreeMap<String, (u64, u64)>,
    verdicts: Vec<Verdict>,
}

impl Outcome {
    pub fn skipped(phase: Phase, layout: Layout, why: &'static str) -> Self {
        Self {
            phase,
            layout,
            skipped: Some(why),
            took: Duration::ZERO,
            clients: 0,
            operations: BTreeMap::new(),
            handed_off: 0,
            grants: 0,
            losses: 0,
            faults: BTreeMap::new(),
            verdicts: Vec::new(),
        }
    }

    pub fn new(
        phase: Phase,
        layout: Layout,
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
            layout,
            skipped: None,
            took,
            clients: finished.clients,
            operations: finished.operations.clone(),
            handed_off: finished.handed_off,
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
        self.violations() == 0 && self.shortfalls().is_empty()
    }

    fn violations(&self) -> usize {
        self.outcomes.iter().map(Outcome::violations).sum()
    }

    fn operations(&self) -> u64 {
        let counts = self.outcomes.iter();
        counts.flat_map(|outcome| outcome.operations.values()).sum()
    }

    fn handed_off(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.handed_off).sum()
    }

    fn faults(&self) -> u64 {
        let faults = self.outcomes.iter().flat_map(|outcome| &outcome.faults);
        faults.map(|(_, (effective, _))| effective).sum()
    }

    fn kinds(&self) -> u64 {
        let faults = self.outcomes.iter().flat_map(|outcome| &outcome.faults);
        let effective = faults.filter(|(_, (effective, _))| *effective > 0);
        let kinds: BTreeSet<&String> = effective.map(|(kind, _)| kind).collect();
        kinds.len() as u64
    }

    /// What a run of full length did too little of: it would prove nothing.
    fn shortfalls(&self) -> Vec<String> {
        if self.seconds < SECONDS_DEFAULT {
            return Vec::new();
        }
        let counts = [
            ("operations", self.operations(), OPERATIONS_MIN),
            ("locks handed off", self.handed_off(), HANDED_OFF_MIN),
            ("faults that took effect", self.faults(), FAULTS_MIN),
            ("kinds of faults", self.kinds(), KINDS_MIN),
        ];
        let short = counts.into_iter().filter(|(_, count, min)| count < min);
        short
            .map(|(what, count, min)| format!("too few {what}: {count} of {min}"))
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outcome in &self.outcomes {
            write!(f, "{outcome}")?;
        }
        writeln!(f)?;
        row(f, "operations", self.operations())?;
        row(f, "locks handed off", self.handed_off())?;
        row(f, "faults that took effect", self.faults())?;
        row(f, "kinds of faults", self.kinds())?;
        row(f, "violations", self.violations())?;
        for shortfall in self.shortfalls() {
            writeln!(f, "{shortfall}")?;
        }
        row(f, "seed", self.seed)?;
        row(f, "seconds", format!("{:.0}", self.took.as_secs_f64()))?;
        let (seed, seconds) = (self.seed, self.seconds);
        let layout = self.layout.map(|layout| format!("LAYOUT={layout} "));
        let layout = layout.unwrap_or_default();
        writeln!(
            f,
            "replay with: {layout}SEED={seed} SECONDS={seconds} cargo test -p tenure --test faults"
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{} ({})", self.phase.name, self.layout);
        if let Some(why) = self.skipped {
            return writeln!(f, "\nphase {name}: skipped, {why}");
        }
        writeln!(f, "\nphase {name}, {:.0} s", self.took.as_secs_f64())?;
        row(f, "client processes", self.clients)?;
        for (kind, count) in &self.operations {
            row(f, kind, count)?;
        }
        row(f, "grants", self.grants)?;
        row(f, "handed off", self.handed_off)?;
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
