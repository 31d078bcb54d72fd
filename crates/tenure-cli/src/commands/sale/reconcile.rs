//! `tenure sale reconcile`: whether gate, queue and ledger agree.

use anyhow::Result;
use tenure_sale::Mode;
use tenure_view::output;
use tenure_view::sale::ShownReport;

use super::place::PlaceArgs;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tenure sale reconcile sku-7
  tenure sale reconcile sku-7 --repair
  tenure sale reconcile sku-7 --json | jq .drift

Exit codes:
  0    gate, queue and ledger agree
  1    they do not, or orders kept moving: retry at a quiet moment";

/// Compare gate, queue and ledger, and rebuild the gate with --repair
///
/// At rest, total units = left at the gate + queued + sold. The ledger is authoritative: a repair
/// loads the gate from it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReconcileArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// Rebuild the gate from the ledger if they disagree
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    place: PlaceArgs,
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
