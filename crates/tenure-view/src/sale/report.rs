//! What was found out about an item, as it is shown.

use serde::Serialize;
use tenure_sale::{Report, Verdict};
use utoipa::ToSchema;

use super::{ShownCount, ShownShelf};

/// Whether gate, queue and ledger agree.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact that programs ask for by its name"
)]
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownReport {
    item: String,
    clean: bool,
    settled: bool,
    repaired: bool,
    total: Option<u64>,
    left: Option<u64>,
    queued: u64,
    queued_units: Option<u64>,
    pending: u64,
    sold: u64,
    held: u64,
    /// Null if unknown.
    drift: Option<i64>,
    dead: u64,
    gate_current: bool,
    gate_epoch: u64,
    ledger_epoch: u64,
    gate_change: u64,
    ledger_change: u64,
    orders: Vec<ShownCount>,
    /// The shelves, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    shelves: Vec<ShownShelf>,
}

/// Whether the sale is consistent.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownVerdict {
    item: String,
    holds: bool,
    settled: bool,
    broken: Vec<String>,
    sold: i64,
    sold_by_orders: i64,
    sold_by_journal: i64,
    uneven: Vec<String>,
    unaccounted: Vec<String>,
    report: ShownReport,
}

impl ShownReport {
    /// For output.
    pub fn of(report: &Report) -> Self {
        let item = &report.item;
        Self {
            item: item.name.clone(),
            clean: report.is_clean(),
            settled: report.settled,
            repaired: report.repaired,
            total: (!item.unlimited).then_some(item.total),
            left: report.left,
            queued: report.queued,
            queued_units: report.queued_units,
            pending: report.pending,
            sold: item.sold,
            held: report.held,
            drift: report.drift().and_then(|drift| i64::try_from(drift).ok()),
            dead: report.dead,
            gate_current: report.current,
            gate_epoch: report.gate_epoch,
            ledger_epoch: item.epoch,
            gate_change: report.gate_change,
            ledger_change: report.ledger_change,
            orders: report.by_state.iter().map(ShownCount::of).collect(),
            shelves: ShownShelf::all(&report.shelves),
        }
    }
}

impl ShownVerdict {
    /// For output.
    pub fn of(verdict: &Verdict) -> Self {
        let names =
            |orders: &[tenure_sale::OrderId]| orders.iter().map(ToString::to_string).collect();
        let audit = &verdict.audit;
        Self {
            item: verdict.report.item.name.clone(),
            holds: verdict.holds(),
            settled: verdict.report.settled,
            broken: verdict.broken(),
            sold: audit.sold,
            sold_by_orders: audit.by_orders,
            sold_by_journal: audit.by_journal,
            uneven: names(&audit.uneven),
            unaccounted: names(&verdict.unaccounted),
            report: ShownReport::of(&verdict.report),
        }
    }
}
