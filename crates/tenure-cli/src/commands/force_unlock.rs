//! `tenure force-unlock`: end somebody else's lease.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// End a lease that somebody else holds
#[derive(Clone, Debug, clap::Args)]
pub struct ForceUnlockArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &ForceUnlockArgs) -> Result<Exit> {
    bail!("not built yet")
}
