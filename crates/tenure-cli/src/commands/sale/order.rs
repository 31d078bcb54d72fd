//! `tenure sale order`: orders.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use tenure_sale::{Answer, ORDER_UNITS_MAX, Order, OrderId, OrderState, Outcome, Request, Sale};
use tenure_view::output;
use tenure_view::sale::{ShownOrder, outcome_word};
use tenure_view::time;

use super::item::known;
use super::place::{PlaceArgs, is_unknown};
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tenure sale order submit sku-7 --buyer anna --request click-1 --wait 5s
  tenure sale order show sku-7.1.42
  tenure sale order pay sku-7.1.42
  tenure sale order ls --buyer anna";
const SUBMIT_EXAMPLES: &str = "\
Examples:
  tenure sale order submit sku-7 --buyer anna
  tenure sale order submit sku-7 --buyer anna --request click-1 --units 2 --wait 5s
  order=$(tenure sale order submit sku-7 --buyer anna --json | jq -r .order_id)

Exit codes:
  0    accepted, or accepted before by the same request; with --wait: in the ledger
  1    sold out, over the limit, not started, paused, ended, no item; with --wait: rejected
  75   with --wait: accepted, but not in the ledger in time; is a consumer running?
  69   the gate is busy or being rebuilt: retry with the same --request";
const SHOW_EXAMPLES: &str = "\
Examples:
  tenure sale order show sku-7.1.42
  tenure sale order show sku-7.1.42 --wait 10s --json | jq -r .state";
const LS_EXAMPLES: &str = "\
Examples:
  tenure sale order ls --buyer anna
  tenure sale order ls sku-7 --state paid-unfulfilled --json";
const MOVE_EXAMPLES: &str = "\
Examples:
  tenure sale order pay sku-7.1.42
  tenure sale order cancel sku-7.1.42";

/// Submit, show, list, cancel and pay orders
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct OrderArgs {
    #[command(subcommand)]
    command: OrderCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum OrderCommand {
    /// Submit an order
    Submit(SubmitArgs),
    /// Show one order, in the queue or in the ledger
    Show(ShowArgs),
    /// List orders in the ledger, newest first
    Ls(LsArgs),
    /// Cancel an unpaid order and return its units, once
    #[command(after_long_help = MOVE_EXAMPLES)]
    Cancel(OneArgs),
    /// Mark an order as paid
    ///
    /// A payment after the order expired reserves the units again if some are left; otherwise the
    /// order becomes `paid-unfulfilled` (exit code 1): refund it.
    #[command(after_long_help = MOVE_EXAMPLES)]
    Pay(OneArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = SUBMIT_EXAMPLES)]
struct SubmitArgs {
    /// Name of the item
    #[arg(value_name = "ITEM")]
    item: String,

    /// The buyer
    #[arg(long, value_name = "NAME")]
    buyer: String,

    /// Idempotency key: a retry with the same id is the same order [default: random]
    #[arg(long, value_name = "ID")]
    request: Option<String>,

    /// Number of units
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=ORDER_UNITS_MAX))]
    units: u64,

    /// Wait at most this long until the order is in the ledger; needs a consumer
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    wait: Option<Duration>,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = SHOW_EXAMPLES)]
struct ShowArgs {
    /// Id of the order, like `sku-7.1.42`
    #[arg(value_name = "ORDER")]
    order: OrderId,

    /// Wait at most this long until it is in the ledger
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    wait: Option<Duration>,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = LS_EXAMPLES)]
struct LsArgs {
    /// Orders of this buyer
    #[arg(long, value_name = "NAME", required_unless_present_any = ["item", "of_item"])]
    #[arg(conflicts_with_all = ["item", "of_item", "state"])]
    buyer: Option<String>,

    /// Orders of this item
    #[arg(value_name = "ITEM")]
    item: Option<String>,

    /// The same
    #[arg(
        long = "item",
        value_name = "ITEM",
        id = "of_item",
        conflicts_with = "item"
    )]
    of_item: Option<String>,

    /// Only orders in this state
    #[arg(long, value_name = "STATE", conflicts_with = "buyer")]
    #[arg(value_parser = PossibleValuesParser::new(words()))]
    state: Option<String>,

    /// Maximum number of results
    #[arg(long, value_name = "ORDERS", default_value_t = 100)]
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
struct Submitted<'a> {
    outcome: &'static str,
    order_id: Option<String>,
    item: &'a str,
    buyer: &'a str,
    request: &'a str,
    units: u64,
    left: Option<u64>,
    /// The final state of the order, if the command waited for it.
    state: Option<&'static str>,
}

#[derive(Serialize)]
struct Orders {
    orders: Vec<ShownOrder>,
}

pub fn run(args: &OrderArgs) -> Result<Exit> {
    match &args.command {
        OrderCommand::Submit(args) => submit(args),
        OrderCommand::Show(args) => show(args),
        OrderCommand::Ls(args) => ls(args),
        OrderCommand::Cancel(args) => change(args, async |sale, order| sale.cancel(order).await),
        OrderCommand::Pay(args) => change(args, async |sale, order| sale.pay(order).await),
    }
}

fn submit(args: &SubmitArgs) -> Result<Exit> {
    let random = || format!("cli-{:032x}", rand::random::<u128>());
    let id = args.request.clone().unwrap_or_else(random);
    let request = Request::new(&args.item, &args.buyer, id)?.units(args.units)?;
    args.place.with_sale(async |sale| {
        let asked = sale.submit(&request).await;
        if asked.as_ref().is_err_and(is_unknown) {
            output::complain(format_args!(
                "tenure: unknown whether the order was accepted: retry with `--request {}`",
                request.id()
            ));
        }
        let answer = asked?;
        let waited = match (answer.outcome.order(), args.wait) {
            (Some(order), Some(limit)) => Some(sale.wait(order, limit).await?),
            _ => None,
        };
        print_answer(args, &request, &answer, waited.as_ref())
    })
}

fn print_answer(
    args: &SubmitArgs,
    request: &Request,
    answer: &Answer,
    waited: Option<&Order>,
) -> Result<Exit> {
    let (sentence, exit) = describe(&answer.outcome);
    let state = waited.map(|order| order.state);
    if args.place.json {
        output::say_json(&Submitted {
            outcome: outcome_word(&answer.outcome),
            order_id: order_of(&answer.outcome).map(ToString::to_string),
            item: request.item(),
            buyer: request.buyer(),
            request: request.id(),
            units: request.wanted(),
            left: answer.left,
            state: state.map(OrderState::word),
        })?;
    } else {
        let order = order_of(&answer.outcome).map(|order| format!("{order} "));
        let state = state.map(|state| format!(", {state}"));
        let (order, state) = (order.unwrap_or_default(), state.unwrap_or_default());
        output::say(format_args!("{order}{sentence}{state}"))?;
    }
    match state {
        Some(state) if exit == Exit::Done => Ok(exit_of(state)),
        _ => Ok(exit),
    }
}

/// Describes the outcome, and returns its exit code.
fn describe(outcome: &Outcome) -> (&'static str, Exit) {
    match outcome {
        Outcome::Accepted(_) => ("accepted", Exit::Done),
        Outcome::Replayed(_) => ("accepted before, by the same request", Exit::Done),
        Outcome::Conflict(_) => (
            "conflict: the same request ordered another number of units",
            Exit::Broken,
        ),
        Outcome::NoItem => ("not on sale: item not found, or a draft", Exit::Broken),
        Outcome::NotStarted => ("refused: the sale has not started", Exit::Broken),
        Outcome::Ended => ("refused: the sale has ended", Exit::Broken),
        Outcome::Paused => ("refused: the sale is paused", Exit::Broken),
        Outcome::LimitReached => (
            "refused: over the limit per buyer or per order",
            Exit::Broken,
        ),
        Outcome::SoldOut => ("sold out", Exit::Broken),
        Outcome::Busy => (
            "busy: too many orders are queued for the ledger; retry in a moment",
            Exit::Unavailable,
        ),
        Outcome::StaleEpoch => (
            "busy: the gate is being rebuilt; retry in a moment",
            Exit::Unavailable,
        ),
    }
}

fn order_of(outcome: &Outcome) -> Option<&OrderId> {
    match outcome {
        Outcome::Accepted(order) | Outcome::Replayed(order) | Outcome::Conflict(order) => {
            Some(order)
        }
        _ => None,
    }
}

/// Whether an order that the command waited for succeeded.
fn exit_of(state: OrderState) -> Exit {
    match state {
        OrderState::Reserved | OrderState::Paid => Exit::Done,
        // It was accepted, and no consumer has written it to the ledger yet.
        OrderState::Queued => Exit::NotAcquired,
        _ => Exit::Broken,
    }
}

fn show(args: &ShowArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let order = match args.wait {
            Some(limit) => sale.wait(&args.order, limit).await?,
            None => sale.order(&args.order).await?,
        };
        print_order(&args.place, &order)?;
        let is_late = args.wait.is_some() && order.state == OrderState::Queued;
        Ok(if is_late {
            Exit::NotAcquired
        } else {
            Exit::Done
        })
    })
}

fn ls(args: &LsArgs) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let orders = match (&args.buyer, args.item.as_ref().or(args.of_item.as_ref())) {
            (Some(buyer), _) => sale.orders_of(buyer, args.count).await?,
            (None, Some(item)) => {
                known(&sale, item).await?;
                let ledger = sale.ledger();
                ledger.orders_for(item, args.state(), args.count).await?
            }
            (None, None) => Vec::new(),
        };
        let orders: Vec<ShownOrder> = orders.iter().map(ShownOrder::of).collect();
        if args.place.json {
            output::say_json(&Orders { orders })?;
        } else {
            if !orders.is_empty() {
                output::say(ShownOrder::heading())?;
            }
            for order in &orders {
                output::say(order)?;
            }
        }
        Ok(Exit::Done)
    })
}

fn change(
    args: &OneArgs,
    how: impl AsyncFnOnce(&Sale, &OrderId) -> tenure_sale::Result<Order>,
) -> Result<Exit> {
    args.place.with_sale(async |sale| {
        let order = how(&sale, &args.order).await?;
        print_order(&args.place, &order)?;
        let is_refund = order.state == OrderState::PaidUnfulfilled;
        Ok(if is_refund { Exit::Broken } else { Exit::Done })
    })
}

fn print_order(place: &PlaceArgs, order: &Order) -> Result<()> {
    let shown = ShownOrder::of(order);
    if place.json {
        output::say_json(&shown)?;
    } else {
        output::say(&shown)?;
    }
    Ok(())
}

impl LsArgs {
    fn state(&self) -> Option<OrderState> {
        let word = self.state.as_deref()?;
        OrderState::ALL
            .into_iter()
            .find(|state| state.word() == word)
    }
}

/// The states of an order in the ledger.
fn words() -> Vec<&'static str> {
    let in_ledger = OrderState::ALL
        .into_iter()
        .filter(|state| *state != OrderState::Queued);
    in_ledger.map(OrderState::word).collect()
}
