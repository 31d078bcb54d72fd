//! Mistakes with the end of a lease.

use std::time::{Duration, Instant};

use anyhow::Result;
use tenure::{ErrorKind, Locks};
use tokio::sync::Notify;

use super::life::{dies, process_dies, shown};
use super::own_clock;
use super::pitfall::{Observed, Pitfall};
use super::room::Room;
use super::scene::Scene;

pub(crate) const PITFALLS: [Pitfall; 4] = [
    Pitfall {
        name: "setnx-without-expiry",
        mistake: |scene| Box::pin(dies_at_work(scene)),
        tenure: |scene| Box::pin(ends_by_itself(scene)),
    },
    Pitfall {
        name: "setnx-then-expire",
        mistake: |scene| Box::pin(dies_between(scene)),
        tenure: |scene| Box::pin(dies_at_any_moment(scene)),
    },
    Pitfall {
        name: "own-clock",
        mistake: |scene| Box::pin(believes_its_clock(scene)),
        tenure: |scene| Box::pin(asks_the_server(scene)),
    },
    Pitfall {
        name: "fixed-lease",
        mistake: |scene| Box::pin(works_longer_than_the_lease(scene)),
        tenure: |scene| Box::pin(renews_while_it_works(scene)),
    },
];

const LEASE: Duration = Duration::from_millis(200);
/// Long enough to see that a lock is not free by then, or that work outlasts its lease.
const SEVERAL_LEASES: Duration = Duration::from_millis(700);
/// Time limit for a lock that must become free.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many callers die while acquiring a lock.
const DEATHS: u32 = 12;
/// How far the wrong clock is ahead.
const AHEAD: Duration = Duration::from_mins(1);

async fn dies_at_work(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    dies(async |death| {
        store.set_nx(&key, "A").await?;
        death.strikes().await;
        store.del(&key).await
    })
    .await?;
    still_locked(&scene, &key).await
}

async fn dies_between(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    dies(async |death| {
        store.set_nx(&key, "A").await?;
        death.strikes().await;
        store.expire(&key, LEASE).await?;
        store.del(&key).await
    })
    .await?;
    still_locked(&scene, &key).await
}

/// Waits for several times the lease that the dead holder set, or meant to set.
async fn still_locked(scene: &Scene, key: &str) -> Result<Observed> {
    let begun = Instant::now();
    let store = scene.store();
    let freed = store.take_within(key, "B", LEASE, SEVERAL_LEASES).await?;
    let time = shown(begun.elapsed());
    let is_forever = !freed && store.is_endless(key).await?;
    let words = if is_forever {
        format!("locked forever: still held {time} after its holder died, without expiry")
    } else {
        format!("free again {time} after its holder died: {freed}")
    };
    Ok(Observed::when(is_forever, words))
}

async fn ends_by_itself(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let name = scene.key("lock");
    process_dies(a.lock(&name).ttl(LEASE).acquire().await?)?;
    let time = shown(free_after(&b, &name).await?);
    let words = format!("free again {time} after its holder died");
    Ok(Observed::when(true, words))
}

/// Callers die at various moments between request and grant, and one process right after the grant.
async fn dies_at_any_moment(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let name = scene.key("lock");
    let mut longest = Duration::ZERO;
    for death in 0..DEATHS {
        let lock = a.lock(&name).ttl(LEASE);
        let caller = tokio::spawn(async move {
            let granted = lock.acquire().await;
            std::future::pending::<()>().await;
            drop(granted);
        });
        tokio::time::sleep(Duration::from_micros(100) * death).await;
        caller.abort();
        longest = longest.max(free_after(&b, &name).await?);
    }
    process_dies(a.lock(&name).ttl(LEASE).wait(PATIENCE).acquire().await?)?;
    let longest = shown(longest.max(free_after(&b, &name).await?));
    let words = format!(
        "{DEATHS} clients died while acquiring, one right after: free after {longest} at most"
    );
    Ok(Observed::when(true, words))
}

/// Measures how long it takes until the lock is free. Fails if that never happens.
async fn free_after(client: &Locks, name: &str) -> Result<Duration> {
    let begun = Instant::now();
    let guard = client.lock(name).wait(PATIENCE).acquire().await?;
    let time = begun.elapsed();
    guard.release().await?;
    Ok(time)
}

async fn believes_its_clock(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    let now_ms = own_clock::now_ms();
    let lease = Duration::from_secs(10);
    let a = own_clock::try_lock(&store, &key, now_ms, lease).await?;
    let ahead_ms = now_ms + AHEAD.as_millis();
    let b = own_clock::try_lock(&store, &key, ahead_ms, lease).await?;
    let words = if a && b {
        format!("two holders: B's clock is {} ahead of A's", shown(AHEAD))
    } else {
        format!("A acquired it: {a}, B acquired it: {b}")
    };
    Ok(Observed::when(a && b, words))
}

/// Wrong client clocks do not matter: only the server's is read.
async fn asks_the_server(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let name = scene.key("lock");
    let ttl = Duration::from_secs(10);
    let guard = a.lock(&name).ttl(ttl).acquire().await?;
    let second = b.lock(&name).try_acquire().await?;
    let holder = b.lock(&name).holder().await?;
    let left = holder.and_then(|holder| holder.remaining);
    let is_refused = second.is_none();
    guard.release().await?;
    let words = match left {
        Some(left) if is_refused => {
            let left = shown(left);
            format!("B is refused: {left} are left by the server's clock, the only one that counts")
        }
        left => format!("B was refused: {is_refused}, and the server reports {left:?} left"),
    };
    let has_end = left.is_some_and(|left| left <= ttl);
    Ok(Observed::when(is_refused && has_end, words))
}

async fn works_longer_than_the_lease(scene: Scene) -> Result<Observed> {
    let (store, key, room) = (scene.store(), scene.key("lock"), Room::default());
    store.set_nx_px(&key, "A", LEASE).await?;
    let a = async {
        let _visit = room.enter();
        tokio::time::sleep(SEVERAL_LEASES).await;
        Ok::<_, anyhow::Error>(())
    };
    let b = async {
        store.take_within(&key, "B", LEASE, PATIENCE).await?;
        let _visit = room.enter();
        Ok(())
    };
    tokio::try_join!(a, b)?;
    let words = format!(
        "{} holders at once: the work takes {}, the lease {}",
        room.most(),
        shown(SEVERAL_LEASES),
        shown(LEASE)
    );
    Ok(Observed::when(room.most() == 2, words))
}

async fn renews_while_it_works(scene: Scene) -> Result<Observed> {
    let (first, second) = (scene.process("A").await?, scene.process("B").await?);
    let (name, room, taken) = (scene.key("lock"), Room::default(), Notify::new());
    let a = async {
        let lock = first.lock(&name).ttl(LEASE);
        let work = lock.with(async |_| {
            let _visit = room.enter();
            taken.notify_one();
            tokio::time::sleep(SEVERAL_LEASES).await;
        });
        match work.await {
            // If this machine was too busy to renew in time, Tenure stopped the work.
            Err(error) if error.kind() != ErrorKind::Lost => Err(error),
            _ => Ok(()),
        }
    };
    let b = async {
        taken.notified().await;
        let guard = second.lock(&name).wait(PATIENCE).acquire().await?;
        let _visit = room.enter();
        guard.release().await
    };
    tokio::try_join!(a, b)?;
    let most = if room.most() == 1 {
        "one holder"
    } else {
        "two holders"
    };
    let renewed = first.stats().renewed;
    let words = format!("{most} at a time: the lease was renewed {renewed} times");
    Ok(Observed::when(room.most() == 1, words))
}
