//! `tenure sale reconcile`: whether gate, queue and ledger tell the same story.

use anyhow::Result;
use serde::Serialize;
use tenure_sale::{Mode, Report};

use super::place::PlaceArgs;
use super::shown::ShownCount;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  tenure sale reconcile sku-7
  tenure sale reconcile sku-7 --repair
  tenure sale reconcile sku-7 --json | jq .drift

Exit codes:
  0    gate, queue and ledger agree
  1    they do not, or orders moved all the time: look again at a quiet moment";

/// Compare gate, queue and ledger, and rebuild the gate if told to
///
/// At rest, the units in all are those left at the gate, those in the queue and those sold. The ledger
/// is the truth: a repair loads the gate from it, never the other way round.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReconcileArgs {
    /// The name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// Rebuild the gate from the ledger if they disagree
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    place: PlaceArgs,
}

/// A report for programs.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact that programs ask for by its name"
)]
#[derive(Serialize)]
pub(super) struct ShownReport {
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
    /// None where it says nothing.
    drift: Option<i64>,
    dead: u64,
    gate_current: bool,
    gate_epoch: u64,
    ledger_epoch: u64,
    gate_change: u64,
    ledger_change: u64,
    orders: Vec<ShownCount>,
}

pub fn run(args: &ReconcileArgs) -> Result<Exit> {
    let mode = if args.repair {
        Mode::Repair
    } else {
        Mode::DryRun
    };
    args.place.with_sale(async |sale| {
        let report = sale.reconcile(&args.item, mode).await?;
        if args.place.json {
            output::say_json(&ShownReport::of(&report))?;
        } else {
            output::say(&report)?;
        }
        let agrees = report.is_clean() && report.settled;
        Ok(if agrees { Exit::Done } else { Exit::Broken })
    })
}

impl ShownReport {
    pub(super) fn of(report: &Report) -> Self {
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
        }
    }
}
