//! One stock sold in three ways: naively, under a lock, by script.

mod options;
mod progress;
mod report;
mod sale;
mod shop;

use anyhow::Result;
use tenure_view::output::{self, Paint};

pub use self::options::Options;
use self::report::Report;
use self::sale::Tally;
use self::shop::Shop;
use crate::Ended;
use crate::runtime;
use crate::ways::Way;

/// Sells the stock in each way and prints the results.
///
/// # Errors
///
/// If the store cannot be used.
pub fn run(options: &Options) -> Result<Ended> {
    runtime::multi_thread()?.block_on(open_and_play(options))
}

async fn open_and_play(options: &Options) -> Result<Ended> {
    let shop = Shop::open(options).await?;
    // Ctrl-C drops the play and all its buyers. The shop is cleaned up in any case.
    let played = tokio::select! {
        played = play(options, &shop) => played,
        _ = tokio::signal::ctrl_c() => {
            output::complain("interrupted: cleaning up");
            Ok(Ended::Interrupted)
        }
    };
    let closed = tokio::select! {
        closed = shop.close() => closed,
        // A second Ctrl-C does not wait for a server that does not answer.
        _ = tokio::signal::ctrl_c() => {
            output::complain("interrupted again: some keys may be left");
            Ok(())
        }
    };
    let ended = played?;
    closed?;
    Ok(ended)
}

async fn play(options: &Options, shop: &Shop) -> Result<Ended> {
    let report = Report::new(Paint::for_stdout(), shop);
    output::say(report.opening(options))?;
    let mut tallies = Vec::new();
    for way in Way::ALL {
        output::say(report.heading(way))?;
        if shop.supports(way) {
            let tally = sale::hold(&shop.counters(way), options.stock, options.buyers).await?;
            output::say(report.outcome(&tally))?;
            tallies.push(tally);
        } else {
            output::say(report.skipped())?;
        }
    }
    output::say(report.comparison(&tallies))?;
    Ok(ended(&tallies))
}

/// The naive way is not expected to hold.
fn ended(tallies: &[Tally]) -> Ended {
    let mut careful = tallies.iter().filter(|tally| tally.way != Way::Naive);
    if careful.all(Tally::holds) {
        Ended::Held
    } else {
        Ended::Broken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_view::timings::Timings;

    use super::*;

    #[track_caller]
    fn check(way: Way, sold: u64, expected: Ended) {
        let tally = Tally {
            way,
            initial: 10,
            left: 0,
            sold,
            time: Duration::from_secs(1),
            answers: Timings::new(),
        };
        assert_eq!(ended(&[tally]), expected, "{way}, {sold} sold");
    }

    #[test]
    fn only_the_lock_and_the_script_must_hold() {
        check(Way::Naive, 11, Ended::Held);
        for way in [Way::Lock, Way::Script] {
            check(way, 10, Ended::Held);
            check(way, 11, Ended::Broken);
            check(way, 9, Ended::Broken);
        }
    }
}
