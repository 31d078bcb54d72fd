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

/// In how many pieces floor and locks take turns, so that both meet the same moods of the machine.
const ROUNDS: u32 = 3;

const EXAMPLES: &str = "\
Examples:
  tenure bench --url redis://127.0.0.1/               three parts of three seconds
  tenure bench --clients 8 --tasks 1 --hold 5ms       eight that hold it for a while
  tenure bench --locks 100 --duration 30s --json      a hundred names, for programs
  tenure bench sale --help                            the load of a sale, over HTTP

What is measured:
  floor        a bare SET NX PX and a compare-and-delete, each on a key of its own
  uncontended  acquire and release, each on a name of its own, in turns with the floor
  contended    everybody wants the same names";

/// Measure how fast locks are on a server, beside the server's own speed
///
/// Uses names of its own and leaves nothing behind. It keeps the server busy: think twice before you
/// run it where others work. Ctrl-C ends it and shows what was measured so far.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,

    #[command(flatten)]
    server: ServerArgs,

    /// How many clients, each with connections of its own, as processes would have
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    clients: u32,

    /// How many tasks each client has
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tasks: u32,

    /// How long each of the three parts takes
    #[arg(long, value_name = "DUR", default_value = "3s", value_parser = time::parse)]
    duration: Duration,

    /// How many names everybody wants in the contended part
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    locks: u32,

    /// How long a lock is held in the contended part
    #[arg(long, value_name = "DUR", default_value = "0", value_parser = time::parse)]
    hold: Duration,

    /// How long a lease lasts without renewal [default: that of the configuration file, or 30s]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// For programs: one line of JSON
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
    let runtime = runtime.context("cannot start: are threads or file descriptors used up?")?;
    runtime.block_on(async {
        let stand = Stand::build(&server, args).await?;
        let stopped = CancellationToken::new();
        tokio::select! {
            ended = measure_and_tell(args, &stand, &stopped) => ended,
            () = interrupted_twice(&stopped) => {
                output::complain("interrupted again: some of the keys may be left");
                Ok(Exit::INTERRUPTED)
            }
        }
    })
}

async fn measure_and_tell(
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

/// The first Ctrl-C ends the measuring, the second one everything.
async fn interrupted_twice(stopped: &CancellationToken) {
    // Where signals cannot be heard, nobody interrupts.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    output::complain("interrupted: the measuring ends");
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
