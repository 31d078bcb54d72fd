//! `tenure completions`: what shells complete.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Print what a shell needs to complete this command
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &CompletionsArgs) -> Result<Exit> {
    bail!("not built yet")
}
