//! The contended phase: all tasks acquire the same names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tenure::{Lock, Unordered};
use tenure_view::timings::Timings;
use tokio::task::JoinSet;

use super::BenchArgs;
use super::progress::Progress;
use super::stand::Stand;
use super::until::Until;

/// The result of the phase.
#[derive(Debug)]
pub struct Contest {
    /// How long each waited for its lock.
    pub waits: Timings,
    /// How often each client had a lock.
    pub turns: Vec<u64>,
    /// How often a lock passed from one task to another inside a client, without the server.
    pub inside: u64,
}

impl Contest {
    pub async fn run(
        stand: &Stand,
        args: &BenchArgs,
        until: &Until,
        progress: Progress,
    ) -> Result<Self> {
        let handed_off = || -> u64 {
            let stats = stand.clients.iter().map(tenure::Locks::stats);
            stats.map(|stats| stats.handed_off).sum()
        };
        let before = handed_off();
        let mut working = JoinSet::new();
        for (number, client) in stand.clients.iter().enumerate() {
            let locks = stand
                .shared_names
                .iter()
                .map(|name| client.lock(name).ttl(stand.ttl));
            let locks: Arc<[Lock<Unordered>]> = locks.collect();
            for _ in 0..args.tasks {
                let locks = Arc::clone(&locks);
                let (hold, until, progress) = (args.hold, until.clone(), progress.clone());
                working.spawn(async move {
                    let waits = work(&locks, hold, &until, &progress).await;
                    waits.map(|waits| (number, waits))
                });
            }
        }
        let mut contest = Self {
            waits: Timings::new(),
            turns: vec![0; stand.clients.len()],
            inside: 0,
        };
        while let Some(done) = working.join_next().await {
            let (client, waits) = done??;
            contest.turns[client] += waits.count();
            contest.waits.join(&waits);
        }
        contest.inside = handed_off().saturating_sub(before);
        Ok(contest)
    }

    /// The smallest and the largest share of a client, as fractions of 1.
    pub fn shares(&self) -> (f64, f64) {
        let all = self.waits.count().max(1);
        let share = |turns: Option<&u64>| ratio(turns.copied().unwrap_or(0), all);
        (
            share(self.turns.iter().min()),
            share(self.turns.iter().max()),
        )
    }

    /// Jain's index: 1 if all have the same share, 1/n if one has everything.
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    pub fn fairness(&self) -> f64 {
        let turns = || self.turns.iter().map(|turns| *turns as f64);
        let (sum, squares) = (
            turns().sum::<f64>(),
            turns().map(|turns| turns * turns).sum::<f64>(),
        );
        if squares == 0.0 {
            return 1.0;
        }
        sum * sum / (self.turns.len() as f64 * squares)
    }
}

async fn work(
    locks: &[Lock<Unordered>],
    hold: Duration,
    until: &Until,
    progress: &Progress,
) -> Result<Timings> {
    let mut waits = Timings::new();
    while !until.is_over() {
        let begun = Instant::now();
        let lock = &locks[rand::random_range(..locks.len())];
        // A task that still waits at the end had no turn.
        let Some(guard) = until.cut(lock.acquire()).await else {
            break;
        };
        let guard = guard?;
        waits.note(begun.elapsed());
        progress.advance();
        // A timer takes at least a millisecond: without a hold time, do not sleep.
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        guard.release().await?;
    }
    Ok(waits)
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(turns: Vec<u64>, fairness: f64, shares: (f64, f64)) {
        let mut waits = Timings::new();
        (0..turns.iter().sum()).for_each(|_| waits.note(Duration::from_millis(1)));
        let contest = Contest {
            waits,
            turns,
            inside: 0,
        };
        assert!((contest.fairness() - fairness).abs() < 1e-9, "{contest:?}");
        assert_eq!(contest.shares(), shares);
    }

    #[test]
    fn fairness_is_one_for_equals_and_small_for_one_who_has_all() {
        check(vec![5, 5, 5, 5], 1.0, (0.25, 0.25));
        check(vec![20, 0, 0, 0], 0.25, (0.0, 1.0));
        check(vec![0, 0], 1.0, (0.0, 0.0));
    }
}
