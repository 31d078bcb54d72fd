//! What is printed at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tenure_testkit::History;
use tenure_testkit::history::{Op, Outcome as Result};

use crate::allowance::Footing;
use crate::deployment::Deployment;
use crate::fleet::Finished;
use crate::judge::Verdict;
use crate::nemesis::WITH_THE_GONE;
use crate::phase::Phase;
use crate::plan::{self, Plan, Share};

/// How many violations of a kind are shown in full.
const SHOWN_MAX: usize = 3;
/// The same at the very end, where the last lines of a long log must hold as many kinds as possible.
const SHOWN_AGAIN_MAX: usize = 2;

/// What was run, and what came of it.
pub struct Report {
    pub plan: Plan,
    pub took: Duration,
    pub outcomes: Vec<Outcome>,
}

/// What came of one phase.
pub struct Outcome {
    phase: &'static str,
    share: Share,
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
    pub fn skipped(phase: &Phase, share: Share, why: &'static str) -> Self {
        Self {
            phase: phase.name,
            share,
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
        phase: &Phase,
        share: Share,
        history: &History,
        verdicts: Vec<Verdict>,
        finished: &Finished,
        took: Duration,
    ) -> Self {
        let mut faults: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let injected = history.faults.iter();
        for fault in injected.filter(|fault| fault.kind != WITH_THE_GONE) {
            let counts = faults.entry(fault.kind.clone()).or_default();
            counts.0 += u64::from(fault.took_effect);
            counts.1 += 1;
        }
        Self {
            phase: phase.name,
            share,
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

    /// Adds what came of the same phase in a later round.
    pub fn add(&mut self, later: Self) {
        self.skipped = self.skipped.and(later.skipped);
        self.took += later.took;
        self.clients += later.clients;
        self.handed_off += later.handed_off;
        self.grants += later.grants;
        self.losses += later.losses;
        for (kind, count) in later.operations {
            *self.operations.entry(kind).or_default() += count;
        }
        for (kind, (effective, all)) in later.faults {
            let counts = self.faults.entry(kind).or_default();
            counts.0 += effective;
            counts.1 += all;
        }
        for verdict in later.verdicts {
            // A server that was taken for dead may have changed what had to hold.
            let same = |earlier: &&mut Verdict| {
                (earlier.check, earlier.footing, earlier.must_hold)
                    == (verdict.check, verdict.footing, verdict.must_hold)
            };
            match self.verdicts.iter_mut().find(same) {
                Some(earlier) => earlier.violations.extend(verdict.violations),
                None => self.verdicts.push(verdict),
            }
        }
    }

    /// Reports the result at once, for a long run.
    pub fn tell(&self) {
        let (name, operations) = (self.name(), self.operations());
        let (faults, took) = (self.effective_faults(), self.took.as_secs());
        if let Some(why) = self.skipped {
            return eprintln!("phase {name}: skipped, {why}");
        }
        eprintln!("phase {name}: {operations} operations, {faults} faults in {took} s");
        for verdict in self.failures() {
            let count = verdict.violations.len();
            eprintln!("phase {name}, {}: {count} violations", verdict.name());
        }
    }

    fn name(&self) -> String {
        let (deployment, layout) = (self.share.deployment, self.share.layout);
        format!("{} ({deployment}, {layout})", self.phase)
    }

    /// What may not be.
    fn failures(&self) -> impl Iterator<Item = &Verdict> {
        let must_hold = self.verdicts.iter().filter(|verdict| verdict.must_hold);
        must_hold.filter(|verdict| !verdict.violations.is_empty())
    }

    fn violations(&self) -> usize {
        self.failures()
            .map(|verdict| verdict.violations.len())
            .sum()
    }

    fn operations(&self) -> u64 {
        self.operations.values().sum()
    }

    fn effective_faults(&self) -> u64 {
        self.faults.values().map(|(effective, _)| effective).sum()
    }

    fn effective_kinds(&self) -> impl Iterator<Item = &String> {
        let faults = self.faults.iter();
        let effective = faults.filter(|(_, (effective, _))| *effective > 0);
        effective.map(|(kind, _)| kind)
    }
}

/// What phases came to together.
#[derive(Default)]
struct Sum {
    operations: u64,
    handed_off: u64,
    faults: u64,
    kinds: u64,
}

impl Sum {
    fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        let mut sum = Self::default();
        let mut kinds = BTreeSet::new();
        for outcome in outcomes {
            sum.operations += outcome.operations();
            sum.handed_off += outcome.handed_off;
            sum.faults += outcome.effective_faults();
            kinds.extend(outcome.effective_kinds());
        }
        sum.kinds = kinds.len() as u64;
        sum
    }
}

/// What a run must reach on a deployment, in the time that CI has for it: one that does nothing
/// proves nothing.
struct Least {
    seconds: u64,
    sum: Sum,
}

fn least(deployment: Deployment) -> Least {
    let (seconds, operations, handed_off, faults, kinds) = match deployment {
        Deployment::Single => (41, 35_000, 350, 50, 14),
        Deployment::Redlock => (14, 5_000, 50, 20, 12),
        Deployment::Sentinel | Deployment::Cluster => (17, 4_000, 100, 8, 6),
    };
    Least {
        seconds,
        sum: Sum {
            operations,
            handed_off,
            faults,
            kinds,
        },
    }
}

impl Report {
    pub fn is_green(&self) -> bool {
        self.violations() == 0 && self.shortfalls().is_empty()
    }

    fn violations(&self) -> usize {
        self.outcomes.iter().map(Outcome::violations).sum()
    }

    /// What a run of full length did too little of.
    fn shortfalls(&self) -> Vec<String> {
        let mut shortfalls = Vec::new();
        for deployment in Deployment::ALL {
            let Least {
                seconds,
                sum: least,
            } = least(deployment);
            if self.plan.time_of_all(deployment) < Duration::from_secs(seconds) {
                continue;
            }
            let outcomes = self.outcomes.iter();
            let sum = Sum::of(outcomes.filter(|it| it.share.deployment == deployment));
            let counts = [
                ("operations", sum.operations, least.operations),
                ("locks handed off", sum.handed_off, least.handed_off),
                ("faults that took effect", sum.faults, least.faults),
                ("kinds of faults", sum.kinds, least.kinds),
            ];
            for (what, count, least) in counts.iter().filter(|(_, count, least)| count < least) {
                shortfalls.push(format!(
                    "too few {what} on {deployment}: {count} of {least}"
                ));
            }
        }
        shortfalls
    }

    /// Faults of all phases: those that took effect, and all.
    fn faults(&self) -> BTreeMap<&str, (u64, u64)> {
        let mut faults: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (kind, (effective, all)) in self.outcomes.iter().flat_map(|it| &it.faults) {
            let counts = faults.entry(kind).or_default();
            counts.0 += effective;
            counts.1 += all;
        }
        faults
    }

    /// What was violated where, that which was allowed included.
    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outcome in &self.outcomes {
            let verdicts = outcome.verdicts.iter();
            for verdict in verdicts.filter(|verdict| !verdict.violations.is_empty()) {
                let only = if verdict.must_hold { "" } else { " (allowed)" };
                let (check, phase) = (verdict.name(), outcome.name());
                let count = verdict.violations.len();
                writeln!(f, "  {check:<32} {phase:<32} {count}{only}")?;
            }
        }
        Ok(())
    }

    /// What was violated, once more: phases print so much that the end of a log, which is all that
    /// CI shows, would not tell.
    fn write_failures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outcome in &self.outcomes {
            for verdict in outcome.failures() {
                let (phase, count) = (outcome.name(), verdict.violations.len());
                writeln!(f, "phase {phase}, {}: {count} violations", verdict.name())?;
                verdict.write_first(f, SHOWN_AGAIN_MAX)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outcome in &self.outcomes {
            write!(f, "{outcome}")?;
        }
        writeln!(f)?;
        let sum = Sum::of(self.outcomes.iter());
        row(f, "operations", sum.operations)?;
        row(f, "locks handed off", sum.handed_off)?;
        row(f, "faults that took effect", sum.faults)?;
        row(f, "kinds of faults", sum.kinds)?;
        for (kind, (effective, all)) in self.faults() {
            row(f, &format!("fault {kind}"), format!("{effective} of {all}"))?;
        }
        self.write_table(f)?;
        row(f, "violations", self.violations())?;
        self.write_failures(f)?;
        for shortfall in self.shortfalls() {
            writeln!(f, "{shortfall}")?;
        }
        let (seed, seconds, settings) = (self.plan.seed, self.plan.seconds, plan::settings());
        row(f, "seed", seed)?;
        row(f, "seconds", format!("{:.0}", self.took.as_secs_f64()))?;
        writeln!(
            f,
            "replay with: {settings}SEED={seed} SECONDS={seconds} cargo test -p tenure --test faults"
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
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
            let only = if verdict.must_hold {
                ""
            } else {
                ", reported only"
            };
            let count = verdict.violations.len();
            row(f, &verdict.name(), format!("{count} violations{only}"))?;
        }
        for verdict in self.failures() {
            verdict.write_first(f, SHOWN_MAX)?;
        }
        Ok(())
    }
}

impl Verdict {
    fn name(&self) -> String {
        let check = self.check.name();
        match self.footing {
            Footing::Plain(_) | Footing::Patient(_) => check.into(),
            Footing::Replicated(_) => format!("{check}, replicas"),
        }
    }

    fn write_first(&self, f: &mut fmt::Formatter<'_>, most: usize) -> fmt::Result {
        for violation in self.violations.iter().take(most) {
            writeln!(f, "{}: {violation}", self.name())?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {name:<28} {value}")
}
