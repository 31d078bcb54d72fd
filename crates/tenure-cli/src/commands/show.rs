//! `tenure show`: one lock.

use anyhow::Result;
use tenure_view::holders::{look, printable};
use tenure_view::output::{say, say_json};

use crate::exit::Exit;
use crate::runtime;
use crate::server::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  tenure show nightly                            its holder, since when, its waiters
  tenure show nightly --json | jq -r .lease_id   the id that force-unlock needs

Shows locks of other libraries too, as far as their keys tell.";

/// Show one lock: its holder, lease and waiters
///
/// Also shows locks of other libraries. The exit code is 0 for a free lock too; scripts use `tenure
/// is-locked`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ShowArgs {
    /// Name of the lock
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
    let state = match (report.held, report.kept) {
        (false, _) => "is free",
        (true, false) => "is held",
        (true, true) => "is kept, and nobody uses it",
    };
    say(format_args!("`{name}` {state}"))?;
    if report.held || report.waiting > 0 {
        for line in report.lines() {
            say(line)?;
        }
    }
    Ok(Exit::Done)
}
