//! Verification: checks that an item's invariants hold, without changing anything.

use crate::core::no_item;
use crate::error::Result;
use crate::ledger::Audit;
use crate::order::OrderId;
use crate::reconcile::{Mode, Report};
use crate::sale::Sale;

/// The findings about an item, see [`Sale::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Whether gate, queue and ledger agree.
    pub report: Report,
    /// Whether the ledger is consistent.
    pub audit: Audit,
    /// Orders that the gate accepted, and that are now neither in the ledger nor at the gate.
    pub unaccounted: Vec<OrderId>,
}

impl Verdict {
    /// Whether everything holds. While orders move, the parts are from different moments and a
    /// difference between gate and ledger means nothing: see [`Report::settled`].
    pub fn holds(&self) -> bool {
        self.broken().is_empty()
    }

    /// What does not hold, one sentence each.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = self.broken_in_the_ledger();
        let report = &self.report;
        if let Some(drift) = report.drift().filter(|drift| *drift != 0 && report.settled) {
            broken.push(if drift > 0 {
                format!("{drift} units are neither at the gate, nor queued, nor sold")
            } else {
                format!("{} units are in two places at once", -drift)
            });
        }
        for shelf in report.drifting().filter(|_| report.settled) {
            let (nth, drift) = (shelf.nth, shelf.drift);
            broken.push(format!(
                "shelf {nth} has {} units {} than its books say",
                drift.unsigned_abs(),
                if drift > 0 { "fewer" } else { "more" }
            ));
        }
        for key in &report.foreign {
            broken.push(format!(
                "key `{key}` holds something else than what the gate writes there: a repair deletes \
                 it and loads the item again"
            ));
        }
        let drifts = report.drift().is_some_and(|drift| drift != 0);
        if report.is_put_back() {
            let (gate, ledger) = (report.gate_epoch, report.item.epoch);
            broken.push(format!(
                "the gate has epoch {gate} and change {}, the ledger epoch {ledger} and change {}: the \
                 ledger was put back, see docs/restoring.md",
                report.gate_change, report.ledger_change
            ));
        } else if !report.gate_agrees() && !drifts && report.drifting().next().is_none() {
            broken.push("the gate does not sell what this ledger has: rebuild it".to_owned());
        }
        for order in &self.unaccounted {
            broken.push(format!(
                "order `{order}` was accepted, but neither ledger nor gate has it"
            ));
        }
        broken
    }

    fn broken_in_the_ledger(&self) -> Vec<String> {
        let audit = &self.audit;
        let mut broken = Vec::new();
        for (units, whose) in [(audit.by_journal, "journal"), (audit.by_orders, "orders")] {
            if units != audit.sold {
                let sold = audit.sold;
                broken.push(format!("the ledger says {sold} sold, its {whose} {units}"));
            }
        }
        for order in &audit.uneven {
            broken.push(format!(
                "units of order `{order}` were reserved or released twice, or never"
            ));
        }
        broken
    }
}

impl Sale {
    /// Checks that all invariants of an item hold: no unit is in two places or nowhere, none was
    /// sold or returned twice, and every accepted order exists. Changes nothing, except that
    /// pending changes are sent to the gate. Reads all orders of the item.
    ///
    /// # Errors
    ///
    /// [`NoItem`](crate::ErrorKind::NoItem), or if gate or ledger cannot be reached.
    pub async fn verify(&self, item: &str) -> Result<Verdict> {
        let report = self.reconcile(item, Mode::DryRun).await?;
        let audit = self.ledger().audit(item).await?;
        let audit = audit.ok_or_else(|| no_item(item))?;
        let unaccounted = self.unaccounted(item, &audit.missing).await?;
        Ok(Verdict {
            report,
            audit,
            unaccounted,
        })
    }

    /// The orders that the gate does not have either. Checked in the direction in which orders
    /// move, so that none slips through.
    async fn unaccounted(&self, item: &str, missing: &[OrderId]) -> Result<Vec<OrderId>> {
        let mut gone = Vec::new();
        for order in missing {
            if self.gate().find(order).await?.is_none() {
                gone.push(order.clone());
            }
        }
        if !gone.is_empty() {
            // They may have reached the ledger since its books were read; or the gate was rebuilt
            // since then, and it is unknown what its predecessor had.
            let now = self.ledger().audit(item).await?.unwrap_or_default();
            gone.retain(|order| now.missing.contains(order));
        }
        Ok(gone)
    }
}
