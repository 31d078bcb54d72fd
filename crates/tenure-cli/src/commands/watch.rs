//! `tenure watch`: tell what changes.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Tell when locks are taken, handed on, let go
#[derive(Clone, Debug, clap::Args)]
pub struct WatchArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &WatchArgs) -> Result<Exit> {
    bail!("not built yet")
}
