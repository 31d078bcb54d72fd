//! `tenure renew`: keep a lease that `acquire` took.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Keep a lease that `acquire` took for longer
#[derive(Clone, Debug, clap::Args)]
pub struct RenewArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &RenewArgs) -> Result<Exit> {
    bail!("not built yet")
}
