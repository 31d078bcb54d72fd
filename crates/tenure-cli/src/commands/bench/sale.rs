//! `tenure bench sale`: load for a sale over HTTP, and a check of the result.

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

The load:
  Orders of one unit with unique request ids, to all instances in turn. With --rate they start when
  they are due, and their latency counts from then; without it, every connection sends its next
  order after each response. Orders without a response are retried at the end with the same id.

Checks afterwards:
  no order id is duplicate, the item was not oversold, and gate and ledger agree. Otherwise the exit
  code is 1.";

/// Submit orders over HTTP as many buyers would, and check the sale
///
/// The item must be on sale. Ctrl-C stops the load, then checks and shows the results so far.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SaleArgs {
    /// URL of `tenure serve`; may be repeated for several instances of one sale
    #[arg(long, value_name = "URL", required = true)]
    http: Vec<String>,

    /// Item to order
    #[arg(long, value_name = "ITEM", default_value = "1001")]
    item: String,

    /// Orders per second, open loop [default: as many as the connections carry]
    #[arg(long, value_name = "ORDERS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,

    /// Number of keep-alive connections
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// Duration of the load
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = time::parse)]
    duration: Duration,

    /// Total number of orders instead of a duration
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    orders: Option<u64>,

    /// Number of buyers [default: a new one for each order]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    buyers: Option<u64>,

    /// Use the classic load-test endpoint, GET /order/v1/submitOrder
    #[arg(long)]
    notes: bool,

    /// Write every response to this file, one line of JSON each
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// File whose first line is the service's token [env: `TENURE_TOKEN` holds the token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &SaleArgs) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime =
        runtime.context("cannot start the runtime: out of threads or file descriptors?")?;
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

/// The first Ctrl-C ends the load, the second one the process.
async fn interrupted_twice(stopped: &CancellationToken) {
    // Without signal handlers there is nothing to wait for.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    complain("interrupted: stopping");
    stopped.cancel();
    let _ = tokio::signal::ctrl_c().await;
    complain("interrupted again: skipping the checks");
}
