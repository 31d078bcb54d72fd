//! `tenure sale verify`: whether what a sale promises holds.

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
  0    everything holds
  1    something does not, and it says what; or orders moved all the time: look again";

/// Check that nothing was sold twice or lost, and say what is broken
///
/// The units in all are those left at the gate, in the queue and sold. The ledger's item, orders and
/// journal come to the same. No units were set aside or let go twice. Each order that the gate
/// accepted is in the queue, in the ledger or among the dead. Repairs nothing: `reconcile --repair`
/// does. Reads all orders of the item.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct VerifyArgs {
    /// The name of the item
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
            tell(&verdict)?;
        }
        let holds = verdict.holds() && verdict.report.settled;
        Ok(if holds { Exit::Done } else { Exit::Broken })
    })
}

fn tell(verdict: &Verdict) -> Result<()> {
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
        output::say(format_args!("{}", paint.green("everything holds")))?;
    } else if !report.settled {
        output::say("orders are moving: look again at a quiet moment")?;
    }
    Ok(())
}
