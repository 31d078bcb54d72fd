//! `tenure sale dlq`: dead letters.

use anyhow::Result;
use clap::Subcommand;
use serde::Serialize;
use tenure_sale::OrderId;
use tenure_view::output;
use tenure_view::sale::{Decided, ShownLetter};

use super::item::known;
use super::place::PlaceArgs;
use crate::exit::{Exit, Failed};

/// How many are looked through for one.
const LOOK_MAX: usize = 10_000;

const EXAMPLES: &str = "\
Examples:
  tenure sale dlq ls sku-7
  tenure sale dlq show sku-7.1.42
  tenure sale dlq requeue sku-7.1.42       after what stood in its way is gone
  tenure sale dlq discard sku-7.1.42       the order is cancelled, its units go back";
const LS_EXAMPLES: &str = "\
Examples:
  tenure sale dlq ls sku-7
  tenure sale dlq ls sku-7 --json | jq -r '.dead_letters[].order_id'";
const ONE_EXAMPLES: &str = "\
Examples:
  tenure sale dlq show sku-7.1.42
  tenure sale dlq requeue sku-7.1.42
  tenure sale dlq discard sku-7.1.42";

/// Look at dead letters: entries that the ledger did not take, again and again
///
/// Their units stay set aside until somebody decides.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct DlqArgs {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum DlqCommand {
    /// List the dead letters of an item, from the oldest on
    Ls(LsArgs),
    /// Show one dead letter, and why the ledger did not take it
    #[command(after_long_help = ONE_EXAMPLES)]
    Show(OneArgs),
    /// Bring a dead letter to the ledger once more
    #[command(after_long_help = ONE_EXAMPLES)]
    Requeue(OneArgs),
    /// Give a dead letter up: the order is cancelled and its units go back
    #[command(after_long_help = ONE_EXAMPLES)]
    Discard(OneArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = LS_EXAMPLES)]
struct LsArgs {
    /// The name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// At most so many
    #[arg(long, value_name = "LETTERS", default_value_t = 100)]
    count: usize,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct OneArgs {
    /// The id of the order, like `sku-7.1.42`
    #[arg(value_name = "ORDER")]
    order: OrderId,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Serialize)]
struct Letters {
    dead_letters: Vec<ShownLetter>,
}

pub fn run(args: &DlqArgs) -> Result<Exit> {
    match &args.command {
        DlqCommand::Ls(args) => ls(args),
        DlqCommand::Show(args) => show(args),
        DlqCommand::Requeue(args) => requeue(args),
        DlqCommand::Discard(args) => discard(args),
    }
}

fn ls(args: &LsArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        known(&sale, &args.item).await?;
        let letters = sale.dead_letters(&args.item, args.count).await?;
        let dead_letters: Vec<ShownLetter> = letters.iter().map(ShownLetter::of).collect();
        if args.place.json {
            output::say_json(&Letters { dead_letters })?;
        } else {
            for letter in &dead_letters {
                output::say(letter)?;
            }
        }
        Ok(Exit::Done)
    })
}

fn show(args: &OneArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let letters = sale.dead_letters(args.order.item(), LOOK_MAX).await?;
        let found = letters.iter().find(|letter| letter.entry.id == args.order);
        let Some(letter) = found else {
            let message = format!("`{}` is not among the dead letters", args.order);
            return Err(Failed::new(Exit::Broken, message).into());
        };
        let shown = ShownLetter::of(letter);
        if args.place.json {
            output::say_json(&shown)?;
        } else {
            output::say(&shown)?;
        }
        Ok(Exit::Done)
    })
}

fn requeue(args: &OneArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let state = sale.requeue(&args.order).await?;
        tell(args, state.word())
    })
}

fn discard(args: &OneArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        sale.discard(&args.order).await?;
        tell(args, "discarded")
    })
}

fn tell(args: &OneArgs, state: &'static str) -> Result<Exit> {
    let order_id = args.order.to_string();
    if args.place.json {
        output::say_json(&Decided { order_id, state })?;
    } else {
        output::say(format_args!("{order_id} {state}"))?;
    }
    Ok(Exit::Done)
}
