//! `tenure leader`: who leads.

use std::io;

use anyhow::Result;
use tenure::{Advice, Leader, Locks};
use tenure_view::holders::printable;
use tenure_view::leaders::LeaderReport;
use tenure_view::output::{complain, say, say_json};

use super::interrupt;
use crate::exit::Exit;
use crate::runtime;
use crate::server::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  curl \"http://$(tenure leader scheduler)/jobs\"   ask the leader, if its value is its address
  tenure leader -v scheduler                       its term, and since when it leads
  tenure leader -f scheduler                       a line for each change, until it is interrupted
  tenure leader -f --json scheduler | jq .term

The answer may be out of date by the next line. To lead, use `tenure elect`.";

/// Print the leader of an election
///
/// Prints the value that the leader gave. Exits with 1 if nobody leads.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct LeaderArgs {
    /// Print the leader again whenever it changes
    #[arg(short, long)]
    follow: bool,

    /// Print term and time too
    #[arg(short, long)]
    verbose: bool,

    /// Print the result as JSON, with -f one line for each change
    #[arg(long)]
    json: bool,

    /// Name of the election
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &LeaderArgs) -> Result<Exit> {
    let server = args.server.resolve()?;
    runtime::block_on(async {
        let locks = server.connect().await?;
        if !args.follow {
            let leader = locks.election(&args.name).leader().await?;
            print(args, leader.as_ref())?;
            return Ok(leader.map_or(Exit::Broken, |_| Exit::Done));
        }
        tokio::select! {
            ended = follow(args, &locks) => ended,
            exit = interrupt::asked_to_end() => Ok(exit),
        }
    })
}

/// Prints each change, even if the server is unavailable for a while.
async fn follow(args: &LeaderArgs, locks: &Locks) -> Result<Exit> {
    let mut observer = locks.election(&args.name).observe()?;
    loop {
        match observer.next().await {
            Ok(leader) => print(args, leader.as_ref())?,
            Err(error) if error.advice() == Advice::Later => {
                complain(format_args!("tenure: unknown who leads: {error}; retrying"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn print(args: &LeaderArgs, leader: Option<&Leader>) -> io::Result<()> {
    let report = LeaderReport::of(&args.name, leader);
    if args.json {
        return say_json(&report);
    }
    if args.verbose || args.follow {
        return say(report.line(leader.and_then(|leader| leader.since)));
    }
    match leader {
        Some(Leader {
            value: Some(value), ..
        }) => say(printable(value)),
        Some(leader) => say(printable(leader.lease.as_str())),
        None => {
            let name = printable(&args.name);
            complain(format_args!("tenure: nobody leads `{name}`"));
            Ok(())
        }
    }
}
