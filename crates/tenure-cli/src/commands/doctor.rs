//! `tenure doctor`: is this Redis fit for locks?

use anyhow::{Result, bail};

use crate::exit::Exit;
use crate::server::ServerArgs;

/// Examine whether a Redis is fit for locks, and say what to do
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(_args: &DoctorArgs) -> Result<Exit> {
    bail!("not built yet")
}
