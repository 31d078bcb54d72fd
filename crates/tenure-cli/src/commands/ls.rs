//! `tenure ls`: who holds what.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// List the locks that are held, by whom, for how long, and who waits
#[derive(Clone, Debug, clap::Args)]
pub struct LsArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &LsArgs) -> Result<Exit> {
    bail!("not built yet")
}
