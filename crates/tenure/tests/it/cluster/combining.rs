//! Requests of concurrent callers travel together, those for one slot in one call.
//!
//! The nodes are paused while the callers ask: the first requests are sent at once, and the others wait
//! for the next call. The test's own runtime has one thread, so that all have asked after one round.

use tenure::{Error, ErrorKind, Guard, Released, Tenure};
use tenure_testkit::{Cluster, RedisServer};
use tokio::task::JoinHandle;

use super::{fresh_name, holder_at, other_master, quiet};
use crate::stage::{ms, soon};

const CALLERS: usize = 40;

type Asking = JoinHandle<Result<Option<Guard>, Error>>;

#[tenure_testkit::test]
async fn callers_on_one_slot_share_few_calls() {
    let cluster = quiet().await;
    let tag = fresh_name();
    let names: Vec<_> = (0..CALLERS).map(|at| format!("{{{tag}}}:{at}")).collect();
    let client = known_to(&cluster, &names).await;
    let node = cluster.master_of_key(&names[0]);
    node.reset_stats();
    let guards = granted(
        &cluster,
        &names,
        ask_together(&cluster, &client, &names).await,
    )
    .await;
    let calls = node.command_calls("exec");
    assert!(
        (1..=5).contains(&calls),
        "{calls} calls for {CALLERS} locks"
    );

    node.reset_stats();
    release_together(&cluster, guards).await;
    let calls = node.command_calls("evalsha");
    assert!(calls <= 5, "{calls} calls for {CALLERS} releases");
    assert!(names.iter().all(|name| holder_at(&cluster, name).is_none()));
}

/// The requests to a node travel together, each in a transaction of its slot.
#[tenure_testkit::test]
async fn callers_on_many_slots_need_no_script_to_acquire() {
    let cluster = quiet().await;
    let names: Vec<_> = (0..CALLERS).map(|_| fresh_name()).collect();
    let client = known_to(&cluster, &names).await;
    let mut last = vec![0; CALLERS];
    for round in 0..3 {
        cluster.servers().iter().for_each(RedisServer::reset_stats);
        let asking = ask_together(&cluster, &client, &names).await;
        let guards = granted(&cluster, &names, asking).await;
        let scripts = |word| {
            cluster
                .servers()
                .iter()
                .map(|node| node.command_calls(word))
                .sum::<u64>()
        };
        assert_eq!(scripts("evalsha"), 0, "round {round}");
        for (guard, last) in guards.iter().zip(&mut last) {
            assert!(guard.fence().get() > *last, "{guard:?} after {last}");
            *last = guard.fence().get();
        }
        release_together(&cluster, guards).await;
    }
}

/// Locks that others hold, among those that are free.
#[tenure_testkit::test]
async fn a_busy_lock_makes_no_other_busy() {
    let cluster = quiet().await;
    let tag = fresh_name();
    let names: Vec<_> = (0..CALLERS).map(|at| format!("{{{tag}}}:{at}")).collect();
    let client = known_to(&cluster, &names).await;
    let other = Tenure::connect(cluster.url()).await.unwrap();
    let mut held = Vec::new();
    for name in names.iter().step_by(3) {
        held.push(other.lock(name).acquire().await.unwrap());
    }
    let asking = ask_together(&cluster, &client, &names).await;
    for (caller, asking) in asking.into_iter().enumerate() {
        let granted = asking.await.unwrap().unwrap().is_some();
        assert_eq!(granted, caller % 3 != 0, "{caller}");
    }
}

/// A fence counter that is gone is not replaced by a transaction, which could not give it an expiry.
#[tenure_testkit::test]
async fn a_lock_without_its_counter_is_left_to_the_script() {
    let cluster = quiet().await;
    let names: Vec<_> = (0..CALLERS).map(|_| fresh_name()).collect();
    let client = known_to(&cluster, &names).await;
    let counter = format!("tenure:fences:{{{}}}", names[7]);
    let node = cluster.master_of_key(&names[7]);
    assert_eq!(node.client().command(&["DEL", &counter]).int(), 1);
    let asking = ask_together(&cluster, &client, &names).await;
    granted(&cluster, &names, asking).await;
    let ttl = node.client().command(&["PTTL", &counter]).int();
    assert!(ttl > 0, "the counter has no expiry: {ttl}");
}

/// Slots that moved, and one that is on its way, while the client has an old map: each of these locks
/// is acquired at its new place, and the others are not disturbed.
#[tenure_testkit::test]
async fn locks_that_moved_are_acquired_where_they_are() {
    let cluster = quiet().await;
    let names: Vec<_> = (0..CALLERS).map(|_| fresh_name()).collect();
    let client = known_to(&cluster, &names).await;
    for name in &names[..2] {
        cluster.migrate_slot(Cluster::slot_of(name), other_master(&cluster, name));
    }
    let on_its_way = Cluster::slot_of(&names[2]);
    let migration = cluster.begin_migration(on_its_way, other_master(&cluster, &names[2]));
    let asking = ask_together(&cluster, &client, &names).await;
    let all_others = async || {
        let held = |(at, name): (usize, &String)| at == 2 || holder_at(&cluster, name).is_some();
        names.iter().enumerate().all(held)
    };
    assert!(soon(all_others).await, "a lock on its way delays others");
    migration.move_keys();
    migration.finish();
    // The one that was on its way may have been refused meanwhile.
    for (caller, asking) in asking.into_iter().enumerate() {
        match asking.await.unwrap() {
            Ok(guard) => assert_eq!(guard.unwrap().release().await.unwrap(), Released::WasHeld),
            Err(error) if caller == 2 => assert_eq!(error.kind(), ErrorKind::Unavailable),
            Err(error) => panic!("{caller}: {error}"),
        }
    }
    let guard = client.lock(&names[2]).wait(ms(10_000)).acquire().await;
    assert_eq!(guard.unwrap().release().await.unwrap(), Released::WasHeld);
}

/// Slots that moved while their locks are held: each release finds its lock.
#[tenure_testkit::test]
async fn locks_that_moved_are_released_where_they_are() {
    let cluster = quiet().await;
    let tag = fresh_name();
    let mut names: Vec<_> = (0..CALLERS / 2).map(|_| fresh_name()).collect();
    names.extend((0..CALLERS / 2).map(|at| format!("{{{tag}}}:{at}")));
    let client = known_to(&cluster, &names).await;
    let guards = granted(
        &cluster,
        &names,
        ask_together(&cluster, &client, &names).await,
    )
    .await;
    for name in [&names[0], &names[CALLERS - 1]] {
        cluster.migrate_slot(Cluster::slot_of(name), other_master(&cluster, name));
    }
    release_together(&cluster, guards).await;
    assert!(names.iter().all(|name| holder_at(&cluster, name).is_none()));
}

/// A client that has acquired all locks before, so that it needs no script for them.
async fn known_to(cluster: &Cluster, names: &[String]) -> Tenure {
    let client = Tenure::connect(cluster.url()).await.unwrap();
    for name in names {
        let guard = client.lock(name).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    client
}

/// Lets all callers ask while no node replies.
async fn ask_together(cluster: &Cluster, client: &Tenure, names: &[String]) -> Vec<Asking> {
    cluster.servers().iter().for_each(RedisServer::pause);
    let ask = |name| {
        let lock = client.lock(name);
        tokio::spawn(async move { lock.try_acquire().await })
    };
    let asking = names.iter().map(ask).collect();
    tokio::task::yield_now().await;
    cluster.servers().iter().for_each(RedisServer::resume);
    asking
}

/// The guards, if each caller has its own lock.
async fn granted(cluster: &Cluster, names: &[String], asking: Vec<Asking>) -> Vec<Guard> {
    let mut guards = Vec::new();
    for (name, asking) in names.iter().zip(asking) {
        let guard = asking.await.unwrap().unwrap().unwrap();
        assert_eq!(guard.name().as_str(), name);
        let holder = holder_at(cluster, name);
        assert_eq!(holder.as_deref(), Some(guard.lease_id().as_str()));
        guards.push(guard);
    }
    guards
}

async fn release_together(cluster: &Cluster, guards: Vec<Guard>) {
    cluster.servers().iter().for_each(RedisServer::pause);
    let release = |guard: Guard| tokio::spawn(guard.release());
    let releasing: Vec<_> = guards.into_iter().map(release).collect();
    tokio::task::yield_now().await;
    cluster.servers().iter().for_each(RedisServer::resume);
    for releasing in releasing {
        assert_eq!(releasing.await.unwrap().unwrap(), Released::WasHeld);
    }
}
