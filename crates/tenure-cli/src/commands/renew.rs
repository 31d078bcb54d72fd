//! `tenure renew`: renew a lease.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tenure_view::output::say_json;
use tenure_view::time;
use tenure_view::time::{millis, moment};

use super::leases::LeaseArgs;
use crate::exit::Exit;
use crate::runtime;
use crate::server::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  tenure renew --lease \"$lease\" || exit     stop if it was lost: exit code 79
  tenure renew nightly --ttl 10m            with TENURE_LEASE in the environment";

/// Renew a lease
///
/// The lease itself does not change, so a script keeps one variable. Prints nothing. Exits with 79
/// if the lease was lost: stop the work that it protects.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RenewArgs {
    #[command(flatten)]
    lease: LeaseArgs,

    /// How long it lasts from now [default: its original ttl]
    #[arg(short, long, value_name = "DURATION", value_parser = time::parse)]
    ttl: Option<Duration>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    renewed: bool,
    ttl_ms: u64,
    expires_at: String,
}

pub fn run(args: &RenewArgs) -> Result<Exit> {
    let lease = args.lease.read()?;
    let ttl = args.ttl.unwrap_or(lease.ttl());
    let server = args.server.resolve()?;
    runtime::block_on(async {
        let locks = server.connect_for_one().await?;
        let deadline = locks.renew(&lease, ttl).await?;
        if args.json {
            say_json(&Report {
                name: lease.name().as_str(),
                renewed: true,
                ttl_ms: millis(ttl),
                expires_at: moment(deadline.to_system_time()),
            })?;
        }
        Ok(Exit::Done)
    })
}
