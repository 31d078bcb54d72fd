//! What the command can do.

pub mod demo;

use anyhow::Result;

use crate::args::{Args, Command};
use crate::exit::Exit;

pub fn run(args: &Args) -> Result<Exit> {
    match &args.command {
        Command::Demo(demo) => demo::run(demo),
    }
}
