//! `tenure demo`: oversell, then do not, under a lock and by script; and the known pitfalls.

mod args;

use anyhow::Result;
use tenure_demo::{Ended, pitfalls, three_ways};

pub use self::args::DemoArgs;
use self::args::{DemoCommand, PitfallsArgs};
use crate::exit::{Exit, Failed};

pub fn run(args: &DemoArgs) -> Result<Exit> {
    match &args.command {
        None => three_ways::run(&args.options()?).map(exit),
        Some(DemoCommand::Pitfalls(args)) => run_pitfalls(args),
    }
}

fn run_pitfalls(args: &PitfallsArgs) -> Result<Exit> {
    if args.list {
        pitfalls::list()?;
        return Ok(Exit::Done);
    }
    let mut urls = args.urls()?;
    if urls.len() > 1 {
        let message = "the pitfalls need one server: give one URL";
        return Err(Failed::usage(message).into());
    }
    let options = pitfalls::Options {
        url: urls.pop(),
        only: args.only.clone(),
    };
    pitfalls::run(&options).map(exit)
}

fn exit(ended: Ended) -> Exit {
    match ended {
        Ended::Held => Exit::Done,
        Ended::Broken => Exit::Broken,
        Ended::Interrupted => Exit::INTERRUPTED,
    }
}
