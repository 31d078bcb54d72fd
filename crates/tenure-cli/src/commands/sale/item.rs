//! `tenure sale item`: items.

use anyhow::Result;
use clap::Subcommand;
use serde::Serialize;
use tenure_sale::{Item, NewItem, SPREAD_MAX, Sale, UNITS_MAX};
use tenure_view::output;
use tenure_view::sale::ShownItem;

use super::place::PlaceArgs;
use super::terms::TermsArgs;
use crate::exit::{Exit, Failed};

const EXAMPLES: &str = "\
Examples:
  tenure sale item create sku-7 --stock 5000
  tenure sale item create sku-8 --stock 10 --limit 1 --starts 2026-11-27T20:00:00Z --pay-within 15m
  tenure sale item open sku-7
  tenure sale item ls --json
  tenure sale item set sku-7 --limit 2 --ends +1h
  tenure sale item close sku-7";
const CREATE_EXAMPLES: &str = "\
Examples:
  tenure sale item create sku-7 --stock 5000 --open
  tenure sale item create sku-8 --stock 10 --limit 1 --starts +10m --ends +2h --pay-within 15m
  tenure sale item create voucher --unlimited
  tenure sale item create phone --stock 100000 --spread 3";
const LS_EXAMPLES: &str = "\
Examples:
  tenure sale item ls
  tenure sale item ls --json | jq -r '.items[] | select(.state == \"open\") | .item'";
const SHOW_EXAMPLES: &str = "\
Examples:
  tenure sale item show sku-7
  tenure sale item show sku-7 --json | jq .gate.left";
const STATE_EXAMPLES: &str = "\
Examples:
  tenure sale item open sku-7
  tenure sale item pause sku-7
  tenure sale item close sku-7
  tenure sale item rebuild sku-7
  tenure sale item forget sku-7";
const SET_EXAMPLES: &str = "\
Examples:
  tenure sale item set sku-7 --limit 2
  tenure sale item set sku-7 --starts - --ends +1h";

/// Create items, open and close their sale
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct ItemArgs {
    #[command(subcommand)]
    command: ItemCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum ItemCommand {
    /// Create an item, as a draft unless --open is given
    Create(CreateArgs),
    /// List all items
    #[command(after_long_help = LS_EXAMPLES)]
    Ls(PlaceArgs),
    /// Show one item: stock, terms, gate
    #[command(after_long_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// Open the sale of an item: load its gate from the ledger
    #[command(after_long_help = STATE_EXAMPLES)]
    Open(OneArgs),
    /// Pause the sale of an item: orders are refused as *paused*
    #[command(after_long_help = STATE_EXAMPLES)]
    Pause(OneArgs),
    /// Close the sale of an item: orders are refused as *ended*
    #[command(after_long_help = STATE_EXAMPLES)]
    Close(OneArgs),
    /// Change the terms of an item
    Set(SetArgs),
    /// Rebuild the gate from the ledger, even if it is consistent
    ///
    /// It refuses orders meanwhile. Queued orders are written to the ledger first.
    #[command(after_long_help = STATE_EXAMPLES)]
    Rebuild(OneArgs),
    /// Remove a closed item with an empty queue from the gate
    ///
    /// Consumers do this themselves after --keep-answers.
    #[command(after_long_help = STATE_EXAMPLES)]
    Forget(OneArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = CREATE_EXAMPLES)]
struct CreateArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// Units in stock
    #[arg(long, value_name = "UNITS", required_unless_present = "unlimited")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=UNITS_MAX))]
    stock: Option<u64>,

    /// No stock limit
    #[arg(long, conflicts_with = "stock")]
    unlimited: bool,

    /// Spread the stock over this many shelves, each in its own slot
    ///
    /// For an item that is too hot for one node of a Redis Cluster: with as many shelves as nodes,
    /// all nodes sell it. Limits, requests and *sold out* stay exact. It cannot be changed later,
    /// and has no effect on a gate in memory.
    #[arg(long, value_name = "SHELVES", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=SPREAD_MAX))]
    spread: u64,

    /// Open the sale at once
    #[arg(long)]
    open: bool,

    #[command(flatten)]
    terms: TermsArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = SET_EXAMPLES)]
struct SetArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    #[command(flatten)]
    terms: TermsArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct OneArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Serialize)]
struct Items {
    items: Vec<ShownItem>,
}

#[derive(Serialize)]
struct Forgotten<'a> {
    item: &'a str,
    forgotten: bool,
}

pub fn run(args: &ItemArgs) -> Result<Exit> {
    match &args.command {
        ItemCommand::Create(args) => create(args),
        ItemCommand::Ls(place) => ls(place),
        ItemCommand::Show(args) => show(args),
        ItemCommand::Set(args) => set(args),
        ItemCommand::Open(args) => change(args, async |sale, item| sale.open_item(item).await),
        ItemCommand::Pause(args) => change(args, async |sale, item| sale.pause(item).await),
        ItemCommand::Close(args) => change(args, async |sale, item| sale.close(item).await),
        ItemCommand::Rebuild(args) => change(args, async |sale, item| sale.rebuild(item).await),
        ItemCommand::Forget(args) => forget(args),
    }
}

fn create(args: &CreateArgs) -> Result<Exit> {
    let new = match args.stock {
        Some(units) => NewItem::new(&args.item, units)?,
        None => NewItem::unlimited(&args.item)?,
    };
    let terms = args.terms.over(&tenure_sale::Terms::default());
    let new = new.terms(terms).spread(args.spread);
    args.place.with_sale(async |sale| {
        let mut item = sale.create(&new).await?;
        if args.open {
            item = sale.open_item(&args.item).await?;
        }
        print_item(&args.place, &item)
    })
}

fn ls(place: &PlaceArgs) -> Result<Exit> {
    place.with_sale(async |sale| {
        let items: Vec<ShownItem> = sale.items().await?.iter().map(ShownItem::of).collect();
        if place.json {
            output::say_json(&Items { items })?;
        } else if items.is_empty() {
            output::complain("no items; create one with `tenure sale item create`");
        } else {
            output::say(ShownItem::heading())?;
            for item in &items {
                output::say(item.row())?;
            }
        }
        Ok(Exit::Done)
    })
}

fn show(args: &OneArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let item = known(&sale, &args.item).await?;
        let standing = sale.gate().standing(&args.item).await?;
        let shown = ShownItem::of(&item).at_gate(standing.as_ref());
        if args.place.json {
            output::say_json(&shown)?;
        } else {
            output::say(&shown)?;
        }
        Ok(Exit::Done)
    })
}

fn set(args: &SetArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let terms = known(&sale, &args.item).await?.terms;
        let item = sale.set_terms(&args.item, &args.terms.over(&terms)).await?;
        print_item(&args.place, &item)
    })
}

fn change(
    args: &OneArgs,
    how: impl AsyncFnOnce(&Sale, &str) -> tenure_sale::Result<Item>,
) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let item = how(&sale, &args.item).await?;
        print_item(&args.place, &item)
    })
}

fn forget(args: &OneArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let item = known(&sale, &args.item).await?.name;
        let forgotten = sale.forget(&item).await?;
        if args.place.json {
            output::say_json(&Forgotten {
                item: &item,
                forgotten,
            })?;
        } else if forgotten {
            output::say(format_args!("removed `{item}` from the gate"))?;
        } else {
            output::say(format_args!(
                "not removed: `{item}` is not closed, or its queue is not empty"
            ))?;
        }
        Ok(if forgotten { Exit::Done } else { Exit::Broken })
    })
}

/// An item that must exist.
pub(super) async fn known(sale: &Sale, name: &str) -> Result<Item> {
    sale.item(name).await?.ok_or_else(|| {
        let message = format!(
            "item `{name}` not found in the ledger: create it with `tenure sale item create`"
        );
        Failed::new(Exit::Broken, message).into()
    })
}

/// Prints an item after a change.
pub(super) fn print_item(place: &PlaceArgs, item: &Item) -> Result<Exit> {
    if place.json {
        output::say_json(&ShownItem::of(item))?;
    } else if item.unlimited {
        output::say(format_args!(
            "{} is {}: unlimited, {} sold",
            item.name, item.state, item.sold
        ))?;
    } else {
        output::say(format_args!(
            "{} is {}: {} units in total, {} sold",
            item.name, item.state, item.total, item.sold
        ))?;
    }
    Ok(Exit::Done)
}
