//! `tenure demo`: oversell, then do not, under a lock and by script.

mod args;
pub mod pitfalls;
mod progress;
mod report;
mod sale;
mod shop;

use anyhow::{Context, Result};
use tenure_sale::ways::Way;
use tokio::runtime::Runtime;

pub use self::args::DemoArgs;
use self::args::DemoCommand;
use self::report::Report;
use self::sale::Tally;
use self::shop::Shop;

use crate::exit::Exit;
use crate::output::{self, Paint};

pub fn run(args: &DemoArgs) -> Result<Exit> {
    match &args.command {
        None => runtime()?.block_on(open_and_play(args)),
        Some(DemoCommand::Pitfalls(args)) => pitfalls::run(args),
    }
}

fn runtime() -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.context("cannot start: are threads or file descriptors used up?")
}

async fn open_and_play(args: &DemoArgs) -> Result<Exit> {
    let shop = Shop::open(args).await?;
    // Ctrl-C drops the play, and with it all buyers; the shop is tidied up in any case.
    let played = tokio::select! {
        played = play(args, &shop) => played,
        _ = tokio::signal::ctrl_c() => {
            output::complain("interrupted: the demo tidies up and ends");
            Ok(Exit::INTERRUPTED)
        }
    };
    let closed = tokio::select! {
        closed = shop.close() => closed,
        // Whoever insists need not wait for a server that does not answer.
        _ = tokio::signal::ctrl_c() => {
            output::complain("interrupted again: some of the demo's keys may be left");
            Ok(())
        }
    };
    let exit = played?;
    closed?;
    Ok(exit)
}

async fn play(args: &DemoArgs, shop: &Shop) -> Result<Exit> {
    let report = Report::new(Paint::for_stdout(), shop);
    output::say(report.opening(args))?;
    let mut tallies = Vec::new();
    for way in Way::ALL {
        output::say(report.heading(way))?;
        if shop.knows(way) {
            let tally = sale::hold(&shop.counters(way)?, args.stock, args.buyers).await?;
            output::say(report.outcome(&tally))?;
            tallies.push(tally);
        } else {
            output::say(report.skipped())?;
        }
    }
    output::say(report.comparison(&tallies))?;
    Ok(exit_of(&tallies))
}

/// Nobody expects the naive way to hold.
fn exit_of(tallies: &[Tally]) -> Exit {
    let mut careful = tallies.iter().filter(|tally| tally.way != Way::Naive);
    if careful.all(Tally::holds) {
        Exit::Done
    } else {
        Exit::Broken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::timings::Timings;

    #[track_caller]
    fn check(way: Way, sold: u64, exit: Exit) {
        let tally = Tally {
            way,
            initial: 10,
            left: 0,
            sold,
            time: Duration::from_secs(1),
            answers: Timings::new(),
        };
        assert_eq!(exit_of(&[tally]), exit, "{way}, {sold} sold");
    }

    #[test]
    fn only_the_lock_and_the_script_must_hold() {
        check(Way::Naive, 11, Exit::Done);
        for way in [Way::Lock, Way::Script] {
            check(way, 10, Exit::Done);
            check(way, 11, Exit::Broken);
            check(way, 9, Exit::Broken);
        }
    }
}
