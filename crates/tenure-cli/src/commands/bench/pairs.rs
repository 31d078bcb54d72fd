//! Acquire and release, each task on its own name.

use std::time::Instant;

use anyhow::Result;
use tenure::{Lock, Unordered};
use tenure_view::timings::Timings;
use tokio::task::JoinSet;

use super::progress::Progress;
use super::stand::Stand;
use super::until::Until;

/// The duration of each pair.
pub async fn run(stand: &Stand, until: &Until, progress: Progress) -> Result<Timings> {
    let mut working = JoinSet::new();
    for (number, client) in stand.clients.iter().enumerate() {
        for name in stand.names_of(number) {
            let lock = client.lock(name).ttl(stand.ttl);
            let (until, progress) = (until.clone(), progress.clone());
            working.spawn(async move { work(&lock, &until, &progress).await });
        }
    }
    let mut times = Timings::new();
    while let Some(done) = working.join_next().await {
        times.join(&done??);
    }
    Ok(times)
}

async fn work(lock: &Lock<Unordered>, until: &Until, progress: &Progress) -> Result<Timings> {
    let mut times = Timings::new();
    while !until.is_over() {
        let begun = Instant::now();
        let guard = lock.acquire().await?;
        guard.release().await?;
        times.note(begun.elapsed());
        progress.advance();
    }
    Ok(times)
}
