//! `tenure sale`: flash sales from the shell.

mod consume;
mod dlq;
mod item;
mod order;
mod place;
mod reconcile;
mod stats;
mod stock;
mod terms;
mod verify;

use anyhow::Result;
use clap::Subcommand;

use self::consume::ConsumeArgs;
use self::dlq::DlqArgs;
use self::item::ItemArgs;
use self::order::OrderArgs;
use self::reconcile::ReconcileArgs;
use self::stats::StatsArgs;
use self::stock::StockArgs;
use self::verify::VerifyArgs;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  export TENURE_URL=redis://127.0.0.1 TENURE_LEDGER=sqlite:shop.db
  tenure sale consume &                                  writes orders to the ledger
  tenure sale item create sku-7 --stock 5000 --limit 2 --open
  tenure sale order submit sku-7 --buyer anna --wait 5s
  tenure sale stats sku-7
  tenure sale verify sku-7                               does it all add up?

Exit codes:
  0    success; `order submit`: the order was accepted
  1    sold out, ended, item or order not found, not confirmed in time, does not add up
  64   invalid command line
  69   gate or ledger is unreachable or unavailable
  77   gate or ledger refused the user or the password
  78   invalid URL or configuration file";

/// Run flash sales: items, stock, orders, dead letters, reconciliation
///
/// A sale has a gate on Redis, which accepts or refuses an order in one step, and a ledger in
/// SQLite or PostgreSQL, which is authoritative. A queue connects them: your shop or `tenure sale
/// consume` must consume it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct SaleArgs {
    #[command(subcommand)]
    command: SaleCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum SaleCommand {
    Item(ItemArgs),
    Stock(StockArgs),
    Order(OrderArgs),
    Consume(ConsumeArgs),
    Stats(StatsArgs),
    Reconcile(ReconcileArgs),
    Verify(VerifyArgs),
    Dlq(DlqArgs),
}

pub fn run(args: &SaleArgs) -> Result<Exit> {
    match &args.command {
        SaleCommand::Item(args) => item::run(args),
        SaleCommand::Stock(args) => stock::run(args),
        SaleCommand::Order(args) => order::run(args),
        SaleCommand::Consume(args) => consume::run(args),
        SaleCommand::Stats(args) => stats::run(args),
        SaleCommand::Reconcile(args) => reconcile::run(args),
        SaleCommand::Verify(args) => verify::run(args),
        SaleCommand::Dlq(args) => dlq::run(args),
    }
}
