//! `tenure demo pitfalls`: makes each known mistake for real, then does the same with Tenure.

mod expiry;
mod life;
mod own_clock;
mod ownership;
mod pitfall;
mod play;
mod redis_server;
mod reentrancy;
mod renewal;
mod report;
mod room;
mod rows;
mod scene;
mod servers;
mod stock;
mod waiting;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use tenure_view::output::{self, Paint};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::pitfall::Pitfall;
use self::play::Outcome;
use self::report::Tally;
pub use self::rows::names;
use self::rows::{ROWS, Row};
use self::scene::Stage;
use crate::Ended;
use crate::runtime;

/// How many pitfalls run concurrently: most of them wait most of the time.
const AT_ONCE: usize = 6;

/// Which pitfalls to play, and where.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The store to use; without a URL, an embedded one.
    pub url: Option<String>,
    /// Only these, by name; empty means all.
    pub only: Vec<String>,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}

/// Prints the list of pitfalls.
///
/// # Errors
///
/// If stdout cannot be written to.
pub fn list() -> io::Result<()> {
    output::say(report::list(Paint::for_stdout()))
}

/// Makes each mistake, then does the same with Tenure, and prints both outcomes.
///
/// # Errors
///
/// If the store cannot be used.
pub fn run(options: &Options) -> Result<Ended> {
    runtime::multi_thread()?.block_on(open_and_play(options))
}

async fn open_and_play(options: &Options) -> Result<Ended> {
    let stage = Stage::open(options.url.as_deref()).await?;
    let mut end = End::listen()?;
    let mut players = JoinSet::new();
    let played = tokio::select! {
        played = play_all(options, &stage, &mut players) => played,
        () = end.asked_for() => {
            output::complain("interrupted: cleaning up");
            Ok(Ended::Interrupted)
        }
    };
    // Dropping the players also stops the servers they started.
    players.shutdown().await;
    let closed = tokio::select! {
        closed = stage.close() => closed,
        // A second signal does not wait for a server that does not respond.
        () = end.asked_for() => {
            output::complain("interrupted again: some keys may be left");
            Ok(())
        }
    };
    let ended = played?;
    closed?;
    Ok(ended)
}

/// Plays several concurrently, and reports them in order.
async fn play_all(
    options: &Options,
    stage: &Arc<Stage>,
    players: &mut JoinSet<Result<(usize, Outcome)>>,
) -> Result<Ended> {
    output::say(format_args!("{}.\n", opening(stage)))?;
    let (paint, begun) = (Paint::for_stdout(), Instant::now());
    let chosen: Vec<&Row> = ROWS.iter().filter(|row| options.wants(row.name)).collect();
    start_all(&chosen, stage, players);
    let (mut tally, mut done) = (Tally::default(), BTreeMap::new());
    let mut reported = 0;
    while let Some(played) = players.join_next().await {
        let (place, outcome) = played??;
        done.insert(place, outcome);
        while let Some(outcome) = done.remove(&reported) {
            tally.add(&outcome);
            output::say(report::outcome(paint, chosen[reported], &outcome))?;
            reported += 1;
        }
    }
    output::say(format_args!("\n{}", tally.line(begun.elapsed())))?;
    if stage.is_embedded() {
        output::say("The same on a server: tenure demo pitfalls --url redis://127.0.0.1/")?;
    }
    Ok(tally.ended())
}

fn opening(stage: &Stage) -> String {
    format!(
        "Each mistake for real, then the same with Tenure, {}",
        stage.place()
    )
}

fn start_all(rows: &[&Row], stage: &Arc<Stage>, players: &mut JoinSet<Result<(usize, Outcome)>>) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    for (place, row) in rows.iter().enumerate() {
        let Some(pitfall) = pitfall_of(row) else {
            continue;
        };
        let (stage, turns) = (Arc::clone(stage), Arc::clone(&turns));
        players.spawn(async move {
            let _turn = turns.acquire().await?;
            Ok((place, play::play(pitfall, stage).await?))
        });
    }
}

/// The pitfall for a row of the table. A test checks that every row has one.
fn pitfall_of(row: &Row) -> Option<Pitfall> {
    let mut found = all().into_iter().filter(|pitfall| pitfall.name == row.name);
    found.next()
}

fn all() -> Vec<Pitfall> {
    let themes: [&[Pitfall]; 7] = [
        &stock::PITFALLS,
        &expiry::PITFALLS,
        &ownership::PITFALLS,
        &renewal::PITFALLS,
        &reentrancy::PITFALLS,
        &waiting::PITFALLS,
        &servers::PITFALLS,
    ];
    themes.concat()
}

/// Signals after which this process can still clean up: its servers must not outlive it.
struct End {
    signals: [Signal; 3],
}

impl End {
    fn listen() -> Result<Self> {
        Ok(Self {
            signals: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            ],
        })
    }

    async fn asked_for(&mut self) {
        let [interrupt, terminate, hang_up] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            _ = hang_up.recv() => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_one_pitfall_and_every_pitfall_its_row() {
        let rows: BTreeSet<&str> = names().into_iter().collect();
        let pitfalls: BTreeSet<&str> = all().iter().map(|pitfall| pitfall.name).collect();
        assert_eq!(rows, pitfalls);
        assert_eq!(rows.len(), ROWS.len(), "two rows have the same name");
        assert_eq!(all().len(), ROWS.len(), "two pitfalls have the same name");
    }
}
