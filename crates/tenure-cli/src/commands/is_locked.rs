//! `tenure is-locked`: look and say nothing.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Whether somebody holds a lock, as exit code: 0 held, 1 free
#[derive(Clone, Debug, clap::Args)]
pub struct IsLockedArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &IsLockedArgs) -> Result<Exit> {
    bail!("not built yet")
}
