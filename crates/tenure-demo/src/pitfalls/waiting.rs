//! Mistakes with waiting for a lock.

use std::time::Duration;

use anyhow::Result;
use tenure::Locks;

use super::life::together;
use super::pitfall::{Observed, Pitfall};
use super::scene::Scene;
use crate::plain_store::PlainStore;

pub(crate) const PITFALLS: [Pitfall; 1] = [Pitfall {
    name: "spinning",
    mistake: |scene| Box::pin(asks_without_a_pause(scene)),
    tenure: |scene| Box::pin(waits_in_a_queue(scene)),
}];

const WAITERS: usize = 4;
/// How long the holder keeps the lock.
const HELD: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(30);
/// Time limit of a waiter that is notified.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than the waiters need, and too few to load a server.
const REQUESTS_MAX: u64 = 8 * WAITERS as u64;

async fn asks_without_a_pause(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    store.set_nx_px(&key, "holder", HELD).await?;
    let waiters = (0..WAITERS).map(|_| spin(store.clone(), key.clone()));
    let requests: u64 = together(waiters).await?.into_iter().sum();
    Ok(Observed::when(
        requests > REQUESTS_MAX,
        format!("{requests} requests until {WAITERS} waiters had acquired the lock"),
    ))
}

/// Returns how many requests it took.
async fn spin(store: PlainStore, key: String) -> Result<u64> {
    let mut requests = 1;
    while !store.set_nx_px(&key, "waiter", LONG).await? {
        requests += 1;
    }
    store.del(&key).await?;
    Ok(requests)
}

async fn waits_in_a_queue(scene: Scene) -> Result<Observed> {
    let (holder, name) = (scene.process("holder").await?, scene.key("lock"));
    let mut clients = Vec::new();
    for number in 1..=WAITERS {
        clients.push(scene.process(&format!("waiter-{number}")).await?);
    }
    let guard = holder.lock(&name).acquire().await?;
    let release = async {
        tokio::time::sleep(HELD).await;
        guard.release().await?;
        Ok(())
    };
    let waiters = clients
        .iter()
        .map(|client| wait(client.clone(), name.clone()));
    tokio::try_join!(release, together(waiters))?;
    let requests: u64 = clients.iter().map(requests_of).sum();
    Ok(Observed::when(
        requests <= REQUESTS_MAX,
        format!("{requests} requests until {WAITERS} waiters had acquired the lock"),
    ))
}

async fn wait(client: Locks, name: String) -> Result<()> {
    client
        .lock(name)
        .wait(PATIENCE)
        .acquire()
        .await?
        .release()
        .await?;
    Ok(())
}

/// How many requests for a lock a client has sent.
fn requests_of(client: &Locks) -> u64 {
    let stats = client.stats();
    stats.busy + stats.acquired - stats.handed_off
}
