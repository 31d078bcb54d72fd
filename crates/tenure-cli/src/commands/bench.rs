//! `tenure bench`: how fast locks are on a server.

mod commands;
mod contest;
mod floor;
mod pairs;
mod progress;
mod report;
pub mod sale;
mod stand;
mod until;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use tenure::CancellationToken;
use tenure_view::output;
use tenure_view::time;
use tenure_view::timings::Timings;

use self::commands::Meter;
use self::contest::Contest;
use self::progress::Progress;
use self::report::Report;
use self::stand::Stand;
use self::until::Until;
use crate::exit::Exit;
use crate::server::ServerArgs;

/// The number of rounds in which floor and locks alternate, so that both see the same state of the
/// machine.
const ROUNDS: u32 = 3;

const EXAMPLES: &str = "\
Examples:
  tenure bench --url redis://127.0.0.1/               three phases of three seconds
  tenure bench --clients 8 --tasks 1 --hold 5ms       eight clients that hold each lock for 5 ms
  tenure bench --locks 100 --duration 30s --json      a hundred names, as JSON
  tenure bench sale --help                            the load of a sale, over HTTP

What is measured:
  floor        a bare SET NX PX and a compare-and-delete, each on its own key
  uncontended  acquire and release, each on its own name, alternating with the floor
  contended    all tasks acquire the same names";

/// Measure the speed of locks on a server, next to bare Redis commands
///
/// Uses its own names and deletes them. It loads the server heavily: do not run it in production.
/// Ctrl-C stops it and shows the results so far.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,

    #[command(flatten)]
    server: ServerArgs,

    /// Number of clients, each with its own connections
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,

    /// Tasks per client
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tasks: u32,

    /// Duration of each of the three phases
    #[arg(long, value_name = "DUR", default_value = "3s", value_parser = time::parse)]
    duration: Duration,

    /// Number of names in the contended phase
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    locks: u32,

    /// How long each lock is held in the contended phase
    #[arg(long, value_name = "DUR", default_value = "0", value_parser = time::parse)]
    hold: Duration,

    /// How long a lease lasts without renewal [default: as configured, or 30s]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum BenchCommand {
    Sale(sale::SaleArgs),
}

pub fn run(args: &BenchArgs) -> Result<Exit> {
    if let Some(BenchCommand::Sale(args)) = &args.command {
        return sale::run(args);
    }
    let server = args.server.resolve()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime =
        runtime.context("cannot start the runtime: out of threads or file descriptors?")?;
    runtime.block_on(async {
        let stand = Stand::build(&server, args).await?;
        let stopped = CancellationToken::new();
        tokio::select! {
            ended = measure_and_report(args, &stand, &stopped) => ended,
            () = interrupted_twice(&stopped) => {
                output::complain("interrupted again: some keys may be left");
                Ok(Exit::INTERRUPTED)
            }
        }
    })
}

async fn measure_and_report(
    args: &BenchArgs,
    stand: &Stand,
    stopped: &CancellationToken,
) -> Result<Exit> {
    let measured = measure(args, stand, stopped).await;
    stand.tidy_up().await;
    let report = measured?;
    if args.json {
        output::say_json(&report)?;
    } else {
        output::say(&report)?;
    }
    Ok(if stopped.is_cancelled() {
        Exit::INTERRUPTED
    } else {
        Exit::Done
    })
}

/// The first Ctrl-C ends the measurement, the second one the process.
async fn interrupted_twice(stopped: &CancellationToken) {
    // Without signal handlers there is nothing to wait for.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    output::complain("interrupted: stopping");
    stopped.cancel();
    let _ = tokio::signal::ctrl_c().await;
}

async fn measure(args: &BenchArgs, stand: &Stand, stopped: &CancellationToken) -> Result<Report> {
    let mut report = Report::new(args, stand);
    let (mut floor, mut pairs) = (Timings::new(), Timings::new());
    let mut meter = Meter::default();
    let part = args.duration / ROUNDS;
    for _ in 0..ROUNDS {
        let until = Until::after(part, stopped);
        floor.join(&floor::run(stand, &until, Progress::new("floor", part)).await?);
        report.floor_took += until.took();
        let until = Until::after(part, stopped);
        let before = Meter::read(&stand.servers).await?;
        let progress = Progress::new("uncontended", part);
        pairs.join(&pairs::run(stand, &until, progress).await?);
        report.pairs_took += until.took();
        meter.add(before, Meter::read(&stand.servers).await?);
    }
    report.note_pairs(&floor, &pairs, &meter);
    if !stopped.is_cancelled() {
        let until = Until::after(args.duration, stopped);
        let before = Meter::read(&stand.servers).await?;
        let progress = Progress::new("contended", args.duration);
        let contest = Contest::run(stand, args, &until, progress).await?;
        let mut meter = Meter::default();
        meter.add(before, Meter::read(&stand.servers).await?);
        report.note_contest(&contest, until.took(), &meter);
    }
    Ok(report)
}
