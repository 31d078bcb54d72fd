//! Slots that move while locks are held, waited for, renewed and taken.

use std::time::{Duration, Instant};

use tenure::{ErrorKind, Guard, Released, Tenure};
use tenure_testkit::{ClockShim, Cluster, RedisServer};

use super::failover::is_renewed;
use super::{CLUSTER, builder, client, fresh_name, holder_at, migrate, other_master, quiet};
use crate::stage::{ms, soon};

#[tenure_testkit::test]
async fn a_lock_is_held_on_though_its_slot_moves() {
    let (tenure, name) = (client().await, fresh_name());
    let guard = tenure.lock(&name).ttl(ms(3_000)).acquire().await.unwrap();
    // The second time it is watched, and renewed on the connection that watches.
    for _ in 0..2 {
        migrate(&name);
        assert!(is_renewed(&tenure).await, "not at its new place");
        assert!(guard.is_valid());
    }
    assert_eq!(tenure.stats().lost, 0);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert_eq!(holder_at(&CLUSTER, &name), None);
}

#[tenure_testkit::test]
async fn a_lease_is_watched_where_it_has_moved() {
    let (tenure, name) = (client().await, fresh_name());
    let guard = tenure.lock(&name).acquire().await.unwrap();
    tokio::time::sleep(ms(1_200)).await;
    let target = migrate(&name);
    // The old node says that the key is gone; then it is looked for where it is now.
    tokio::time::sleep(ms(2_000)).await;
    assert!(guard.is_valid());
    target.client().command(&["DEL", &name]);
    // Its next renewal would be up to ten seconds away.
    let lost = tokio::time::timeout(ms(5_000), guard.lost()).await;
    lost.expect("nobody watches it at its new place");
}

#[tenure_testkit::test]
async fn many_leases_are_renewed_though_some_have_moved() {
    let tenure = client().await;
    let names: Vec<String> = (0..40).map(|_| fresh_name()).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(tenure.lock(name).ttl(ms(1_500)).acquire().await.unwrap());
    }
    for name in names.iter().take(4) {
        migrate(name);
    }
    tokio::time::sleep(ms(2_500)).await;
    assert!(guards.iter().all(Guard::is_valid));
    assert_eq!(tenure.stats().lost, 0);
}

/// The fence counter moves along, so fences grow whatever the clock of the new node shows.
#[tenure_testkit::test]
async fn fences_grow_though_the_slot_moves_to_where_it_is_earlier() {
    let Some(clock) = ClockShim::compile() else {
        return;
    };
    let nodes = Cluster::builder().masters(2).replicas(0).steady();
    let cluster = nodes.clock(1, clock.clone()).start();
    clock.step_back(Duration::from_secs(3_600));
    let name = fresh_name();
    let mut last = None;
    for _ in 0..4 {
        // A client that knows nothing of what was before.
        let tenure = Tenure::connect(cluster.url()).await.unwrap();
        for _ in 0..2 {
            let guard = tenure.lock(&name).acquire().await.unwrap();
            assert!(Some(guard.fence()) > last, "{last:?} {guard:?}");
            last = Some(guard.fence());
            guard.release().await.unwrap();
        }
        let target = other_master(&cluster, &name);
        cluster.migrate_slot(Cluster::slot_of(&name), target);
    }
}

#[tenure_testkit::test]
async fn a_lease_is_renewed_while_its_lock_is_on_the_way() {
    let (tenure, name) = (client().await, fresh_name());
    let guard = tenure.lock(&name).ttl(ms(3_000)).acquire().await.unwrap();
    let slot = Cluster::slot_of(&name);
    let migration = CLUSTER.begin_migration(slot, other_master(&CLUSTER, &name));
    assert!(migration.move_key(&name));
    assert!(is_renewed(&tenure).await, "not on its way");
    assert!(guard.is_valid());
    assert_eq!(tenure.stats().lost, 0);
    migration.finish();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

/// H54: acquire.lua has two keys, and where one is missing neither node serves them until the slot has
/// arrived.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h54_a_lock_on_its_way_is_taken_when_it_has_arrived() {
    let (tenure, name) = (client().await, fresh_name());
    drop(tenure.lock(&name).acquire().await.unwrap());
    assert!(soon(async || holder_at(&CLUSTER, &name).is_none()).await);
    let target = other_master(&CLUSTER, &name);
    let migration = CLUSTER.begin_migration(Cluster::slot_of(&name), target);

    // Its last attempt may be under way when its time is over; then it tells of that one.
    let mut told = Vec::new();
    while told.len() < 5
        && !told
            .last()
            .is_some_and(|it: &String| it.contains("is being moved"))
    {
        let begun = Instant::now();
        let acquiring = tenure.lock(&name).wait(ms(400)).acquire().await;
        let error = acquiring.unwrap_err();
        assert!(begun.elapsed() < ms(5_000), "{:?}", begun.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        told.push(error.to_string());
    }
    let error = told.last().unwrap();
    assert!(error.contains("is being moved"), "{told:?}");
    assert!(error.contains(&name), "{error}");

    let lock = tenure.lock(&name);
    let waiting = tokio::spawn(async move { lock.wait(ms(10_000)).acquire().await });
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    migration.finish();
    let granted = tokio::time::timeout(ms(10_000), waiting).await;
    let guard = granted.expect("it is not taken though it could be");
    drop(guard.unwrap().unwrap());
}

/// H54: release.lua has two keys as well, and the queue is mostly missing.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h54_a_lock_on_its_way_is_released_when_it_has_arrived() {
    let (tenure, name) = (client().await, fresh_name());
    let guard = tenure.lock(&name).acquire().await.unwrap();
    let target = other_master(&CLUSTER, &name);
    let migration = CLUSTER.begin_migration(Cluster::slot_of(&name), target);
    let releasing = tokio::spawn(guard.release());
    tokio::time::sleep(ms(600)).await;
    assert!(!releasing.is_finished(), "both keys must be in one place");
    migration.finish();
    let released = tokio::time::timeout(ms(10_000), releasing).await;
    assert_eq!(released.unwrap().unwrap().unwrap(), Released::WasHeld);
    assert_eq!(holder_at(&CLUSTER, &name), None);
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_cancelled_acquire_of_a_lock_on_its_way_leaves_nothing() {
    let (tenure, other, name) = (client().await, client().await, fresh_name());
    let holder = other.lock(&name).acquire().await.unwrap();
    let lock = tenure.lock(&name);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let queue = format!("tenure:queue:{{{name}}}");
    let waits = || {
        let mut redis = CLUSTER.master_of_key(&name).client();
        redis.command(&["EXISTS", &queue]).int() == 1
    };
    assert!(soon(async || waits()).await);
    let target = other_master(&CLUSTER, &name);
    let migration = CLUSTER.begin_migration(Cluster::slot_of(&name), target);
    migration.move_key(&name);
    waiting.abort();
    tokio::time::sleep(ms(300)).await;
    migration.finish();
    assert!(
        soon(async || !waits()).await,
        "its place in the queue is left"
    );
    holder.release().await.unwrap();
    assert_eq!(holder_at(&CLUSTER, &name), None);
}

/// Counted on nodes that nobody else uses.
#[tenure_testkit::test]
async fn a_lock_that_has_moved_costs_one_more_round_trip_and_then_none() {
    let cluster = quiet().await;
    let tenure = Tenure::connect(cluster.url()).await.unwrap();
    // A lock that the connection knows is asked for by a transaction first, another by the script.
    for known in [false, true] {
        let name = fresh_name();
        // More than once: the first may find its node not connected yet, and goes another way.
        for _ in 0..if known { 3 } else { 0 } {
            let guard = tenure.lock(&name).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        let (source, target) = (cluster.master_of_key(&name), other_master(&cluster, &name));
        cluster.migrate_slot(Cluster::slot_of(&name), target);
        source.reset_stats();
        for _ in 0..5 {
            let guard = tenure.lock(&name).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        let found = (refusals(source, "set"), refusals(source, "evalsha"));
        let expected = if known { (1, 0) } else { (0, 1) };
        assert_eq!(found, expected, "known: {known}");
    }
}

/// How often a server refused a command without carrying it out.
fn refusals(server: &RedisServer, command: &str) -> u64 {
    let info = server.client().command(&["INFO", "commandstats"]);
    let line = format!("cmdstat_{command}:");
    let stats = info.text().lines().find_map(|it| it.strip_prefix(&line));
    let rejected = |stats: &str| {
        let mut stats = stats.split(',');
        stats.find_map(|it| it.strip_prefix("rejected_calls=")?.parse().ok())
    };
    stats.and_then(rejected).unwrap_or(0)
}

/// The attempt arrives at the old node, its answer never at the client, and then its slot moves.
#[tenure_testkit::test]
async fn a_lost_reply_and_a_slot_that_moves_leave_nothing() {
    let cluster = quiet().await;
    let tenure = Tenure::connect(cluster.url()).await.unwrap();
    for round in 0..4 {
        let name = fresh_name();
        let (source, target) = (cluster.master_of_key(&name), other_master(&cluster, &name));
        source.pause();
        let lock = tenure.lock(&name);
        let asking = tokio::time::timeout(ms(200), lock.acquire());
        assert!(asking.await.is_err(), "round {round}: it was answered");
        // In even rounds it arrives in time to be granted, in odd ones too late.
        tokio::time::sleep(ms(if round % 2 == 0 { 100 } else { 1_200 })).await;
        source.resume();
        cluster.migrate_slot(Cluster::slot_of(&name), target);
        assert!(
            soon(async || holder_at(&cluster, &name).is_none()).await,
            "round {round}: it is left behind"
        );
        tokio::time::sleep(ms(1_200)).await;
        assert_eq!(
            holder_at(&cluster, &name),
            None,
            "round {round}: it came back"
        );
    }
}

#[tenure_testkit::test]
async fn a_hung_node_does_not_delay_the_renewals_of_others() {
    let cluster = quiet().await;
    let tenure = Tenure::connect(cluster.url()).await.unwrap();
    let hung = &cluster.servers()[0];
    let (mut guards, mut doomed) = (Vec::new(), Vec::new());
    while guards.len() < 40 || doomed.len() < 40 {
        let name = fresh_name();
        let is_doomed = cluster.servers()[0].port() == cluster.master_of_key(&name).port();
        let guard = tenure.lock(name).ttl(ms(2_000)).acquire().await.unwrap();
        if is_doomed { &mut doomed } else { &mut guards }.push(guard);
    }
    hung.pause();
    tokio::time::sleep(ms(3_500)).await;
    let all_held = guards.iter().all(Guard::is_valid);
    hung.resume();
    assert!(all_held, "a node that hangs kept others from being renewed");
    assert!(!doomed.iter().any(Guard::is_valid));
    drop((guards, doomed));
    let _ = tenure.shutdown(ms(3_000)).await;
}

/// Callers whose own runtime drives the connections meet the same redirects.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn callers_that_drive_connections_themselves_follow_too() {
    let runtime = tokio::runtime::Handle::current();
    let tenure = builder().runtime(runtime).connect().await.unwrap();
    let name = fresh_name();
    for _ in 0..3 {
        for _ in 0..3 {
            let guard = tenure.lock(&name).acquire().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        }
        let guard = tenure.lock(&name).acquire().await.unwrap();
        migrate(&name);
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    }
    assert_eq!(holder_at(&CLUSTER, &name), None);
}
