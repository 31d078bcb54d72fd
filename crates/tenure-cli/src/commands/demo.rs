//! `tenure demo`: oversell without a lock, then do not, with one.

pub mod pitfalls;
mod progress;
mod report;
mod sale;
mod shop;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

use self::report::Report;
use self::sale::{Tally, Way};
use self::shop::Shop;
use crate::args::{DemoArgs, DemoCommand};
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
            Ok(Exit::Interrupted)
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
    let naive = sell(args, shop, Way::Naive, &report).await?;
    let locked = sell(args, shop, Way::Locked, &report).await?;
    output::say(report.comparison(&[&naive, &locked]))?;
    Ok(if locked.holds() {
        Exit::Done
    } else {
        Exit::Broken
    })
}

async fn sell(args: &DemoArgs, shop: &Shop, way: Way, report: &Report<'_>) -> Result<Tally> {
    output::say(report.heading(way))?;
    let tally = sale::hold(shop, way, args.stock, args.buyers).await?;
    output::say(report.outcome(&tally))?;
    Ok(tally)
}
