//! `tenure acquire`: take a lock and leave.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Take a lock and print its lease, for scripts that release it later
#[derive(Clone, Debug, clap::Args)]
pub struct AcquireArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &AcquireArgs) -> Result<Exit> {
    bail!("not built yet")
}
