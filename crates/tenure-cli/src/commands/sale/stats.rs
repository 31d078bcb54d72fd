//! `tenure sale stats`: statistics of a sale.

use anyhow::Result;
use serde::Serialize;
use tenure_sale::{Item, Sale};
use tenure_view::output;
use tenure_view::sale::{ShownCount, ShownStats};

use super::item::known;
use super::place::PlaceArgs;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tenure sale stats
  tenure sale stats sku-7
  watch -n1 tenure sale stats sku-7
  tenure sale stats --json | jq '.items[] | {item, left: .gate.left, sold}'";

/// Show sale statistics: left, queued, sold, orders by state
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct StatsArgs {
    /// Name of the item [default: all]
    #[arg(value_name = "ITEM")]
    item: Option<String>,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Serialize)]
struct Stats {
    items: Vec<ShownStats>,
}

pub fn run(args: &StatsArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let items = match &args.item {
            Some(name) => vec![known(&sale, name).await?],
            None => sale.items().await?,
        };
        let mut stats = Vec::new();
        for item in &items {
            stats.push(of_item(&sale, item).await?);
        }
        if args.place.json {
            output::say_json(&Stats { items: stats })?;
        } else {
            print_stats(&stats)?;
        }
        Ok(Exit::Done)
    })
}

async fn of_item(sale: &Sale, item: &Item) -> Result<ShownStats> {
    let standing = sale.gate().standing(&item.name).await?;
    let counts = sale.ledger().counts(&item.name).await?;
    Ok(ShownStats::of(item, standing.as_ref(), &counts))
}

fn print_stats(stats: &[ShownStats]) -> Result<()> {
    output::say(ShownStats::heading())?;
    for item in stats {
        output::say(item.row())?;
        for shelf in item.shelves() {
            output::say(shelf.row())?;
        }
        for ShownCount {
            state,
            orders,
            units,
        } in &item.orders
        {
            output::say(format_args!(
                "  {state:<16} {orders:>8} orders {units:>8} units"
            ))?;
        }
    }
    Ok(())
}
