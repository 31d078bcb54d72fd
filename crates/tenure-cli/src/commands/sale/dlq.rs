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

/// How many dead letters are searched for one.
const LOOK_MAX: usize = 10_000;

const EXAMPLES: &str = "\
Examples:
  tenure sale dlq ls sku-7
  tenure sale dlq show sku-7.1.42
  tenure sale dlq requeue sku-7.1.42       after fixing the cause
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

/// Inspect dead letters: entries that the ledger rejected repeatedly
///
/// Their units stay reserved until you requeue or discard them.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct DlqArgs {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum DlqCommand {
    /// List the dead letters of an item, oldest first
    Ls(LsArgs),
    /// Show one dead letter and why the ledger rejected it
    #[command(after_long_help = ONE_EXAMPLES)]
    Show(OneArgs),
    /// Send a dead letter to the ledger again
    #[command(after_long_help = ONE_EXAMPLES)]
    Requeue(OneArgs),
    /// Discard a dead letter: cancel the order and return its units
    #[command(after_long_help = ONE_EXAMPLES)]
    Discard(OneArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = LS_EXAMPLES)]
struct LsArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// Maximum number of results
    #[arg(long, value_name = "LETTERS", default_value_t = 100)]
    count: usize,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct OneArgs {
    /// Id of the order, like `sku-7.1.42`
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
            if !dead_letters.is_empty() {
                output::say(ShownLetter::heading())?;
            }
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
            let message = format!("dead letter `{}` not found", args.order);
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
        print_state(args, state.word())
    })
}

fn discard(args: &OneArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        sale.discard(&args.order).await?;
        print_state(args, "discarded")
    })
}

fn print_state(args: &OneArgs, state: &'static str) -> Result<Exit> {
    let order_id = args.order.to_string();
    if args.place.json {
        output::say_json(&Decided { order_id, state })?;
    } else {
        output::say(format_args!("{order_id} {state}"))?;
    }
    Ok(Exit::Done)
}
