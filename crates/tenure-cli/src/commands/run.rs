//! `tenure run`: hold a lock, or a permit, while a command runs.

mod boot_clock;
mod environment;
pub(super) mod held_locks;
pub(super) mod options;
pub(super) mod program;
pub(super) mod running;
pub(super) mod signals;
mod talk;
mod teller;
mod terminal;
pub(super) mod tree;
pub(super) mod waiting;
mod wanted;
mod warden;
pub(super) mod wrapper;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

pub use self::options::RunArgs;
use self::program::Program;
use crate::exit::Exit;
use crate::runtime::block_on;

/// The arguments of the warden.
#[derive(Clone, Debug, clap::Args)]
pub struct WardenArgs {
    /// Path of the program.
    #[arg(long)]
    program: PathBuf,
    /// Its name, as argument zero.
    #[arg(long, allow_hyphen_values = true)]
    called: OsString,
    /// The wrapper's socket.
    #[arg(long)]
    socket: String,
    /// The program's arguments.
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

pub fn run(args: &RunArgs) -> Result<Exit> {
    let plan = args.plan()?;
    block_on(wrapper::run(&plan))
}

/// The warden process.
pub fn guard(args: &WardenArgs) -> Result<Exit> {
    let program = Program {
        path: args.program.clone(),
        called: args.called.clone(),
        arguments: args.arguments.clone(),
    };
    block_on(warden::guard(&args.socket, &program))?;
    Ok(Exit::Done)
}
