//! `tenure bench sale`: the load of a sale, over HTTP, and whether it holds.

mod answer;
mod check;
mod connection;
mod instance;
mod load;
mod record;
mod report;
mod tally;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure::CancellationToken;
use tenure_view::output::{complain, say, say_json};
use tenure_view::time;

use self::check::Before;
use self::instance::Instance;
use self::load::Load;
use self::record::Recorder;
use self::report::Report;
use crate::commands::serve::token;
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tenure bench sale --http http://127.0.0.1:8080 --item sku-7 --rate 2000 --duration 10s
  tenure bench sale --http http://127.0.0.1:8081 --http http://127.0.0.1:8082 \\
    --item 1001 --orders 20000 --record answers.ndjson
  tenure bench sale --http http://127.0.0.1:8080 --notes --rate 500 --json

What is asked:
  Orders of one unit, each by a request id of its own, in turn at all instances. With --rate they
  begin when they are due, whether or not earlier ones were answered, and how long they took counts
  from then; without it, every connection sends its next one when it has an answer.
  What got no answer is asked for again at the end, by the same request id.

What is checked afterwards:
  no order id was given twice, no more was accepted than was left or came back meanwhile, and what
  gate and ledger say adds up to the same. Exit code 1 if not.";

/// Order over HTTP as many buyers would, and check that the sale held
///
/// The item must be on sale. Ctrl-C ends the load and shows and checks what was done so far.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SaleArgs {
    /// Where `tenure serve` listens; several times: several instances of one sale
    #[arg(long, value_name = "URL", required = true)]
    http: Vec<String>,

    /// Which item to order
    #[arg(long, value_name = "ITEM", default_value = "1001")]
    item: String,

    /// Orders a second, begun when they are due [default: as many as the connections carry]
    #[arg(long, value_name = "ORDERS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,

    /// How many connections, each kept for all its orders
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// For how long to order
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = time::parse)]
    duration: Duration,

    /// How many orders to place, however long it takes
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    orders: Option<u64>,

    /// How many buyers there are [default: another one for each order]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    buyers: Option<u64>,

    /// Order by GET /order/v1/submitOrder, as the notes' load tests do
    #[arg(long)]
    notes: bool,

    /// A file for every answer, one line of JSON each
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// A file with the service's token in its first line [env: `TENURE_TOKEN`, the token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// For programs: one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &SaleArgs) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("cannot start: are threads or file descriptors used up?")?;
    let exit = runtime.block_on(order_and_check(args));
    runtime.shutdown_background();
    exit
}

async fn order_and_check(args: &SaleArgs) -> Result<Exit> {
    let token = token::find(args.token_file.as_deref())?;
    let mut instances = Vec::new();
    for url in &args.http {
        instances.push(Instance::find(url, token.as_ref()).await?);
    }
    let before = Before::look(&instances[0], &args.item).await?;
    let recorder = args.record.as_deref().map(Recorder::create).transpose()?;
    let stopped = CancellationToken::new();
    let load = Load::new(args, instances, recorder, stopped.clone());
    let tally = tokio::select! {
        tally = load.run() => tally?,
        () = interrupted_twice(&stopped) => return Ok(Exit::INTERRUPTED),
    };
    let checks = before.check(load.instances(), &tally).await?;
    let report = Report::new(args, load.instances(), &tally, checks);
    if args.json {
        say_json(&report)?;
    } else {
        say(&report)?;
    }
    Ok(match (report.holds(), stopped.is_cancelled()) {
        (false, _) => Exit::Broken,
        (true, true) => Exit::INTERRUPTED,
        (true, false) => Exit::Done,
    })
}

/// The first Ctrl-C ends the load, the second one everything.
async fn interrupted_twice(stopped: &CancellationToken) {
    // Where signals cannot be heard, nobody interrupts.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    complain("interrupted: the load ends");
    stopped.cancel();
    let _ = tokio::signal::ctrl_c().await;
    complain("interrupted again: nothing is checked");
}
