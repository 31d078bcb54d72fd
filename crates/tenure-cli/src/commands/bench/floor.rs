//! The floor: bare keys, without any guarantee of a lock.

use std::sync::LazyLock;
use std::time::Instant;

use anyhow::Result;
use tenure::redis::{Client, Command, Script};
use tenure_view::timings::Timings;
use tokio::task::JoinSet;

use super::progress::Progress;
use super::stand::Stand;
use super::until::Until;

static DELETE_IF_SAME: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "#!lua\nif redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end \
         return 0",
    )
});

/// Sets and deletes bare keys, with as many tasks as for locks.
pub async fn run(stand: &Stand, until: &Until, progress: Progress) -> Result<Timings> {
    let ttl_ms = u64::try_from(stand.ttl.as_millis()).unwrap_or(u64::MAX);
    let mut working = JoinSet::new();
    for (number, client) in stand.bare.iter().enumerate() {
        for name in stand.names_of(number) {
            let (client, name) = (client.clone(), name.clone());
            let (until, progress) = (until.clone(), progress.clone());
            working.spawn(async move { work(&client, &name, ttl_ms, &until, &progress).await });
        }
    }
    let mut times = Timings::new();
    while let Some(done) = working.join_next().await {
        times.join(&done??);
    }
    Ok(times)
}

async fn work(
    client: &Client,
    name: &str,
    ttl_ms: u64,
    until: &Until,
    progress: &Progress,
) -> Result<Timings> {
    let mut times = Timings::new();
    while !until.is_over() {
        let begun = Instant::now();
        let set = Command::new("SET").arg(name).arg("bench").arg("NX");
        client.run(set.arg("PX").arg(ttl_ms)).await?;
        client.script(&DELETE_IF_SAME, &[name], &["bench"]).await?;
        times.note(begun.elapsed());
        progress.advance();
    }
    Ok(times)
}
