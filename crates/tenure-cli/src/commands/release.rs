//! `tenure release`: give back what `acquire` took.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Give back a lease that `acquire` took
#[derive(Clone, Debug, clap::Args)]
pub struct ReleaseArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &ReleaseArgs) -> Result<Exit> {
    bail!("not built yet")
}
