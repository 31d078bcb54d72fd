//! Acquire and release, each on a name of its own.

use std::time::{Duration, Instant};

use anyhow::Result;
use tenure::Lock;
use tokio::task::JoinSet;

use super::BenchArgs;
use super::progress::Progress;
use super::stand::Stand;
use super::until::Until;
use crate::times::Times;

/// How long each took, without the time for which it was held.
pub async fn run(
    stand: &Stand,
    args: &BenchArgs,
    until: &Until,
    progress: Progress,
) -> Result<Times> {
    let mut working = JoinSet::new();
    for (number, client) in stand.clients.iter().enumerate() {
        for name in stand.names_of(number) {
            let lock = client.lock(name).ttl(args.ttl);
            let (hold, until, progress) = (args.hold, until.clone(), progress.clone());
            working.spawn(async move { work(&lock, hold, &until, &progress).await });
        }
    }
    let mut times = Times::new();
    while let Some(done) = working.join_next().await {
        times.join(&done??);
    }
    Ok(times)
}

async fn work(lock: &Lock, hold: Duration, until: &Until, progress: &Progress) -> Result<Times> {
    let mut times = Times::new();
    while !until.is_over() {
        let begun = Instant::now();
        let guard = lock.acquire().await?;
        let acquired = begun.elapsed();
        held_for(hold).await;
        let released = Instant::now();
        guard.release().await?;
        times.note(acquired + released.elapsed());
        progress.advance();
    }
    Ok(times)
}

/// A timer is never shorter than a millisecond: nothing must be nothing.
pub async fn held_for(hold: Duration) {
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
}
