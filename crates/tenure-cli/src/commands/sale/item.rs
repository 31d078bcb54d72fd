//! `tenure sale item`: what is sold.

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

/// Create items, put them on sale and take them off
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct ItemArgs {
    #[command(subcommand)]
    command: ItemCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum ItemCommand {
    /// Put an item into the ledger, as a draft unless --open is given
    Create(CreateArgs),
    /// List all items
    #[command(after_long_help = LS_EXAMPLES)]
    Ls(PlaceArgs),
    /// Show one item: stock, terms, gate
    #[command(after_long_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// Put an item on sale: its gate is loaded from the ledger
    #[command(after_long_help = STATE_EXAMPLES)]
    Open(OneArgs),
    /// Stop selling for a while: buyers are told *paused*
    #[command(after_long_help = STATE_EXAMPLES)]
    Pause(OneArgs),
    /// End the sale of an item: buyers are told *ended*
    #[command(after_long_help = STATE_EXAMPLES)]
    Close(OneArgs),
    /// Sell an item on other terms from now on
    Set(SetArgs),
    /// Load the gate from the ledger anew, also if it is in order
    ///
    /// It refuses meanwhile. What stands in the queue is brought into the ledger first.
    #[command(after_long_help = STATE_EXAMPLES)]
    Rebuild(OneArgs),
    /// Let the gate forget a closed item whose queue is empty
    ///
    /// Consumers do it by themselves when the time of its answers is over.
    #[command(after_long_help = STATE_EXAMPLES)]
    Forget(OneArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = CREATE_EXAMPLES)]
struct CreateArgs {
    /// The name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// How many units there are
    #[arg(long, value_name = "UNITS", required_unless_present = "unlimited")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=UNITS_MAX))]
    stock: Option<u64>,

    /// It never sells out
    #[arg(long, conflicts_with = "stock")]
    unlimited: bool,

    /// Spread its stock over so many shelves, each in a slot of its own
    ///
    /// For an item that one node of a Redis Cluster cannot serve: with as many shelves as nodes, all
    /// of them sell it. Limits, requests and *sold out* stay exact. It cannot be changed later, and at
    /// a gate in memory it changes nothing.
    #[arg(long, value_name = "SHELVES", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=SPREAD_MAX))]
    spread: u64,

    /// Put it on sale at once
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
    /// The name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    #[command(flatten)]
    terms: TermsArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct OneArgs {
    /// The name of the item
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
        tell(&args.place, &item)
    })
}

fn ls(place: &PlaceArgs) -> Result<Exit> {
    place.with_sale(async |sale| {
        let items: Vec<ShownItem> = sale.items().await?.iter().map(ShownItem::of).collect();
        if place.json {
            output::say_json(&Items { items })?;
        } else if items.is_empty() {
            output::complain("there are no items: `tenure sale item create` makes one");
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
        tell(&args.place, &item)
    })
}

fn change(
    args: &OneArgs,
    how: impl AsyncFnOnce(&Sale, &str) -> tenure_sale::Result<Item>,
) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let item = how(&sale, &args.item).await?;
        tell(&args.place, &item)
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
            output::say(format_args!("the gate has forgotten `{item}`"))?;
        } else {
            output::say(format_args!(
                "the gate keeps `{item}`: it is not closed, or entries are left in its queue"
            ))?;
        }
        Ok(if forgotten { Exit::Done } else { Exit::Broken })
    })
}

/// An item that must be there.
pub(super) async fn known(sale: &Sale, name: &str) -> Result<Item> {
    sale.item(name).await?.ok_or_else(|| {
        let message = format!("there is no item `{name}` in the ledger: create it first");
        Failed::new(Exit::Broken, message).into()
    })
}

/// What an item is like after something was done with it.
pub(super) fn tell(place: &PlaceArgs, item: &Item) -> Result<Exit> {
    if place.json {
        output::say_json(&ShownItem::of(item))?;
    } else if item.unlimited {
        output::say(format_args!(
            "{} is {}: unlimited, {} sold",
            item.name, item.state, item.sold
        ))?;
    } else {
        output::say(format_args!(
            "{} is {}: {} units in all, {} sold",
            item.name, item.state, item.total, item.sold
        ))?;
    }
    Ok(Exit::Done)
}
