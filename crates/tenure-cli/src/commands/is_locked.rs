//! `tenure is-locked`: for scripts.

use anyhow::Result;
use tenure_view::holders::LockReport;
use tenure_view::output::say;

use crate::exit::Exit;
use crate::runtime;
use crate::server::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  if tenure is-locked deploy; then echo 'a deploy is running'; fi
  tenure is-locked -v deploy

The answer may be out of date by the next line. To exclude others, use `tenure run`.";

/// Exit with 0 if a lock is held, with 1 if it is free
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct IsLockedArgs {
    /// Name of the lock
    name: String,

    /// Print the holder
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: &IsLockedArgs) -> Result<Exit> {
    let server = args.server.resolve()?;
    let holder = runtime::block_on(async {
        let locks = server.connect().await?;
        Ok(locks.lock(&args.name).holder().await?)
    })?;
    if args.verbose {
        let report = LockReport::of_holder(&args.name, holder.as_ref(), &[]);
        if report.held {
            let left = report.left().unwrap_or_default();
            let left = match report.left_ms {
                Some(_) => format!("{left} left"),
                None => left,
            };
            say(format_args!("held by {}, {left}", report.who))?;
        } else {
            say("free")?;
        }
    }
    Ok(if holder.is_some() {
        Exit::Done
    } else {
        Exit::Broken
    })
}
