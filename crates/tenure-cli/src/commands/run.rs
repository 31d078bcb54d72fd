//! `tenure run`: hold a lock while a command runs.

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Hold a lock while a command runs
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// What the wrapper tells its warden.
#[derive(Clone, Debug, clap::Args)]
pub struct WardenArgs {}

impl RunArgs {
    /// `try`: now or not at all.
    pub fn without_waiting(&self) -> Self {
        self.clone()
    }
}

pub fn run(_args: &RunArgs) -> Result<Exit> {
    bail!("not built yet")
}

/// The warden's side.
pub fn guard(_args: &WardenArgs) -> Result<Exit> {
    bail!("not built yet")
}
