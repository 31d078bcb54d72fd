//! `tenure release`: release a lease.

use anyhow::Result;
use serde::Serialize;
use tenure::{Lease, Released};
use tenure_view::output::say_json;

use super::leases::LeaseArgs;
use crate::exit::{Exit, Failed};
use crate::runtime;
use crate::server::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  tenure release --lease \"$lease\"
  tenure release nightly                 with TENURE_LEASE in the environment";

/// Release a lease
///
/// Prints nothing. Exits with 0 if it was still held, with 79 if it had expired (the work was not
/// protected to its end), and with 69 if the server did not respond.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ReleaseArgs {
    #[command(flatten)]
    lease: LeaseArgs,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    released: &'static str,
}

pub fn run(args: &ReleaseArgs) -> Result<Exit> {
    let lease = args.lease.read()?;
    let server = args.server.resolve()?;
    let released = runtime::block_on(async {
        let locks = server.connect_for_one().await?;
        Ok(locks
            .force_release(lease.name().as_str(), lease.id())
            .await?)
    })?;
    if args.json {
        say_json(&Report {
            name: lease.name().as_str(),
            released: word_for(released),
        })?;
    }
    ending(&lease, released)
}

/// The word for programs.
pub fn word_for(released: Released) -> &'static str {
    match released {
        Released::WasHeld => "was_held",
        Released::AlreadyGone => "already_gone",
        _ => "unknown",
    }
}

fn ending(lease: &Lease, released: Released) -> Result<Exit> {
    let name = lease.name();
    match released {
        Released::WasHeld => Ok(Exit::Done),
        Released::AlreadyGone => Err(Failed::new(
            Exit::Lost,
            format!(
                "lock `{name}` was no longer held: its lease had expired, so the work was not \
                 protected to its end"
            ),
        )
        .into()),
        _ => Err(Failed::new(
            Exit::Unavailable,
            format!(
                "unknown whether lock `{name}` was released: the server did not respond; the lease \
                 expires by itself"
            ),
        )
        .into()),
    }
}
