//! `tenure sale`: flash sales from the shell.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Run flash sales: items, stock, orders, dead letters, reconciliation
#[derive(Clone, Debug, clap::Args)]
pub struct SaleArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &SaleArgs) -> Result<Exit> {
    bail!("not built yet")
}
