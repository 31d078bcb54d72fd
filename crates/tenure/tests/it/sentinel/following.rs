//! What a client does while a master is moved, and how fast.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Tenure};
use tenure_testkit::{ClientKind, Proxy, RedisServer, Sentinels};

use super::{FAILOVER_LIMIT, builder, client, meanwhile, value_at};
use crate::stage::{ms, soon};
use crate::verdict::{check_refused, check_usable, check_within};

/// Takes one lock after the other until told to stop; returns when each was granted, and its name.
async fn take_many(tenure: Tenure, stop: Arc<AtomicBool>) -> Vec<(Instant, String)> {
    let mut granted = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("probe-{}", granted.len());
        // Kept in Redis, so that it can be seen afterwards who granted it.
        let lock = tenure.lock(&name).ttl(ms(60_000));
        if let Ok(Some(guard)) = lock.try_acquire().await {
            granted.push((Instant::now(), name));
            let _ = guard.detach().unwrap();
        }
        tokio::time::sleep(ms(10)).await;
    }
    granted
}

/// When each of the servers that were replicas was first seen to call itself master.
fn promotion(sentinels: &Sentinels, old: &RedisServer) -> Instant {
    let replicas: Vec<_> = sentinels
        .servers()
        .iter()
        .filter(|it| it.port() != old.port())
        .collect();
    let begun = Instant::now();
    while begun.elapsed() < FAILOVER_LIMIT {
        // By what it says itself: the sentinels end all connections of one that they promote.
        if replicas
            .iter()
            .any(|it| it.log().contains("MASTER MODE enabled"))
        {
            return Instant::now();
        }
        thread::sleep(ms(2));
    }
    panic!("nobody was promoted");
}

/// Other clients kept writing to the old master for eleven seconds. A sentinel itself takes up to a
/// second to see that its replica has obeyed; what is granted until then is lost with the old master.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn the_old_master_is_left_as_soon_as_a_sentinel_knows() {
    let sentinels = Sentinels::start();
    let stop = Arc::new(AtomicBool::new(false));
    let taking = tokio::spawn(take_many(client(&sentinels).await, Arc::clone(&stop)));
    tokio::time::sleep(ms(300)).await;
    let begun = Instant::now();
    let (promoted, new) = meanwhile(|| {
        let old = sentinels.begin_failover();
        let promoted = promotion(&sentinels, old);
        let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
        thread::sleep(ms(1_000));
        (promoted, new)
    });
    stop.store(true, Ordering::Relaxed);
    let granted = taking.await.unwrap();
    let of_new = |name: &String| value_at(new, name).is_some();
    let after: Vec<_> = granted.iter().filter(|(at, _)| *at > promoted).collect();
    let first = after.iter().find(|(_, name)| of_new(name));
    let first = first.expect("the new master granted nothing").0 - promoted;
    let lost = after.iter().filter(|(_, name)| !of_new(name));
    let last_lost = lost.map(|(at, _)| *at - promoted).max().unwrap_or_default();
    eprintln!(
        "planned failover: promoted after {:?}; first grant of the new master {first:?} after that, \
         last grant of the old one {last_lost:?} after that",
        promoted - begun
    );
    assert!(first < ms(3_000), "{first:?}");
    assert!(last_lost < ms(3_000), "{last_lost:?}");
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_killed_master_is_replaced() {
    let sentinels = Sentinels::start();
    let tenure = client(&sentinels).await;
    drop(tenure.lock("n").acquire().await.unwrap());
    let old = sentinels.kill_master();
    let killed = Instant::now();
    let guard = tenure.lock("n").acquire().await.unwrap();
    let granted = killed.elapsed();
    let new = meanwhile(|| sentinels.wait_for_failover(old, FAILOVER_LIMIT));
    eprintln!("killed: next grant {granted:?} later (down-after 500 ms)");
    assert_eq!(
        value_at(new, "n").as_deref(),
        Some(guard.lease_id().as_str())
    );
}

/// Announcements can be lost, here because the user may not hear them. The old master would take
/// writes for another forty seconds.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn who_hears_no_announcement_asks() {
    let rules = "on >secret resetchannels -@all +hello +sentinel";
    let sentinels = Sentinels::builder()
        .sentinel_user("deaf", rules)
        .hello_period(ms(10_000))
        .start();
    let url = format!(
        "{}?sentinel_username=deaf&sentinel_password=secret",
        sentinels.url()
    );
    let tenure = Tenure::connect(&url).await.unwrap();
    check_usable(&tenure, "n").await;
    let (old, new) = meanwhile(|| {
        let old = sentinels.begin_failover();
        (old, sentinels.wait_for_failover(old, FAILOVER_LIMIT))
    });
    tokio::time::sleep(ms(1_500)).await;
    let guard = tenure.lock("n").acquire().await.unwrap();
    assert_eq!(value_at(old, "n"), None, "the deposed master was asked");
    let found = value_at(new, "n");
    assert_eq!(found.as_deref(), Some(guard.lease_id().as_str()));
}

/// The connection that the caller's own runtime drives is given up with the others.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_connection_of_the_callers_own_runtime_follows_too() {
    let sentinels = Sentinels::start();
    let runtime = tokio::runtime::Handle::current();
    let tenure = builder(&sentinels)
        .runtime(runtime)
        .connect()
        .await
        .unwrap();
    check_usable(&tenure, "n").await;
    let new = meanwhile(|| sentinels.failover());
    let guard = tenure.lock("n").acquire().await.unwrap();
    assert_eq!(
        value_at(new, "n").as_deref(),
        Some(guard.lease_id().as_str())
    );
    assert!(guard.is_valid());
}

/// A sentinel that was cut off still names the old master, which is back and knows no better. Its
/// answers are aged on their way: a real one would hear from the others too soon.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_sentinel_that_missed_a_failover_is_not_believed() {
    let sentinels = Sentinels::builder().hello_period(ms(10_000)).start();
    let [first, others @ ..] = sentinels.sentinels() else {
        panic!("no sentinels")
    };
    let stale = Proxy::start(first.addr());
    stale.rewrite_replies(b"config-epoch", b"config-ep0ch");
    let (honest, aged) = (first.addr().to_string(), stale.addr().to_string());
    let url = sentinels.url().replace(&honest, &aged);
    let (old, new) = meanwhile(|| {
        let old = sentinels.kill_master();
        let new = sentinels.wait_for_failover(old, FAILOVER_LIMIT);
        old.restart();
        (old, new)
    });
    let port = |server: &RedisServer| server.port().to_string().into_bytes();
    stale.rewrite_replies(&port(new), &port(old));
    let tenure = Tenure::connect(&url).await.unwrap();
    check_usable(&tenure, "n").await;
    // Nor when it alone is left, by whoever has known better.
    for other in others {
        other.pause();
    }
    new.kill_clients(ClientKind::Normal);
    for i in 0..20 {
        let name = format!("m-{i}");
        let guard = tenure.lock(&name).acquire().await.unwrap();
        assert_eq!(value_at(old, &name), None, "the deposed master was asked");
        drop(guard);
        tokio::time::sleep(ms(100)).await;
    }
    for other in others {
        other.resume();
    }
}

/// What all sentinels call the master has become a replica, and they have not seen it yet.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_master_that_is_a_replica_is_not_connected_to() {
    let sentinels = Sentinels::builder().steady().start();
    let (old, new) = (&sentinels.servers()[0], &sentinels.servers()[1]);
    new.client().command(&["REPLICAOF", "NO", "ONE"]);
    let port = new.port().to_string();
    old.client().command(&["REPLICAOF", "127.0.0.1", &port]);
    let connected = builder(&sentinels)
        .unreachable_after(ms(1_000))
        .connect()
        .await;
    let parts = [
        "is a replica, but the Sentinels of",
        "report it as the primary",
    ];
    check_refused(connected, ErrorKind::Unavailable, &parts);
}

/// The listener hears the new master as soon as the old one is left, though that one still answers.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn waiters_hear_the_new_master_at_once() {
    let sentinels = Sentinels::start();
    let (holder, other) = (client(&sentinels).await, client(&sentinels).await);
    let guard = holder.lock("n").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.lock("n");
        async move { lock.acquire().await }
    });
    assert!(soon(async || other.stats().busy >= 2).await);
    let new = meanwhile(|| {
        let old = sentinels.begin_failover();
        sentinels.wait_for_failover(old, FAILOVER_LIMIT)
    });
    let begun = Instant::now();
    let hears = || {
        let reply = new
            .client()
            .command(&["PUBSUB", "NUMSUB", "tenure:wake:{n}"]);
        reply.array()[1].int() == 1
    };
    assert!(soon(async || hears()).await);
    eprintln!(
        "the waiter hears the new master {:?} after all sentinels named it",
        begun.elapsed()
    );
    check_within(begun, ms(3_000));
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
}

/// A master that has become a replica says so itself, while it is unknown which server is next.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_replica_is_never_taken_for_the_master() {
    let sentinels = Sentinels::builder().steady().start();
    let tenure = builder(&sentinels)
        .unreachable_after(ms(1_000))
        .connect()
        .await
        .unwrap();
    for sentinel in sentinels.sentinels() {
        sentinel.pause();
    }
    let (old, new) = (&sentinels.servers()[0], &sentinels.servers()[1]);
    new.client().command(&["REPLICAOF", "NO", "ONE"]);
    old.client()
        .command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    let refused = tenure.lock("n").try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert_eq!(value_at(new, "n"), None);
    for sentinel in sentinels.sentinels() {
        sentinel.resume();
    }
}

/// One of three is down: no call waits for it.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_dead_sentinel_costs_little() {
    let sentinels = Sentinels::builder().steady().start();
    sentinels.sentinels()[0].kill();
    sentinels.sentinels()[1].pause();
    let begun = Instant::now();
    let tenure = client(&sentinels).await;
    let taken = begun.elapsed();
    eprintln!("connected in {taken:?} with one sentinel dead and one stopped");
    assert!(taken < ms(3_000), "{taken:?}");
    check_usable(&tenure, "n").await;
    sentinels.sentinels()[1].resume();
}

/// Sentinels that are gone do no harm to who is connected.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn locks_are_taken_while_no_sentinel_can_be_reached() {
    let sentinels = Sentinels::builder().steady().start();
    let tenure = client(&sentinels).await;
    for sentinel in sentinels.sentinels() {
        sentinel.kill();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    check_usable(&tenure, "n").await;
}
