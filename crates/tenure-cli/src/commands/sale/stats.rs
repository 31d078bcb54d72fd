//! `tenure sale stats`: how a sale goes.

use anyhow::Result;
use serde::Serialize;
use tenure_sale::{Item, Sale};

use super::item::known;
use super::place::PlaceArgs;
use super::shown::{ShownCount, ShownGate, or_dash};
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  tenure sale stats
  tenure sale stats sku-7
  watch -n1 tenure sale stats sku-7
  tenure sale stats --json | jq '.items[] | {item, left: .gate.left, sold}'";

/// Tell how the sale goes: left, queued, sold, orders by state
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct StatsArgs {
    /// The name of the item [default: all]
    #[arg(value_name = "ITEM")]
    item: Option<String>,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Serialize)]
struct Stats {
    items: Vec<ItemStats>,
}

#[derive(Serialize)]
struct ItemStats {
    item: String,
    state: &'static str,
    total: Option<u64>,
    sold: u64,
    gate: ShownGate,
    orders: Vec<ShownCount>,
    #[serde(skip)]
    line: String,
}

pub fn run(args: &StatsArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let items = match &args.item {
            Some(name) => vec![known(&sale, name).await?],
            None => sale.items().await?,
        };
        let mut stats = Vec::new();
        for item in items {
            stats.push(of_item(&sale, item).await?);
        }
        if args.place.json {
            output::say_json(&Stats { items: stats })?;
        } else {
            tell(&stats)?;
        }
        Ok(Exit::Done)
    })
}

async fn of_item(sale: &Sale, item: Item) -> Result<ItemStats> {
    let standing = sale.gate().standing(&item.name).await?;
    let counts = sale.ledger().counts(&item.name).await?;
    let number = |of: fn(&tenure_sale::gate::Standing) -> u64| standing.as_ref().map(of);
    let total = (!item.unlimited).then_some(item.total);
    let line = format!(
        "{:<24} {:<7} {:>10} {:>10} {:>8} {:>10} {:>6}",
        item.name,
        item.state.word(),
        or_dash(total),
        or_dash(standing.as_ref().and_then(|gate| gate.left)),
        or_dash(number(|gate| gate.queued)),
        item.sold,
        or_dash(number(|gate| gate.dead)),
    );
    Ok(ItemStats {
        state: item.state.word(),
        total,
        sold: item.sold,
        gate: ShownGate::of(standing.as_ref()),
        orders: counts.iter().map(ShownCount::of).collect(),
        item: item.name,
        line,
    })
}

fn tell(stats: &[ItemStats]) -> Result<()> {
    output::say(format_args!(
        "{:<24} {:<7} {:>10} {:>10} {:>8} {:>10} {:>6}",
        "item", "state", "total", "left", "queued", "sold", "dead"
    ))?;
    for item in stats {
        output::say(&item.line)?;
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
