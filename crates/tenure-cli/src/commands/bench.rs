//! `tenure bench`: how fast locks are on a server.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Measure how fast locks are on a server, beside the server's own speed
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &BenchArgs) -> Result<Exit> {
    bail!("not built yet")
}
