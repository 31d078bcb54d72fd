//! What replicas confirm.

use std::time::Instant;

use tenure::{Advice, ErrorKind, Guard, Lease, Released, Standing, Tenure};
use tenure_testkit::{Proxy, RedisServer, Sentinels};

use super::{FAILOVER_LIMIT, TTL, client, fragile, kill_unheard, meanwhile};
use crate::stage::{Stage, ms, soon};
use crate::verdict::{check_error, check_nothing_left, check_refused, check_within, refused};

/// A master and a replica that can be cut off from it.
fn pair() -> (RedisServer, Proxy, RedisServer) {
    let master = RedisServer::start();
    let link = Proxy::start(master.addr());
    let replica = RedisServer::builder().replica_of_addr(link.addr()).start();
    // Until the master counts it in.
    let mut redis = master.client();
    redis.set_timeout(FAILOVER_LIMIT * 2);
    redis.command(&["SET", "first", "write", "PX", "1"]);
    let limit_ms = FAILOVER_LIMIT.as_millis().to_string();
    assert_eq!(redis.command(&["WAIT", "1", &limit_ms]).int(), 1);
    (master, link, replica)
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_lock_that_all_replicas_confirmed_survives_its_master() {
    let sentinels = Sentinels::start();
    let (holder, other) = (client(&sentinels).await, client(&sentinels).await);
    let guard = holder
        .lock("n")
        .ttl(TTL)
        .replicas(2)
        .acquire()
        .await
        .unwrap();
    kill_unheard(&sentinels);
    assert!(other.lock("n").try_acquire().await.unwrap().is_none());
    assert!(guard.is_valid());
    // One of three servers is dead: one replica is left, and renewals ask for two.
    assert!(
        soon(async || guard.standing() == Standing::Suspect).await || guard.remaining() > TTL / 2
    );
}

/// The same as without replicas, but the lock is refused instead of lost.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h50_a_lock_that_replicas_cannot_hear_of_is_refused() {
    let sentinels = fragile();
    let tenure = client(&sentinels).await;
    sentinels.cut_replication(1);
    sentinels.cut_replication(2);
    let begun = Instant::now();
    let error = refused(tenure.lock("n").replicas(2).try_acquire().await);
    check_error(&error, ErrorKind::NotReplicated, &["needs `2`", "only `0`"]);
    assert_eq!(error.advice(), Advice::Later);
    check_within(begun, ms(2_500));
    check_nothing_left(sentinels.master(), "n");
    let begun = Instant::now();
    let waited = tenure.lock("n").replicas(1).wait(ms(1_500)).acquire().await;
    check_refused(waited, ErrorKind::NotReplicated, &["needs `1`"]);
    check_within(begun, ms(4_500));
    check_nothing_left(sentinels.master(), "n");
    // It waits for the replicas as for a holder.
    let waiting = tokio::spawn({
        let lock = tenure.lock("n").replicas(2);
        async move { lock.acquire().await }
    });
    tokio::time::sleep(ms(1_500)).await;
    assert!(!waiting.is_finished());
    sentinels.heal_replication(1);
    sentinels.heal_replication(2);
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

/// One replica has the lock, the other lags and is preferred when the master dies. A client that asked
/// for one only would have lost the lock; one that asked for both was never given it.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h51_all_that_may_be_promoted_must_confirm() {
    let sentinels = Sentinels::builder()
        .proxied_replication()
        .priority(2, 1)
        .start();
    let (holder, other) = (client(&sentinels).await, client(&sentinels).await);
    sentinels.cut_replication(2);
    let both = holder.lock("both").replicas(2).try_acquire().await;
    check_refused(both, ErrorKind::NotReplicated, &["needs `2`", "only `1`"]);
    let one = holder
        .lock("one")
        .ttl(TTL)
        .replicas(1)
        .acquire()
        .await
        .unwrap();
    let new = kill_unheard(&sentinels);
    assert_eq!(sentinels.index_of(new), 2, "the one that lags is preferred");
    let next = other.lock("one").acquire().await.unwrap();
    assert!(
        next.fence() > one.fence(),
        "two holders, told apart by the fence alone"
    );
}

/// `WAIT` on a connection that has written nothing says at once that all replicas have it.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h52_what_another_connection_wrote_is_not_confirmed() {
    let (master, link, _replica) = pair();
    let tenure = Tenure::connect(master.url()).await.unwrap();
    drop(tenure.lock("warm").replicas(1).acquire().await.unwrap());
    // Replicas confirm once a second unasked: by now all that other connections wrote.
    tokio::time::sleep(ms(2_500)).await;
    link.black_hole();
    let error = refused(tenure.lock("n").replicas(1).try_acquire().await);
    check_error(&error, ErrorKind::NotReplicated, &["needs `1`", "only `0`"]);
    check_nothing_left(&master, "n");
}

/// A lease that goes to another process as text is renewed and adopted by a client that demands no
/// replicas of its own.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_detached_lease_needs_its_replicas_still() {
    let (master, link, _replica) = pair();
    let holder = Tenure::connect(master.url()).await.unwrap();
    let builder = Tenure::builder(master.url()).unreachable_after(ms(300));
    let other = builder.connect().await.unwrap();
    let lock = holder.lock("n").ttl(TTL).replicas(1);
    let lease = lock.acquire().await.unwrap().detach().unwrap();
    assert_eq!(lease.replicas(), 1);
    let lease: Lease = lease.to_string().parse().unwrap();
    link.black_hole();
    let needs = &["needs `1`", "only `0`"];
    check_refused(
        other.renew(&lease, TTL).await,
        ErrorKind::NotReplicated,
        needs,
    );
    link.heal();
    let guard = other.adopt(&lease).await.unwrap();
    link.black_hole();
    assert!(soon(async || guard.standing() == Standing::Suspect).await);
    let parts = Lease::from_parts("n", guard.lease_id().clone(), guard.fence()).unwrap();
    let parts = parts.with_replicas(1);
    check_refused(other.adopt(&parts).await, ErrorKind::NotReplicated, needs);
}

/// The connection breaks between the grant and the replicas' word: whether it counts is unknown,
/// so it is asked for again, from the beginning.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h52_a_connection_that_breaks_before_the_replicas_answer() {
    let (master, link, replica) = pair();
    let wire = Proxy::start(master.addr());
    let tenure = Tenure::connect(wire.url()).await.unwrap();
    drop(tenure.lock("warm").replicas(1).acquire().await.unwrap());
    link.black_hole();
    let taking = tokio::spawn({
        let lock = tenure.lock("n").replicas(1);
        async move { lock.acquire().await }
    });
    assert!(soon(async || master.stat("blocked_clients") == 1).await);
    wire.reset_all();
    assert!(soon(async || tenure.stats().unknown_outcomes >= 1).await);
    assert!(!taking.is_finished(), "granted without the replica");
    link.heal();
    let guard = taking.await.unwrap().unwrap();
    let found = meanwhile(|| replica.client().command(&["GET", "n"]));
    assert_eq!(found.text(), guard.lease_id().as_str());
    drop(guard);
    check_nothing_left(&master, "n");
}

/// None of none is not all.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn h53_a_server_without_replicas_confirms_nothing() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let error = refused(tenure.lock("n").replicas(1).try_acquire().await);
    check_error(&error, ErrorKind::NotReplicated, &["needs `1`", "only `0`"]);
    check_nothing_left(&server, "n");
    // More than there are.
    let (master, _link, _replica) = pair();
    let tenure = Tenure::connect(master.url()).await.unwrap();
    let error = refused(tenure.lock("n").replicas(2).try_acquire().await);
    check_error(&error, ErrorKind::NotReplicated, &["needs `2`", "only `1`"]);
    check_nothing_left(&master, "n");
}

/// A renewal that the replica does not hear of does not count.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_renewal_that_is_not_confirmed_leaves_the_lease_suspect() {
    let (master, link, _replica) = pair();
    let tenure = Tenure::connect(master.url()).await.unwrap();
    // Two of them, so that they are also renewed together; and one that asks for no replica.
    let lock = |name| tenure.lock(name).ttl(ms(4_500)).replicas(1);
    let plain = lock("plain").replicas(0).acquire().await.unwrap();
    let both = [
        lock("one").acquire().await.unwrap(),
        lock("two").acquire().await.unwrap(),
    ];
    let are = |standing| both.iter().all(|guard| guard.standing() == standing);
    assert!(long(async || tenure.stats().renewed >= 3).await);
    assert!(are(Standing::Held));
    link.black_hole();
    assert!(long(async || are(Standing::Suspect)).await);
    link.heal();
    assert!(long(async || are(Standing::Held)).await, "confirmed again");
    link.black_hole();
    for guard in &both {
        assert_eq!(guard.lost().await, tenure::LostReason::Expired);
    }
    assert_eq!(plain.standing(), Standing::Held);
}

/// Waits for what takes some seconds.
async fn long(mut condition: impl AsyncFnMut() -> bool) -> bool {
    for _ in 0..4 {
        if soon(&mut condition).await {
            return true;
        }
    }
    false
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn an_adopted_lease_is_confirmed_or_given_back() {
    let (master, link, _replica) = pair();
    let builder = Tenure::builder(master.url())
        .replicas(1)
        .unreachable_after(ms(1_500));
    let tenure = builder.connect().await.unwrap();
    let lease = tenure
        .lock("n")
        .ttl(TTL)
        .acquire()
        .await
        .unwrap()
        .detach()
        .unwrap();
    let guard = tenure.adopt(&lease).await.unwrap();
    let lease = guard.detach().unwrap();
    link.black_hole();
    check_refused(
        tenure.adopt(&lease).await,
        ErrorKind::NotReplicated,
        &["only `0`"],
    );
    check_nothing_left(&master, "n");
}

/// One waiter after the other in one process: the lease stays confirmed by as many.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_confirmed_lease_is_handed_on_to_who_wants_as_many_replicas() {
    let (master, _link, _replica) = pair();
    let builder = Tenure::builder(master.url()).hand_off_time(ms(60_000));
    let tenure = builder.connect().await.unwrap();
    let guard = tenure.lock("n").replicas(1).acquire().await.unwrap();
    let id = guard.lease_id().clone();
    let same = waiter(&tenure).await;
    guard.release().await.unwrap();
    let same = same.await.unwrap();
    assert_eq!(same.lease_id(), &id, "the store was asked");
    let other = tokio::spawn({
        let lock = tenure.lock("n");
        async move { lock.acquire().await.unwrap() }
    });
    tokio::time::sleep(ms(200)).await;
    same.release().await.unwrap();
    let other = other.await.unwrap();
    assert_ne!(other.lease_id(), &id, "it did not ask for replicas");
    // Nor does who re-enters it.
    let owner = tenure.owner();
    let _outer = owner.lock("m").replicas(1).acquire().await.unwrap();
    let inner = owner.lock("m").try_acquire().await;
    check_refused(inner, ErrorKind::Mismatch, &["number of `replicas`"]);
}

/// One who waits in this process for the lock `n` with one replica.
async fn waiter(tenure: &Tenure) -> tokio::task::JoinHandle<Guard> {
    let (lock, busy) = (tenure.lock("n").replicas(1), tenure.stats().busy);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    assert!(soon(async || tenure.stats().busy > busy).await);
    waiting
}

/// The store says that it is our turn again, and no replica hears of it.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_turn_that_is_not_confirmed_is_given_back() {
    let (master, link, _replica) = pair();
    let builder = Tenure::builder(master.url()).hand_off_turns(0);
    let tenure = builder.connect().await.unwrap();
    let guard = tenure.lock("n").replicas(1).acquire().await.unwrap();
    let next = waiter(&tenure).await;
    let fence = guard.fence();
    link.black_hole();
    guard.release().await.unwrap();
    tokio::time::sleep(ms(2_500)).await;
    assert!(!next.is_finished(), "granted without the replica");
    link.heal();
    assert!(next.await.unwrap().fence() > fence);
    check_nothing_left(&master, "n");
}

/// A replica that is gone stalls only the clients that need it.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn waiting_for_replicas_stalls_nobody_else() {
    let (master, link, _replica) = pair();
    let tenure = Tenure::connect(master.url()).await.unwrap();
    link.black_hole();
    let stalled: Vec<_> = (0..12)
        .map(|i| {
            let lock = tenure.lock(format!("stalled-{i}")).replicas(1);
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    assert!(soon(async || master.stat("blocked_clients") >= 1).await);
    for i in 0..50 {
        let begun = Instant::now();
        let guard = tenure.lock(format!("free-{i}")).acquire().await.unwrap();
        guard.release().await.unwrap();
        check_within(begun, ms(500));
    }
    for stalled in stalled {
        let error = refused(stalled.await.unwrap());
        assert_eq!(error.advice(), Advice::Later, "{error:?}");
    }
    check_nothing_left(&master, "stalled");
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn replicas_are_refused_where_there_are_none() {
    let parts = [
        "cannot use `1` as the number of replicas",
        "`memory://` has no servers",
    ];
    let builder = Tenure::builder("memory://").replicas(1);
    check_refused(builder.connect().await, ErrorKind::InvalidSetting, &parts);
    let tenure = Tenure::connect("memory://").await.unwrap();
    let lock = tenure.lock("n").replicas(1);
    check_refused(lock.acquire().await, ErrorKind::InvalidSetting, &parts);
    check_refused(lock.try_acquire().await, ErrorKind::InvalidSetting, &parts);
    let redlock = Stage::redlock_3().client().await;
    let lock = redlock.lock("n").replicas(1);
    check_refused(lock.acquire().await, ErrorKind::InvalidSetting, &parts);
    let blocking = std::thread::spawn(|| {
        let tenure = tenure::blocking::Tenure::connect("memory://").unwrap();
        refused(tenure.lock("n").replicas(2).acquire()).kind()
    });
    assert_eq!(blocking.join().unwrap(), ErrorKind::InvalidSetting);
}
