//! The subcommands.

pub mod acquire;
pub mod bench;
pub mod completions;
pub mod demo;
pub mod doctor;
pub mod elect;
pub mod force_unlock;
mod interrupt;
pub mod is_locked;
pub mod leader;
mod leases;
pub mod ls;
pub mod man;
pub mod once;
mod pattern;
pub mod release;
pub mod renew;
pub mod run;
pub mod sale;
pub mod serve;
pub mod show;
mod table;
pub mod watch;

use anyhow::Result;

use crate::args::{Args, Command};
use crate::exit::Exit;

pub fn run(args: &Args) -> Result<Exit> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Try(args) => run::run(&args.without_waiting()),
        Command::Elect(args) => elect::run(args),
        Command::Once(args) => once::run(args),
        Command::Leader(args) => leader::run(args),
        Command::Acquire(args) => acquire::run(args),
        Command::Renew(args) => renew::run(args),
        Command::Release(args) => release::run(args),
        Command::IsLocked(args) => is_locked::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Show(args) => show::run(args),
        Command::Watch(args) => watch::run(args),
        Command::ForceUnlock(args) => force_unlock::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Sale(args) => sale::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
        Command::Warden(args) => run::guard(args),
    }
}
