//! `tenure renew`: give a lease its time again.

use std::time::{Duration, SystemTime};

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
  tenure renew --lease \"$lease\" || exit     stop if it is gone: exit code 79
  tenure renew nightly --ttl 10m            with TENURE_LEASE in the environment";

/// Give a lease from `acquire` its time again
///
/// The lease stays the same, so a script keeps one variable. Prints nothing. Ends with 79 if the
/// lease is gone: whatever it protected must stop.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RenewArgs {
    #[command(flatten)]
    lease: LeaseArgs,

    /// How long it lasts from now [default: what it was taken with]
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
        // From before it was asked: it lasts for at least this long.
        let asked = SystemTime::now();
        locks.renew(&lease, ttl).await?;
        if args.json {
            say_json(&Report {
                name: lease.name().as_str(),
                renewed: true,
                ttl_ms: millis(ttl),
                expires_at: moment(asked + ttl),
            })?;
        }
        Ok(Exit::Done)
    })
}
