//! `tenure sale stock`: the stock of an item.

use anyhow::Result;
use clap::Subcommand;
use serde::Serialize;
use tenure_sale::{Sale, UNITS_MAX};
use tenure_view::output;
use tenure_view::sale::or_dash;

use super::item::{known, print_item};
use super::place::{PlaceArgs, is_unknown};
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tenure sale stock show sku-7
  tenure sale stock add sku-7 500 --reason 'second delivery' --reference delivery-2
  tenure sale stock remove sku-7 3 --reason broken
  tenure sale stock set sku-7 5500 --expect 5000";
const SHOW_EXAMPLES: &str = "\
Examples:
  tenure sale stock show sku-7
  tenure sale stock show sku-7 --json | jq .left";
const ADD_EXAMPLES: &str = "\
Examples:
  tenure sale stock add sku-7 500
  tenure sale stock add sku-7 500 --reason 'second delivery' --reference delivery-2";
const REMOVE_EXAMPLES: &str = "\
Examples:
  tenure sale stock remove sku-7 3 --reason broken --reference inventory-2026-11";
const SET_EXAMPLES: &str = "\
Examples:
  tenure sale stock set sku-7 5500
  tenure sale stock set sku-7 5500 --expect 5000     only if it is 5000 now";

/// Show and change the stock of an item
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct StockArgs {
    #[command(subcommand)]
    command: StockCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum StockCommand {
    /// Show the stock: total, left, queued, sold
    Show(ShowArgs),
    /// Add units
    #[command(after_long_help = ADD_EXAMPLES)]
    Add(AdjustArgs),
    /// Remove unsold units
    ///
    /// The gate reserves them first. Once the item was opened, this needs a running consumer.
    #[command(after_long_help = REMOVE_EXAMPLES)]
    Remove(AdjustArgs),
    /// Set the total stock, including sold units
    ///
    /// Once the item was opened, lowering it needs a running consumer.
    Set(SetArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = SHOW_EXAMPLES)]
struct ShowArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct AdjustArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// Number of units
    #[arg(value_name = "UNITS", value_parser = clap::value_parser!(u64).range(1..=UNITS_MAX))]
    units: u64,

    /// Reason, kept in the journal
    #[arg(long, value_name = "TEXT", default_value = "by hand")]
    reason: String,

    /// Idempotency key: a retry with the same id changes nothing [default: random]
    #[arg(long, value_name = "ID")]
    reference: Option<String>,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = SET_EXAMPLES)]
struct SetArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// Total units
    #[arg(value_name = "UNITS", value_parser = clap::value_parser!(u64).range(0..=UNITS_MAX))]
    units: u64,

    /// Only if the total is this now
    #[arg(long, value_name = "UNITS")]
    expect: Option<u64>,

    #[command(flatten)]
    place: PlaceArgs,
}

/// The units by place, at approximately one moment.
#[derive(Serialize)]
struct Shown {
    item: String,
    total: Option<u64>,
    left: Option<u64>,
    queued_units: Option<u64>,
    sold: u64,
}

pub fn run(args: &StockArgs) -> Result<Exit> {
    match &args.command {
        StockCommand::Show(args) => show(args),
        StockCommand::Add(args) => adjust(args, 1),
        StockCommand::Remove(args) => adjust(args, -1),
        StockCommand::Set(args) => set(args),
    }
}

fn show(args: &ShowArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let shown = shown(&sale, &args.item).await?;
        if args.place.json {
            output::say_json(&shown)?;
        } else {
            let Shown {
                item,
                total,
                left,
                queued_units,
                sold,
            } = shown;
            output::say(format_args!(
                "{item}: {} total, {} left, {} queued, {sold} sold",
                or_dash(total),
                or_dash(left),
                or_dash(queued_units)
            ))?;
        }
        Ok(Exit::Done)
    })
}

async fn shown(sale: &Sale, name: &str) -> Result<Shown> {
    let item = known(sale, name).await?;
    let standing = sale.gate().standing(name).await?;
    let queued_units = match &standing {
        None => None,
        Some(_) => Some(sale.gate().queued_units(name).await?),
    };
    Ok(Shown {
        total: (!item.unlimited).then_some(item.total),
        left: standing.and_then(|gate| gate.left),
        queued_units,
        sold: item.sold,
        item: item.name,
    })
}

fn adjust(args: &AdjustArgs, sign: i64) -> Result<Exit> {
    let random = || format!("cli-{:032x}", rand::random::<u128>());
    let reference = args.reference.clone().unwrap_or_else(random);
    let delta = i64::try_from(args.units)? * sign;
    args.place.with_sale(async |sale| {
        let changed = sale
            .adjust(&args.item, delta, &args.reason, &reference)
            .await;
        if changed.as_ref().is_err_and(is_unknown) {
            output::complain(format_args!(
                "tenure: unknown whether it was done: retry with `--reference {reference}`; is a \
                 consumer running (`tenure sale consume`)?"
            ));
        }
        print_item(&args.place, &changed?)
    })
}

fn set(args: &SetArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let item = sale.set_stock(&args.item, args.units, args.expect).await?;
        print_item(&args.place, &item)
    })
}
