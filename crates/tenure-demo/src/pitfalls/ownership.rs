//! Mistakes about who holds a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tenure::Released;

use super::pitfall::{Observed, Pitfall};
use super::scene::Scene;
use crate::plain_store::PlainStore;

pub(crate) const PITFALLS: [Pitfall; 3] = [
    Pitfall {
        name: "del-by-anyone",
        mistake: |scene| Box::pin(deletes_without_looking(scene)),
        tenure: |scene| Box::pin(releases_its_own(scene)),
    },
    Pitfall {
        name: "get-compare-del",
        mistake: |scene| Box::pin(looks_and_then_deletes(scene)),
        tenure: |scene| Box::pin(releases_its_own(scene)),
    },
    Pitfall {
        name: "thread-id-as-owner",
        mistake: |scene| Box::pin(shares_its_number(scene)),
        tenure: |scene| Box::pin(has_a_unique_id(scene)),
    },
];

const LEASE: Duration = Duration::from_millis(200);
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
/// Time limit for a lock that must become free.
const PATIENCE: Duration = Duration::from_secs(5);

async fn deletes_without_looking(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    store.set_nx_px(&key, "A", LEASE).await?;
    is_paused_until_b_has_it(&store, &key).await?;
    store.del(&key).await?;
    third_holder(&store, &key).await
}

async fn looks_and_then_deletes(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    store.set_nx_px(&key, "A", LEASE).await?;
    if store.get(&key).await?.as_deref() == Some("A") {
        is_paused_until_b_has_it(&store, &key).await?;
        store.del(&key).await?;
    }
    third_holder(&store, &key).await
}

/// A is paused until its lease expires, and B acquires the lock.
async fn is_paused_until_b_has_it(store: &PlainStore, key: &str) -> Result<()> {
    store.take_within(key, "B", LONG, PATIENCE).await?;
    Ok(())
}

/// Checks whether C can acquire the lock although B holds it.
async fn third_holder(store: &PlainStore, key: &str) -> Result<Observed> {
    let granted = store.set_nx_px(key, "C", LONG).await?;
    let words = if granted {
        "A's late `DEL` freed B's lock, and C acquired it: two holders"
    } else {
        "C was refused: B kept its lock"
    };
    Ok(Observed::when(granted, words))
}

async fn releases_its_own(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let (c, name) = (scene.process("C").await?, scene.key("lock"));
    let of_a = a.lock(&name).ttl(LEASE).no_renewal().acquire().await?;
    let of_b = b.lock(&name).ttl(LONG).wait(PATIENCE).acquire().await?;
    let released = of_a.release().await?;
    let of_c = c.lock(&name).try_acquire().await?;
    let holds = released == Released::AlreadyGone && of_c.is_none() && of_b.is_valid();
    let words = if holds {
        "A's late release returns `already gone`, and B keeps its lock".to_owned()
    } else {
        let granted = of_c.is_some();
        format!("A's late release returns `{released:?}`, and C acquired the lock: {granted}")
    };
    Ok(Observed::when(holds, words))
}

/// A process that numbers its threads from 1, as processes do.
#[derive(Default)]
struct Process {
    threads: AtomicU64,
}

impl Process {
    fn new_thread(&self) -> u64 {
        self.threads.fetch_add(1, Ordering::Relaxed) + 1
    }
}

async fn shares_its_number(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    let (one, other) = (Process::default(), Process::default());
    let first = lock_as(&store, &key, one.new_thread()).await?;
    let second = lock_as(&store, &key, other.new_thread()).await?;
    let words = if first && second {
        "two holders: thread 1 of the other process has the same id"
    } else {
        "the second process was refused"
    };
    Ok(Observed::when(first && second, words))
}

/// Reentrant by thread: a lock with the thread's own id counts as held.
async fn lock_as(store: &PlainStore, key: &str, thread: u64) -> Result<bool> {
    let thread = thread.to_string();
    if store.set_nx_px(key, &thread, LONG).await? {
        return Ok(true);
    }
    Ok(store.get(key).await? == Some(thread))
}

async fn has_a_unique_id(scene: Scene) -> Result<Observed> {
    let (one, other) = (scene.process("one").await?, scene.process("other").await?);
    let (one, other) = (one.owner(), other.owner());
    let name = scene.key("lock");
    let first = one.lock(&name).ttl(LONG).acquire().await?;
    let again = one.lock(&name).ttl(LONG).try_acquire().await?;
    let second = other.lock(&name).ttl(LONG).try_acquire().await?;
    let holds = again.is_some() && second.is_none();
    drop(again);
    first.release().await?;
    let words = if holds {
        "the owner re-enters, the other process is refused"
    } else {
        "the other process was let in, or the owner was not"
    };
    Ok(Observed::when(holds, words))
}
