//! `tenure show`: all about one lock.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Show one lock: who holds it since when, with which fence, who waits
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &ShowArgs) -> Result<Exit> {
    bail!("not built yet")
}
