//! A user that may touch nothing but what begins with its prefix can do everything.
//!
//! The servers log whatever they refuse, also what a client could do without.

use std::time::Duration;

use tenure::{Fence, Guard, Lease, Lock, Locks, Released, Start, Unordered};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::team::Team;
use crate::stage::{ms, soon};

const PREFIX: &str = "team-a:";
/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = ms(30_000);

macro_rules! on {
    ($($stage:ident: $($case:ident),*;)*) => {
        $(mod $stage {
            $(#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Team::on($crate::stage::Stage::$stage(), super::PREFIX)).await;
            })*
        })*
    };
}

on! {
    redis: locks, listings, elections, several, readers_and_fair_callers, permits, runs, latches,
        kept_leases, a_new_primary;
    redisson: locks, listings, elections, several, kept_leases, a_new_primary;
    sentinel: locks, listings;
    cluster: locks, listings, elections, several, readers_and_fair_callers, permits, runs, latches,
        kept_leases, a_new_primary;
    redlock_3: locks, listings, elections, several;
    redlock_3_redisson: locks, listings;
}

/// Starts to wait, and returns when the store knows.
async fn waiting(client: &Locks, lock: Lock<Unordered>) -> JoinHandle<Guard> {
    let busy = client.stats().busy;
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    assert!(
        soon(async || client.stats().busy >= busy + 2).await,
        "it does not wait"
    );
    waiter
}

async fn done(waiter: JoinHandle<Guard>) -> Guard {
    timeout(LIMIT, waiter).await.expect("in time").unwrap()
}

async fn pair(lock: Lock<Unordered>) -> Released {
    lock.acquire().await.unwrap().release().await.unwrap()
}

async fn locks(team: Team) {
    let (a, b) = (team.client().await, team.client().await);
    let mut last: Option<Fence> = None;
    // The second time without a script; a name with a tag has other related keys.
    for name in ["n", "n", "{tag}n", "{n}"] {
        let guard = a.lock(name).meta("job", "x").acquire().await.unwrap();
        assert_eq!(guard.name().as_str(), name);
        if name == "n" {
            assert!(Some(guard.fence()) > last);
            last = Some(guard.fence());
        }
        let waiter = waiting(&b, b.lock(name)).await;
        team.check();
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        let guard = done(waiter).await;
        // Its next turn waits behind a caller of another process, so it is asked of the store.
        let other = waiting(&a, a.lock(name)).await;
        let own = tokio::spawn(pair(b.lock(name)));
        let other = tokio::spawn(async move { done(other).await.release().await.unwrap() });
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        for turn in [own, other] {
            let turn = timeout(LIMIT, turn).await.expect("in time");
            assert_eq!(turn.unwrap(), Released::WasHeld);
        }
    }
    let many = (0..20).map(|number| tokio::spawn(pair(a.lock(format!("many:{number}")))));
    for one in many.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap(), Released::WasHeld);
    }
    let lease: Lease = a.lock("n").acquire().await.unwrap().detach().unwrap();
    assert!(!lease.to_string().contains(PREFIX), "{lease}");
    b.renew(&lease, ms(10_000)).await.unwrap();
    let guard = b.adopt(&lease).await.unwrap();
    let forced = a.force_release("n", guard.lease_id()).await.unwrap();
    assert_eq!(forced, Released::WasHeld);
    timeout(LIMIT, guard.lost()).await.expect("it learns of it");
    team.check();
}

async fn listings(team: Team) {
    let (a, b) = (team.client().await, team.client().await);
    let guard = a.lock("n").meta("job", "x").acquire().await.unwrap();
    let waiter = waiting(&b, b.lock("n")).await;
    let listed = soon(async || {
        let listing = b.list(|_| true).await.unwrap();
        let found = listing.locks.iter().find(|lock| lock.name.as_str() == "n");
        found.is_some_and(|lock| lock.waiting() == 1)
    });
    assert!(listed.await);
    let clients = b.clients().await.unwrap();
    let own = clients.iter().find(|client| client.id == a.id()).unwrap();
    assert_eq!(own.leases[0].name.as_str(), "n");
    let holder = b.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.meta["job"], "x");
    let error = b.lock("n").wait(ms(100)).acquire().await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("`n`") && !error.contains(PREFIX), "{error}");
    guard.release().await.unwrap();
    done(waiter).await.release().await.unwrap();
    for client in [&a, &b] {
        client.shutdown(LIMIT).await;
    }
    team.check();
}

async fn elections(team: Team) {
    let (a, b) = (team.client().await, team.client().await);
    let mut observer = b.election("n").observe().unwrap();
    let leadership = a.election("n").campaign("one").await.unwrap();
    leadership.proclaim("two").await.unwrap();
    let sees_it = async {
        loop {
            let leader = observer.next().await.unwrap();
            if leader.is_some_and(|leader| leader.value.as_deref() == Some("two")) {
                break;
            }
        }
    };
    timeout(LIMIT, sees_it).await.expect("the observer sees it");
    let next = {
        let b = b.clone();
        tokio::spawn(async move { b.election("n").campaign("three").await.unwrap() })
    };
    assert!(soon(async || b.stats().busy >= 2).await);
    let term = leadership.term();
    leadership.resign().await.unwrap();
    let next = timeout(LIMIT, next).await.expect("elected").unwrap();
    assert!(next.term() > term);
    next.resign().await.unwrap();
    team.check();
}

async fn several(team: Team) {
    let (a, b) = (team.client().await, team.client().await);
    for names in [["a", "b"], ["{t}a", "{t}b"]] {
        let guard = a.locks(names).acquire().await.unwrap();
        let waiter = {
            let locks = b.locks(names);
            tokio::spawn(async move { locks.acquire().await.unwrap() })
        };
        assert!(soon(async || b.stats().busy >= 2).await);
        let released = guard.release().await.unwrap();
        assert!(
            released
                .iter()
                .all(|(name, _)| names.contains(&name.as_str()))
        );
        let guard = timeout(LIMIT, waiter).await.expect("in time").unwrap();
        guard.release().await.unwrap();
    }
    team.check();
}

async fn readers_and_fair_callers(team: Team) {
    let (a, b) = (team.client().await, team.client().await);
    let reader = a.lock("n").shared().acquire().await.unwrap();
    let other = b.lock("n").shared().acquire().await.unwrap();
    let writer = waiting(&b, b.lock("n")).await;
    let late = waiting(&a, a.lock("n").shared().ttl(ms(20_000))).await;
    for reader in [reader, other] {
        reader.release().await.unwrap();
    }
    done(writer).await.release().await.unwrap();
    let reader = done(late).await;
    let writer = reader.try_upgrade().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    let readers = waiting_writer_leaves(&a, &b).await;
    readers.release().await.unwrap();
    reader.release().await.unwrap();
    let tenure = team.tenure().await;
    let first = tenure.lock("fair").fair().acquire().await.unwrap();
    let waiter = {
        let lock = tenure.lock("fair").fair();
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    assert!(soon(async || tenure.stats().busy >= 2).await);
    first.release().await.unwrap();
    done(waiter).await.release().await.unwrap();
    team.check();
}

/// A writer that gives up behind readers lets the readers behind it in.
async fn waiting_writer_leaves(a: &Locks, b: &Locks) -> Guard {
    let writer = waiting(b, b.lock("n")).await;
    let reader = waiting(a, a.lock("n").shared().ttl(ms(15_000))).await;
    writer.abort();
    done(reader).await
}

async fn permits(team: Team) {
    let (a, b) = (team.tenure().await, team.tenure().await);
    let permits = a.semaphore("gpu", 3).acquire_many(3).await.unwrap();
    let waiter = {
        let semaphore = b.semaphore("gpu", 3);
        tokio::spawn(async move { semaphore.acquire_many(2).await.unwrap() })
    };
    assert!(soon(async || b.stats().busy >= 2).await);
    let error = a.semaphore("gpu", 4).try_acquire().await.unwrap_err();
    assert!(!error.to_string().contains(PREFIX), "{error}");
    permits.release().await.unwrap();
    let permits = timeout(LIMIT, waiter).await.expect("in time").unwrap();
    let greater = b.semaphore("gpu", 3).resize(4).await.unwrap();
    assert_eq!(greater.limit(), 4);
    permits.release().await.unwrap();
    team.check();
}

async fn runs(team: Team) {
    let (a, b) = (team.tenure().await, team.tenure().await);
    let start = a.once("nightly", "monday").try_begin().await.unwrap();
    let Start::Here(run) = start else {
        panic!("nobody ran yet: {start:?}")
    };
    let waiter = {
        let once = b.once("nightly", "monday");
        tokio::spawn(async move { once.begin().await.unwrap() })
    };
    assert!(soon(async || b.stats().busy >= 1).await);
    run.complete().await.unwrap();
    let start = timeout(LIMIT, waiter).await.expect("in time").unwrap();
    assert!(matches!(start, Start::Elsewhere(_)), "it ran twice");
    team.check();
}

async fn latches(team: Team) {
    let (a, b) = (team.tenure().await, team.tenure().await);
    let waiter = {
        let latch = b.latch("ready", 2);
        tokio::spawn(async move { latch.wait().await.unwrap() })
    };
    a.latch("ready", 2).arrive("one").await.unwrap();
    b.latch("ready", 2).arrive("two").await.unwrap();
    timeout(LIMIT, waiter).await.expect("in time").unwrap();
    team.check();
}

async fn kept_leases(team: Team) {
    let (a, b) = (team.client().await, team.client().await);
    let lock = a.lock("n").keep(ms(12_000));
    let kept = soon(async || {
        lock.acquire().await.unwrap().release().await.unwrap();
        a.stats().kept > 0
    });
    assert!(kept.await);
    // Sooner than the keep time: it was asked for.
    let guard = timeout(ms(8_000), b.lock("n").acquire())
        .await
        .expect("it is asked for");
    guard.unwrap().release().await.unwrap();
    assert!(a.stats().let_go >= 1);
    team.check();
}

/// It stores since when it has been the primary, before it grants anything.
async fn a_new_primary(team: Team) {
    let builder = team.builder().ttl(ms(1_000)).after_failover(ms(1_000));
    let tenure = builder.connect().await.unwrap();
    let guard = timeout(LIMIT, tenure.lock("n").acquire())
        .await
        .expect("in time");
    guard.unwrap().release().await.unwrap();
    team.check();
}
