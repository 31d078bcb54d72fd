//! Mistakes with renewal.

use std::time::{Duration, Instant};

use anyhow::Result;
use tenure_sale::Take;

use super::life::{process_dies, shown};
use super::pitfall::{Observed, Pitfall};
use super::room::Room;
use super::scene::Scene;
use crate::plain_store::PlainStore;

pub(crate) const PITFALLS: [Pitfall; 3] = [
    Pitfall {
        name: "renewing-caller",
        mistake: |scene| Box::pin(never_returns(scene)),
        tenure: |scene| Box::pin(returns_and_holds(scene)),
    },
    Pitfall {
        name: "silent-renewal",
        mistake: |scene| Box::pin(works_on_without_the_lock(scene)),
        tenure: |scene| Box::pin(is_notified(scene)),
    },
    Pitfall {
        name: "blind-renewal",
        mistake: |scene| Box::pin(keeps_another_lock_alive(scene)),
        tenure: |scene| Box::pin(renews_its_own(scene)),
    },
];

const LEASE: Duration = Duration::from_millis(200);
/// Long enough to see what outlasts a lease.
const SEVERAL_LEASES: Duration = Duration::from_millis(900);
/// A lease long enough to be renewed in time even on a busy machine, and a time that outlasts it.
const KEPT: Duration = Duration::from_millis(500);
const BEYOND_KEPT: Duration = Duration::from_millis(1200);
/// The time within which the holder of such a lease must be notified of its loss, even on a busy
/// machine.
const NOTIFIED_WITHIN: Duration = Duration::from_millis(800);
/// Time limit for steps that must succeed.
const PATIENCE: Duration = Duration::from_secs(5);

async fn never_returns(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    let locking = lock_and_renew(&store, &key);
    let returned = tokio::time::timeout(SEVERAL_LEASES, locking).await;
    let time = shown(SEVERAL_LEASES);
    let words = match returned {
        Err(_) => format!("the lock call did not return within {time}"),
        Ok(locked) => return locked.map(|()| Observed::when(false, "the call returned")),
    };
    Ok(Observed::when(true, words))
}

/// Never returns, so the caller holds the lock but cannot use it.
async fn lock_and_renew(store: &PlainStore, key: &str) -> Result<()> {
    store.take_within(key, "A", LEASE, PATIENCE).await?;
    while store.expire(key, LEASE).await? {
        tokio::time::sleep(LEASE / 3).await;
    }
    Ok(())
}

async fn returns_and_holds(scene: Scene) -> Result<Observed> {
    let (a, name) = (scene.process("A").await?, scene.key("lock"));
    let begun = Instant::now();
    let guard = a.lock(&name).ttl(KEPT).acquire().await?;
    let time = shown(begun.elapsed());
    tokio::time::sleep(BEYOND_KEPT).await;
    let holds = guard.is_valid();
    guard.release().await?;
    let state = if holds { "still held" } else { "lost" };
    let later = shown(BEYOND_KEPT);
    let words = format!("returned after {time}, and {state} {later} later");
    Ok(Observed::when(holds, words))
}

async fn works_on_without_the_lock(scene: Scene) -> Result<Observed> {
    let (store, key, room) = (scene.store(), scene.key("lock"), Room::default());
    store.set_nx_px(&key, "A", LEASE).await?;
    let visit = room.enter();
    let work = async {
        // An operator deletes the key, and B finds the lock free.
        store.del(&key).await?;
        store.take_within(&key, "B", PATIENCE, PATIENCE).await?;
        drop(room.enter());
        tokio::time::sleep(SEVERAL_LEASES).await;
        Ok::<_, anyhow::Error>(())
    };
    tokio::select! {
        renewed = renew_silently(&store, &key) => renewed?,
        worked = work => worked?,
    }
    drop(visit);
    let (most, time) = (room.most(), shown(SEVERAL_LEASES));
    let words = format!("{most} holders: A keeps working for {time} and is not notified");
    Ok(Observed::when(most == 2, words))
}

/// Checks before it renews, but does not report the result.
async fn renew_silently(store: &PlainStore, key: &str) -> Result<()> {
    loop {
        tokio::time::sleep(LEASE / 3).await;
        if store.get(key).await?.as_deref() == Some("A") {
            store.expire(key, LEASE).await?;
        }
    }
}

async fn is_notified(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let (name, stock) = (scene.key("lock"), scene.stock(2).await?);
    let of_a = a.lock(&name).ttl(KEPT).acquire().await?;
    let begun = Instant::now();
    b.force_release(&name, of_a.lease_id()).await?;
    let of_b = b.lock(&name).wait(PATIENCE).acquire().await?;
    let taken = stock.take_one(of_b.fence()).await?;
    let Ok(reason) = tokio::time::timeout(NOTIFIED_WITHIN, of_a.lost()).await else {
        let words = format!(
            "A was not notified of the loss within {}",
            shown(NOTIFIED_WITHIN)
        );
        return Ok(Observed::when(false, words));
    };
    let time = shown(begun.elapsed());
    let late = stock.take_one(of_a.fence()).await?;
    of_b.release().await?;
    let is_fenced = matches!((taken, late), (Take::Taken { .. }, Take::Stale { .. }));
    let fenced = if is_fenced { "refused" } else { "taken" };
    let words =
        format!("notified after {time} that {reason}; A's write with its old fence is {fenced}");
    Ok(Observed::when(is_fenced, words))
}

/// A's timer was not stopped when A released. B takes the lock and dies.
async fn keeps_another_lock_alive(scene: Scene) -> Result<Observed> {
    let (store, key) = (scene.store(), scene.key("lock"));
    store.set_nx_px(&key, "A", LEASE).await?;
    let story = async {
        store.del(&key).await?;
        store.set_nx_px(&key, "B", LEASE).await?;
        tokio::time::sleep(SEVERAL_LEASES).await;
        store.get(&key).await
    };
    let found = tokio::select! {
        renewed = renew_blindly(&store, &key) => renewed.map(|()| None),
        found = story => found,
    }?;
    let (is_kept, time) = (found.as_deref() == Some("B"), shown(SEVERAL_LEASES));
    let words = if is_kept {
        format!("B died, and {time} later A's timer still keeps B's lock alive")
    } else {
        "B's lock expired after B died".to_owned()
    };
    Ok(Observed::when(is_kept, words))
}

async fn renew_blindly(store: &PlainStore, key: &str) -> Result<()> {
    loop {
        store.expire(key, LEASE).await?;
        tokio::time::sleep(LEASE / 4).await;
    }
}

/// A's guard stays alive after its lock was taken away.
async fn renews_its_own(scene: Scene) -> Result<Observed> {
    let (a, b) = (scene.process("A").await?, scene.process("B").await?);
    let (c, name) = (scene.process("C").await?, scene.key("lock"));
    let of_a = a.lock(&name).ttl(LEASE).acquire().await?;
    b.force_release(&name, of_a.lease_id()).await?;
    process_dies(b.lock(&name).ttl(LEASE).wait(PATIENCE).acquire().await?)?;
    let begun = Instant::now();
    let of_c = c.lock(&name).wait(SEVERAL_LEASES).acquire().await?;
    let time = shown(begun.elapsed());
    of_c.release().await?;
    drop(of_a);
    let words = format!("B's lease expired: free again {time} after B died");
    Ok(Observed::when(true, words))
}
