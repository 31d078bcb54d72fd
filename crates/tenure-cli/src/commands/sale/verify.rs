//! `tenure sale verify`: checks the invariants of a sale.

use anyhow::Result;
use tenure_sale::Verdict;
use tenure_view::output::{self, Paint};
use tenure_view::sale::{ShownVerdict, or_dash};

use super::place::PlaceArgs;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tenure sale verify sku-7
  tenure sale verify sku-7 --json | jq -r '.broken[]'

Exit codes:
  0    everything adds up
  1    it does not, with the reason; or orders kept moving: retry";

/// Check that nothing was oversold or lost, and report what is broken
///
/// Checks that total units = left + queued + sold, that item, orders and journal of the ledger
/// agree, that no units were reserved or returned twice, and that each accepted order is in the
/// queue, in the ledger or a dead letter. Reads all orders of the item. To repair, use `reconcile
/// --repair`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct VerifyArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    #[command(flatten)]
    place: PlaceArgs,
}

pub fn run(args: &VerifyArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let verdict = sale.verify(&args.item).await?;
        if args.place.json {
            output::say_json(&ShownVerdict::of(&verdict))?;
        } else {
            print_verdict(&verdict)?;
        }
        let holds = verdict.holds() && verdict.report.settled;
        Ok(if holds { Exit::Done } else { Exit::Broken })
    })
}

fn print_verdict(verdict: &Verdict) -> Result<()> {
    let (report, paint) = (&verdict.report, Paint::for_stdout());
    let item = &report.item;
    let total = (!item.unlimited).then_some(item.total);
    output::say(format_args!(
        "{}: {} units = {} left + {} queued + {} sold",
        item.name,
        or_dash(total),
        or_dash(report.left),
        or_dash(report.queued_units),
        item.sold
    ))?;
    let broken = verdict.broken();
    for sentence in &broken {
        output::say(format_args!("{} {sentence}", paint.red("BROKEN")))?;
    }
    if broken.is_empty() && report.settled {
        output::say(format_args!("{}", paint.green("everything adds up")))?;
    } else if !report.settled {
        output::say("orders are moving: retry at a quiet moment")?;
    }
    Ok(())
}
