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
/// How long the holder keeps them waiting.
const HELD: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(30);
/// How long a waiter waits that is told when the lock is free.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than each waiter needs, and fewer than a server notices.
const QUESTIONS_FEW: u64 = 8 * WAITERS as u64;

async fn asks_without_a_pause(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    store.set_nx_px(&key, "holder", HELD).await?;
    let waiters = (0..WAITERS).map(|_| spin(store.clone(), key.clone()));
    let questions: u64 = together(waiters).await?.into_iter().sum();
    Ok(Observed::when(
        questions > QUESTIONS_FEW,
        format!("{questions} questions to the store until {WAITERS} waiters had their turn"),
    ))
}

/// How often it had to ask.
async fn spin(store: PlainStore, key: String) -> Result<u64> {
    let mut questions = 1;
    while !store.set_nx_px(&key, "waiter", LONG).await? {
        questions += 1;
    }
    store.del(&key).await?;
    Ok(questions)
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
    let questions: u64 = clients.iter().map(questions_of).sum();
    Ok(Observed::when(
        questions <= QUESTIONS_FEW,
        format!("{questions} questions to the store until {WAITERS} waiters had their turn"),
    ))
}

async fn wait(client: Locks, name: String) -> Result<()> {
    client
        .lock(name)
        .acquire_within(PATIENCE)
        .await?
        .release()
        .await?;
    Ok(())
}

/// How often a client has asked for a lock.
fn questions_of(client: &Locks) -> u64 {
    let stats = client.stats();
    stats.busy + stats.acquired - stats.handed_off
}
