//! Lost replies, retries, cancellation.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use tenure::{ErrorKind, Guard, Locks, Released};
use tenure_testkit::{Seed, eventually};
use tokio::task::JoinHandle;

use super::wire::{SOON, Wire};
use crate::stage::{Stage, ms, soon};

// H1: the server granted, but the reply was lost.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_lost_reply_on_acquire_ends_in_one_grant() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.proxy.drop_replies();
    let replied = wire.proxy.counts().reply_bytes;
    let acquiring = tokio::spawn(acquire(a.as_locks()));
    assert!(wire.is_granted_soon("n"));
    let minted = wire.fence("n");
    let is_lost = wire
        .proxy
        .wait_for(SOON, |counts| counts.reply_bytes > replied);
    assert!(is_lost, "the proxy did not get the reply");
    wire.proxy.stop_dropping();
    let guard = acquiring.await.unwrap();
    assert_is_the_only_grant(&wire, a.as_locks(), &guard, minted);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(wire.is_clean_soon("n"));
}

/// The connection says nothing at all, so that only the silence ends it.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_silent_connection_is_replaced_and_the_grant_found() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.proxy.drop_replies();
    let acquiring = tokio::spawn(acquire(a.as_locks()));
    assert!(wire.is_granted_soon("n"));
    let (minted, connections) = (wire.fence("n"), wire.proxy.counts().connections);
    let replaced = wire
        .proxy
        .wait_for(ms(10_000), |counts| counts.connections > connections);
    assert!(replaced, "it still believes in a silent connection");
    wire.proxy.stop_dropping();
    let guard = acquiring.await.unwrap();
    assert_is_the_only_grant(&wire, a.as_locks(), &guard, minted);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(wire.is_clean_soon("n"));
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_try_that_lost_its_reply_is_not_busy() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.proxy.reset_after_request_with(b"EVALSHA");
    let guard = a.lock("n").try_acquire().await.unwrap();
    let guard = guard.expect("it was granted, and reported as busy");
    assert_is_the_only_grant(&wire, a.as_locks(), &guard, wire.fence("n"));
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(wire.is_clean_soon("n"));
}

/// Possibly only the caller itself holds the lock: to report that as busy would be wrong.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_an_outcome_that_stays_unknown_is_not_busy_and_is_undone() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.proxy.drop_replies();
    let begun = Instant::now();
    let error = a.lock("n").wait(ms(300)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(begun.elapsed() < ms(3_000), "{:?}", begun.elapsed());
    assert!(a.stats().unknown_outcomes >= 1);
    assert_eq!(a.stats().busy, 0);
    assert!(wire.fence("n").is_some(), "it was granted");
    wire.proxy.stop_dropping();
    assert!(wire.is_clean_soon("n"), "granted to nobody");
}

/// A place in the queue does not expire with the lease that was asked for.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_waiter_that_gives_up_while_it_is_cut_off_leaves_the_queue() {
    let wire = Wire::start();
    let (holder, a) = (wire.bystander().await, wire.client().await);
    let guard = holder.lock("n").acquire().await.unwrap();
    let lock = a.lock("n").ttl(ms(200));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let mut redis = wire.server.client();
    let mut places = || redis.command(&["ZCARD", "tenure:queue:{n}"]).int();
    assert!(eventually(SOON, || places() == 1));
    wire.proxy.black_hole();
    waiting.abort();
    // Longer than the lease and an offer would last.
    tokio::time::sleep(ms(4_000)).await;
    wire.proxy.heal();
    assert!(eventually(SOON, || places() == 0), "it left its place");
    drop(guard);
}

// H2: a repeated acquire must not count twice.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_a_repeated_acquire_in_a_chain_counts_once() {
    let wire = Wire::start();
    let a = wire.client().await;
    let owner = a.owner();
    wire.proxy.reset_after_request_with(b"EVALSHA");
    let outer = owner.lock("n").acquire().await.unwrap();
    let inner = owner.lock("n").acquire().await.unwrap();
    assert_is_the_only_grant(&wire, a.as_locks(), &outer, Some(inner.fence().get()));
    outer.release().await.unwrap();
    assert!(wire.holder("n").is_some(), "the inner guard still holds it");
    assert_eq!(inner.release().await.unwrap(), Released::WasHeld);
    assert!(wire.is_clean_soon("n"), "one release too few");
}

// H3: the reply is lost after the server executed. No driver may repeat it behind our back.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h03_a_reset_after_execution_is_repeated_once() {
    const ROUNDS: u64 = 20;
    let wire = Wire::start();
    wire.server.reset_stats();
    for round in 10..10 + ROUNDS {
        // A client and a name each: what one still cleans up must not meet the fault of the next.
        let (a, name) = (wire.client().await, format!("round-{round}"));
        wire.proxy.reset_after_request_with(name.as_bytes());
        let guard = a.lock(&name).acquire().await.unwrap();
        assert_is_the_only_grant(&wire, a.as_locks(), &guard, wire.fence(&name));
        assert_eq!(a.stats().unknown_outcomes, 1, "{name}");
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        assert!(wire.is_clean_soon(&name), "{name}");
    }
    // Each attempt that was carried out tried to set the lock once.
    assert_eq!(wire.server.command_calls("set"), ROUNDS * 2);
}

// H4: the server executes after the client has given up.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h04_a_stopped_server_is_given_up_in_time_and_grants_nothing_later() {
    let wire = Wire::start();
    let a = wire.bystander().await;
    wire.server.pause();
    let begun = Instant::now();
    let error = a.lock("n").wait(ms(300)).acquire().await.unwrap_err();
    let waited = begun.elapsed();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // A question that was sent is given a second; one that could not be, no more than the limit.
    assert!(waited >= ms(300) && waited < ms(10_000), "{waited:?}");
    wire.server.resume();
    assert_is_and_stays_free(&wire, "n");
}

/// The attempt is not late yet when the server wakes up: it is granted, but the caller is gone.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h04_a_late_grant_is_undone_when_the_caller_has_gone() {
    let wire = Wire::start();
    let a = wire.bystander().await;
    wire.server.pause();
    let lock = a.lock("n");
    let given_up = tokio::time::timeout(ms(100), lock.acquire()).await;
    assert!(given_up.is_err());
    wire.server.resume();
    assert!(eventually(SOON, || wire.fence("n").is_some()), "no grant");
    assert_is_and_stays_free(&wire, "n");
}

/// The server was stopped for so long that the client gave up the connection as well. The server
/// executes what is left of it.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h04_a_command_of_a_closed_connection_grants_nothing() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.server.pause();
    let error = a.lock("n").wait(ms(1_200)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let closed = wire.proxy.wait_for(SOON, |counts| counts.connections >= 2);
    assert!(closed, "it still believes in a silent connection");
    wire.server.resume();
    assert_is_and_stays_free(&wire, "n");
}

// H5: the cancel overtakes the acquire, which travels on a connection that died.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h05_an_acquire_that_its_own_release_overtook_is_undone() {
    in_time(async || {
        let wire = Wire::start();
        let a = wire.client().await;
        let acquiring = strand_acquire(&wire, a.as_locks());
        wire.proxy.release_requests();
        // A second attempt on another connection is granted and released.
        let guard = acquiring.await.unwrap();
        let id = guard.lease_id().clone();
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        assert_eq!(wire.holder("n"), None);
        // Only now the first one arrives, and is granted to nobody.
        wire.proxy.land();
        let landed = eventually(SOON, || wire.holder("n").as_ref() == Some(&id));
        assert_is_and_stays_free(&wire, "n");
        landed
    })
    .await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h05_an_acquire_that_its_cancel_overtook_is_undone() {
    in_time(async || {
        let wire = Wire::start();
        let a = wire.client().await;
        strand_acquire(&wire, a.as_locks()).abort();
        wire.server.reset_stats();
        wire.proxy.release_requests();
        // The caller has gone: the lock is released, and once more by the clock.
        let cancelled = eventually(SOON, || wire.server.command_calls("evalsha") >= 2);
        assert!(cancelled && wire.is_free_soon("n"));
        wire.proxy.land();
        let landed = wire.is_granted_soon("n");
        assert_is_and_stays_free(&wire, "n");
        landed
    })
    .await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h05_an_acquire_cannot_land_after_its_latest_moment() {
    let wire = Wire::start();
    let a = wire.client().await;
    let mut acquiring = None;
    wire.catch_requests(|| {
        let lock = a.lock("n");
        let within = async move { lock.wait(ms(300)).acquire().await };
        acquiring = Some(tokio::spawn(within));
    });
    wire.proxy.strand();
    let error = acquiring.unwrap().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    wire.proxy.release_requests();
    a.shutdown(ms(5_000)).await;
    let before = wire.server.command_calls("evalsha");
    wire.proxy.land();
    let arrived = eventually(SOON, || wire.server.command_calls("evalsha") > before);
    assert!(arrived, "the stranded attempt never reached the server");
    assert_is_and_stays_free(&wire, "n");
    assert_eq!(wire.fence("n"), None, "something was granted");
}

/// After a shutdown, no task is left that could undo it later.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h05_a_late_acquire_is_undone_also_by_a_shutdown() {
    in_time(async || {
        let wire = Wire::start();
        let a = wire.client().await;
        let acquiring = strand_acquire(&wire, a.as_locks());
        wire.proxy.release_requests();
        let guard = acquiring.await.unwrap();
        let closing = tokio::spawn(async move { a.shutdown(ms(5_000)).await });
        assert!(wire.is_free_soon("n"));
        wire.proxy.land();
        let landed = wire.is_granted_soon("n");
        assert_eq!(closing.await.unwrap(), vec![]);
        assert_eq!(wire.holder("n"), None, "shut down, and not undone");
        drop(guard);
        landed
    })
    .await;
}

/// Neither the late acquire nor its undoing may touch the next holder.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h05_a_successor_is_not_touched_by_a_late_acquire() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    let acquiring = strand_acquire(&wire, a.as_locks());
    wire.proxy.release_requests();
    let guard = acquiring.await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let successor = b.lock("n").try_acquire().await.unwrap().unwrap();
    wire.proxy.land();
    // The undoing ends when the late attempt can no longer land, a second after it was sent.
    a.shutdown(ms(5_000)).await;
    assert_eq!(wire.holder("n").as_ref(), Some(successor.lease_id()));
    assert_eq!(wire.fence("n"), Some(successor.fence().get()));
    assert_eq!(successor.release().await.unwrap(), Released::WasHeld);
    assert!(wire.is_clean_soon("n"));
}

// H6: the caller goes away at any await point.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h06_cancelled_anywhere_on_memory_it_leaves_the_lock_free() {
    let stage = Stage::memory();
    let (a, b) = (stage.client().await, stage.client().await);
    cancel_at_random(&a, &b, rounds(1_000)).await;
    assert!(soon(async || stage.is_clean("n").await).await);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h06_cancelled_anywhere_on_redis_it_leaves_the_lock_free() {
    let wire = Wire::start();
    let (a, b) = (wire.bystander().await, wire.bystander().await);
    cancel_at_random(a.as_locks(), b.as_locks(), rounds(1_000)).await;
    assert!(wire.is_clean_soon("n"), "a key or a place in the queue");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h06_cancelled_anywhere_on_a_slow_network_it_leaves_the_lock_free() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    wire.proxy.delay_requests(ms(1));
    wire.proxy.delay_replies(ms(1));
    cancel_at_random(a.as_locks(), b.as_locks(), rounds(200)).await;
    assert!(wire.is_clean_soon("n"), "a key or a place in the queue");
}

// H7: the reply to a release is lost.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h07_a_release_whose_reply_was_lost_is_done_and_says_unknown() {
    let wire = Wire::start();
    let a = wire.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    wire.proxy.reset_after_request_with(b"EVALSHA");
    // It was held and is released, but the first reply is lost and the second cannot tell why
    // nothing is there: any surer word would be a guess.
    assert_eq!(guard.release().await.unwrap(), Released::Unknown);
    assert!(wire.is_clean_soon("n"));
}

/// Whether it was held to the end is not known, but it is not left either.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h07_a_shutdown_whose_release_lost_its_reply_leaves_nothing() {
    let wire = Wire::start();
    let a = wire.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    wire.proxy.reset_after_request_with(b"EVALSHA");
    assert_eq!(a.shutdown(ms(5_000)).await, vec![]);
    assert!(wire.is_clean_soon("n"));
    drop(guard);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h07_a_release_that_never_arrived_is_repeated() {
    let wire = Wire::start();
    let a = wire.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    wire.proxy.cut_request_after(10);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(wire.is_clean_soon("n"));
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h07_a_repeated_release_never_touches_the_successor() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    for round in 0..10 {
        let guard = a.lock("n").acquire().await.unwrap();
        let waiting = tokio::spawn(acquire(b.as_locks()));
        assert!(soon(async || has_waiter(&wire, "n")).await, "{round}");
        wire.proxy.reset_after_request_with(b"EVALSHA");
        assert_eq!(guard.release().await.unwrap(), Released::Unknown);
        let successor = waiting.await.unwrap();
        assert_eq!(wire.holder("n").as_ref(), Some(successor.lease_id()));
        assert!(successor.is_valid());
        assert_eq!(successor.release().await.unwrap(), Released::WasHeld);
    }
    assert!(wire.is_clean_soon("n"));
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h07_a_release_without_any_answer_says_unknown_in_time() {
    let wire = Wire::start();
    let builder = wire.builder().unreachable_after(ms(1_000));
    let a = builder.connect().await.unwrap();
    let guard = a.lock("n").acquire().await.unwrap();
    wire.proxy.hold_requests();
    let begun = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Unknown);
    let waited = begun.elapsed();
    assert!(waited >= ms(1_000) && waited < ms(10_000), "{waited:?}");
    assert!(wire.holder("n").is_some(), "it cannot have arrived");
    wire.proxy.release_requests();
    assert!(wire.is_clean_soon("n"), "the release was not retried");
}

// H8: the lock comes free at the very moment when a waiter gives up.

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h08_released_at_a_waiters_limit_on_memory_no_grant_is_lost() {
    let stage = Stage::memory();
    let (a, b) = (stage.client().await, stage.client().await);
    release_at_the_limit([&a, &b]).await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h08_released_at_a_waiters_limit_on_redis_no_grant_is_lost() {
    let wire = Wire::start();
    let (a, b) = (wire.bystander().await, wire.bystander().await);
    release_at_the_limit([a.as_locks(), b.as_locks()]).await;
    for lane in 0..LANES {
        assert!(wire.is_clean_soon(&lane_name(lane)), "lane {lane}");
    }
}

/// Takes the lock `n`, and can be spawned.
fn acquire(client: &Locks) -> impl Future<Output = Guard> + Send + use<> {
    let lock = client.lock("n");
    async move { lock.acquire().await.unwrap() }
}

/// Lets a client send an acquire and see its connection die, while the acquire is under way. It
/// may land within the second after it was sent. Requests are held from here on.
fn strand_acquire(wire: &Wire, client: &Locks) -> JoinHandle<Guard> {
    let mut acquiring = None;
    wire.catch_requests(|| acquiring = Some(tokio::spawn(acquire(client))));
    wire.proxy.strand();
    acquiring.unwrap()
}

/// Repeats what a crowded machine may be too slow for, until it was in time to test something.
async fn in_time(scenario: impl AsyncFn() -> bool) {
    for _ in 0..5 {
        if scenario().await {
            return;
        }
    }
    panic!("the acquire never landed: nothing was tested");
}

#[track_caller]
fn assert_is_the_only_grant(wire: &Wire, client: &Locks, guard: &Guard, minted: Option<u64>) {
    let name = guard.name().as_str();
    assert_eq!(wire.holder(name).as_ref(), Some(guard.lease_id()));
    assert!(wire.fence(name) >= minted, "the fence went back");
    assert!(wire.fence(name) >= Some(guard.fence().get()), "not its own");
    assert!(guard.is_valid());
    let stats = client.stats();
    assert_eq!(stats.acquired, 1, "{stats:?}");
    assert_eq!(stats.busy, 0, "unknown was taken for busy: {stats:?}");
    assert!(stats.unknown_outcomes >= 1, "{stats:?}");
}

/// Free soon, and not only because something has yet to arrive.
#[track_caller]
fn assert_is_and_stays_free(wire: &Wire, name: &str) {
    assert!(wire.is_clean_soon(name), "granted to nobody for a ttl");
    let appeared = eventually(ms(100), || wire.holder(name).is_some());
    assert!(!appeared || wire.is_clean_soon(name), "granted to nobody");
}

fn has_waiter(wire: &Wire, name: &str) -> bool {
    let queue = format!("tenure:queue:{{{name}}}");
    wire.server.client().command(&["ZCARD", &queue]).int() > 0
}

/// The rounds of a random test, ten times as many when there is time for it.
fn rounds(rounds: u32) -> u32 {
    let long = std::env::var("TENURE_LONG").is_ok_and(|long| long == "1");
    if long { rounds * 10 } else { rounds }
}

/// Lets `a` begin to take the lock and go away, again and again; `b` must get it each time long
/// before a ttl has passed.
async fn cancel_at_random(a: &Locks, b: &Locks, rounds: u32) {
    let mut rng = Seed::from_env_or_random("TENURE_H06_SEED").rng();
    for round in 0..rounds {
        let held = match rng.random_range(0..3) {
            0 => Some(b.lock("n").acquire().await.unwrap()),
            _ => None,
        };
        let lock = a.lock("n");
        match rng.random_range(0..3) {
            0 => go_away(&mut rng, lock.acquire()).await,
            1 => go_away(&mut rng, lock.try_acquire()).await,
            _ => {
                let limit = Duration::from_micros(rng.random_range(0..3_000));
                go_away(&mut rng, lock.wait(limit).acquire()).await;
            }
        }
        drop(held);
        let begun = Instant::now();
        let guard = b.lock("n").wait(ms(1_000)).acquire().await;
        let guard = guard.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(
            guard.release().await.unwrap(),
            Released::WasHeld,
            "round {round}, after {:?}",
            begun.elapsed()
        );
    }
    assert_eq!(a.shutdown(ms(2_000)).await, vec![]);
}

/// Drops a future after some polls, after some time, or when it is done.
async fn go_away<T>(rng: &mut StdRng, future: impl Future<Output = T>) {
    let mut future = Box::pin(future);
    if rng.random_bool(0.5) {
        let polls = rng.random_range(0..12);
        for _ in 0..polls {
            if is_done(future.as_mut()).await {
                return;
            }
            tokio::task::yield_now().await;
        }
    } else {
        let time = Duration::from_micros(rng.random_range(0..1_500));
        let _ = spin_for(time, future).await;
    }
}

async fn is_done<T>(mut future: Pin<&mut impl Future<Output = T>>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// Timers count in milliseconds, which is longer than a whole acquire takes.
async fn spin_for<T>(time: Duration, mut future: Pin<Box<impl Future<Output = T>>>) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time {
        if is_done(future.as_mut()).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

const LANES: u32 = 20;

fn lane_name(lane: u32) -> String {
    format!("lane-{lane}")
}

/// Several hundred rounds, in lanes of their own so that the waiting does not add up.
async fn release_at_the_limit(clients: [&Locks; 2]) {
    let seed = Seed::from_env_or_random("TENURE_H08_SEED");
    let mut lanes = Vec::new();
    for lane in 0..LANES {
        let [a, b] = clients.map(Locks::clone);
        let mut rng = seed.part(lane.into()).rng();
        lanes.push(tokio::spawn(async move {
            let name = lane_name(lane);
            let mut granted = 0;
            for round in 0..rounds(15) {
                let what = format!("lane {lane}, round {round}");
                granted +=
                    u32::from(release_once_at_the_limit(&a, &b, &name, &mut rng, &what).await);
            }
            granted
        }));
    }
    let mut granted = 0;
    for lane in lanes {
        granted += lane.await.unwrap();
    }
    let all = LANES * rounds(15);
    let mixed = granted > 0 && granted < all;
    assert!(
        mixed,
        "{granted} of {all} waiters got the lock: the limit was not met"
    );
}

/// Whether the waiter got the lock. Either way it is free afterwards.
async fn release_once_at_the_limit(
    a: &Locks,
    b: &Locks,
    name: &str,
    rng: &mut (impl Rng + Send),
    what: &str,
) -> bool {
    // Long enough that the limit and not the least time for one question ends the wait.
    const LIMIT: Duration = ms(120);
    let held = a.lock(name).acquire().await.unwrap();
    let lock = b.lock(name);
    let limit_at = tokio::time::Instant::now() + LIMIT;
    let waiting = tokio::spawn(async move { lock.wait(LIMIT).acquire().await });
    // Some far off on either side, so that both ends are seen on a slow machine too. A timer is
    // up to a millisecond late.
    let off_ms = if rng.random_bool(0.8) { 2 } else { 20 };
    let after = Duration::from_micros(rng.random_range(0..=2_000 * off_ms));
    tokio::time::sleep_until(limit_at - ms(off_ms + 1) + after).await;
    assert_eq!(held.release().await.unwrap(), Released::WasHeld, "{what}");
    let got = match waiting.await.unwrap() {
        Ok(guard) => {
            assert!(guard.is_valid(), "{what}");
            assert_eq!(guard.release().await.unwrap(), Released::WasHeld, "{what}");
            true
        }
        Err(error) => {
            // On a crowded machine the server may not answer within the limit.
            let kinds = [ErrorKind::Busy, ErrorKind::Unavailable];
            assert!(kinds.contains(&error.kind()), "{what}: {error}");
            false
        }
    };
    // Less than the ttl that a lost grant would last.
    let next = a.lock(name).wait(ms(10_000)).acquire().await;
    let next = next.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(next.release().await.unwrap(), Released::WasHeld, "{what}");
    got
}
