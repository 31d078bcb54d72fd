//! `tenure man`: the manual page.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Print the manual page
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &ManArgs) -> Result<Exit> {
    bail!("not built yet")
}
