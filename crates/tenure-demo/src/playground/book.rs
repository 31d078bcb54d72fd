//! The record of a run, kept independently of the stock.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tenure_view::time;
use tenure_view::timings::Timings;

use super::curve::Curve;
use super::plan::{Fault, Plan};
use super::report::{FaultReport, InstanceReport, InstanceState, RunReport, RunState};

/// Texts for faults that were not injected yet.
const WAITS: &str = "waiting for a holder";
const TOO_LATE: &str = "not injected: the run ended before the next holder";

/// The record of a run.
#[derive(Debug)]
pub(crate) struct Book {
    begun: Instant,
    took: Option<Duration>,
    pub(crate) state: RunState,
    has_failed: bool,
    pub(crate) detail: Option<String>,
    /// The last number read from the store.
    pub(crate) left: u64,
    sold: u64,
    /// Sold units and their buyers; cleared when the run ends.
    units: HashSet<u64>,
    buyers: HashSet<u64>,
    duplicates: u64,
    pub(crate) sold_out: u64,
    pub(crate) refused_stale: u64,
    pub(crate) lost: u64,
    answers: Timings,
    instances: Vec<InstanceReport>,
    faults: Vec<FaultReport>,
    /// Which fault orphaned the lock, and when, until the next holder.
    orphaned: Option<(usize, Instant)>,
    pub(crate) curve: Curve,
}

/// One confirmed order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sold {
    pub(crate) buyer: u64,
    pub(crate) unit: u64,
    /// Counted from 0.
    pub(crate) instance: usize,
}

impl Book {
    pub(crate) fn open(plan: &Plan) -> Self {
        let selling = |instance| InstanceReport {
            instance,
            sold: 0,
            state: InstanceState::Selling,
        };
        Self {
            begun: Instant::now(),
            took: None,
            state: RunState::Running,
            has_failed: false,
            detail: None,
            left: plan.stock,
            sold: 0,
            units: HashSet::new(),
            buyers: HashSet::new(),
            duplicates: 0,
            sold_out: 0,
            refused_stale: 0,
            lost: 0,
            answers: Timings::new(),
            instances: (1..=plan.instances).map(selling).collect(),
            faults: Vec::new(),
            orphaned: None,
            curve: Curve::new(),
        }
    }

    pub(crate) fn sold(&mut self, sold: Sold) {
        let is_new = self.units.insert(sold.unit) & self.buyers.insert(sold.buyer);
        self.duplicates += u64::from(!is_new);
        self.instances[sold.instance].sold += 1;
        self.sold += 1;
    }

    /// Records the response time of a buyer.
    pub(crate) fn answered(&mut self, after: Duration) {
        self.answers.note(after);
    }

    pub(crate) fn instance_is(&mut self, instance: usize, state: InstanceState) {
        self.instances[instance].state = state;
    }

    /// How many instances are not dead.
    pub(crate) fn living(&self) -> usize {
        let living = |it: &&InstanceReport| it.state != InstanceState::Killed;
        self.instances.iter().filter(living).count()
    }

    /// Adds a requested fault and returns its number.
    pub(crate) fn expect_fault(&mut self, fault: Fault) -> usize {
        let at_ms = time::millis(self.begun.elapsed());
        self.faults.push(FaultReport {
            at_ms,
            fault,
            told: WAITS.to_owned(),
        });
        self.faults.len() - 1
    }

    pub(crate) fn fault_count(&self) -> usize {
        self.faults.len()
    }

    /// Records that the fault strikes now.
    pub(crate) fn strike(&mut self, fault: usize, text: String) {
        self.faults[fault].at_ms = time::millis(self.begun.elapsed());
        self.faults[fault].told = text;
    }

    /// Appends the effect of a fault to its text.
    pub(crate) fn append_effect(&mut self, fault: usize, more: &str) {
        self.faults[fault].told.push_str(more);
    }

    /// Records that an instance died holding the lock.
    pub(crate) fn orphan(&mut self, fault: usize) {
        self.orphaned = Some((fault, Instant::now()));
    }

    /// Records that the lock has a holder again.
    pub(crate) fn taken(&mut self) {
        if let Some((fault, since)) = self.orphaned.take() {
            let after = since.elapsed().as_millis();
            self.append_effect(
                fault,
                &format!("; the next holder acquired it after {after} ms"),
            );
        }
    }

    /// Adds a point to the curve: stock minus sold, below zero when oversold.
    pub(crate) fn note_point(&mut self, plan: &Plan) {
        let at = signed(time::millis(self.begun.elapsed()));
        let left = signed(plan.stock) - signed(self.sold);
        self.curve.note([at, left]);
    }

    /// Marks the run as failed. The first reason is kept.
    pub(crate) fn fail(&mut self, detail: String) {
        self.has_failed = true;
        self.detail.get_or_insert(detail);
    }

    /// Ends the record, whether or not all buyers were served.
    pub(crate) fn close(&mut self, is_stopped: bool) {
        (self.units, self.buyers) = (HashSet::new(), HashSet::new());
        self.took = Some(self.begun.elapsed());
        self.state = match (self.has_failed, is_stopped) {
            (true, _) => RunState::Failed,
            (false, true) => RunState::Stopped,
            (false, false) => RunState::Done,
        };
        for fault in self.faults.iter_mut().filter(|it| it.told == WAITS) {
            TOO_LATE.clone_into(&mut fault.told);
        }
        for instance in &mut self.instances {
            if instance.state != InstanceState::Killed {
                instance.state = InstanceState::Done;
            }
        }
    }

    pub(crate) fn report(&self, id: &str, plan: &Plan, seed: u32, started_at: &str) -> RunReport {
        let took = self.took.unwrap_or_else(|| self.begun.elapsed());
        let millis = |percent| hundredths(self.answers.percentile(percent).as_secs_f64() * 1e3);
        RunReport {
            id: id.to_owned(),
            mode: plan.mode,
            stock: plan.stock,
            buyers: plan.buyers,
            concurrency: plan.concurrency,
            instances: plan.instances,
            work_ms: plan.work_ms,
            ttl_ms: plan.ttl_ms,
            seed,
            state: self.state,
            detail: self.detail.clone(),
            started_at: started_at.to_owned(),
            took_ms: time::millis(took),
            left: signed(self.left),
            sold: self.sold,
            oversold: self.sold.saturating_sub(plan.stock),
            sold_out: self.sold_out,
            refused_stale: self.refused_stale,
            lost: self.lost,
            duplicates: self.duplicates,
            sold_per_s: per_second(self.sold, took),
            p50_ms: millis(50.0),
            p99_ms: millis(99.0),
            by_instance: self.instances.clone(),
            curve: None,
            faults: self.faults.clone(),
            holds: self.holds(plan),
            invariant: self.invariant(plan),
        }
    }

    /// The store's number lags during the run, so only sold units count then.
    fn holds(&self, plan: &Plan) -> bool {
        let adds_up = match self.state {
            RunState::Running => self.sold <= plan.stock,
            _ => plan.stock == self.left + self.sold,
        };
        adds_up && self.duplicates == 0
    }

    fn invariant(&self, plan: &Plan) -> String {
        let (stock, Self { left, sold, .. }) = (plan.stock, self);
        match self.state {
            RunState::Running => format!("initial {stock}, left {left}, sold {sold} so far"),
            _ if stock == left + sold => format!("initial {stock} = left {left} + sold {sold}"),
            _ => format!("initial {stock} ≠ left {left} + sold {sold}"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown without fractions")]
fn per_second(sold: u64, took: Duration) -> f64 {
    (sold as f64 / took.as_secs_f64().max(1e-3)).round()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn hundredths(millis: f64) -> f64 {
    (millis * 100.0).round() / 100.0
}
