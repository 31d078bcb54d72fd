//! `tenure show`: one lock, whoever holds it.

use anyhow::Result;
use tenure_view::holders::{look, printable};
use tenure_view::output::{say, say_json};

use crate::exit::Exit;
use crate::runtime;
use crate::server::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  tenure show nightly                            who holds it, since when, who waits
  tenure show nightly --json | jq -r .lease_id   what force-unlock needs

Locks of other libraries are shown too, as far as they tell.";

/// Show one lock: its holder, lease and waiters
///
/// Also a lock that another library took. A free lock is shown as free; to branch on it, use
/// `tenure is-locked`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ShowArgs {
    /// The lock
    name: String,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &ShowArgs) -> Result<Exit> {
    let server = args.server.resolve()?;
    let report = runtime::block_on(async {
        let locks = server.connect().await?;
        Ok(look(&locks, &args.name).await?)
    })?;
    if args.json {
        say_json(&report)?;
        return Ok(Exit::Done);
    }
    let name = printable(&args.name);
    let state = if report.held { "is held" } else { "is free" };
    say(format_args!("`{name}` {state}"))?;
    if report.held || report.waiting > 0 {
        for line in report.lines() {
            say(line)?;
        }
    }
    Ok(Exit::Done)
}
