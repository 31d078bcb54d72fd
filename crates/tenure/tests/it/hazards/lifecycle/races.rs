//! H43 to H46: renewal, release and loss race each other.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tenure::{LostReason, Released, Standing, Tenure};
use tenure_testkit::{Proxy, RedisServer};

use crate::stage::{ms, soon};
use crate::verdict::{check_holds, check_nothing_left, check_within};

const RACERS: u64 = 50;
const ROUNDS: u64 = 20;

/// Releases around the moment at which the lease is renewed, one round after the other. Returns how often
/// the machine stalled for so long that the lease may have ended.
async fn race(tenure: Tenure, racer: u64) -> u64 {
    let name = format!("race-{racer}");
    let ttl = ms(150);
    let mut stalls = 0;
    for round in 0..ROUNDS {
        let asked = Instant::now();
        let guard = tenure.lock(&name).ttl(ttl).acquire().await.unwrap();
        let tick = ms(49) + Duration::from_micros((racer + round * RACERS) % 100 * 20);
        tokio::time::sleep(tick.saturating_sub(asked.elapsed())).await;
        let released = guard.release().await.unwrap();
        let stalled = asked.elapsed() > ttl * 9 / 10;
        stalls += u64::from(stalled);
        assert!(
            released == Released::WasHeld || stalled,
            "{name}, round {round}: {released:?}"
        );
        let again = tenure.lock(&name).is_locked().await.unwrap();
        assert!(!again, "{name} is held after its release, round {round}");
    }
    stalls
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h43_a_renewal_never_brings_a_released_lock_back() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let racers: Vec<_> = (0..RACERS)
        .map(|racer| tokio::spawn(race(tenure.clone(), racer)))
        .collect();
    let mut stalls = 0;
    for racer in racers {
        stalls += racer.await.unwrap();
    }
    check_nothing_left(&server, "race");
    let stats = tenure.stats();
    assert!(stats.lost <= stalls, "{stalls} stalls, {stats:?}");
    // A renewal that is sent when its lease ends finds no time for a reply.
    assert!(stats.renewals_failed == 0 || stalls > 0, "{stats:?}");
    // Some renewals were sent, some were not: the tick was really met.
    assert!(stats.renewed > 0, "{stats:?}");
    assert!(stats.renewed < RACERS * ROUNDS, "{stats:?}");
}

/// Another client has the lock when the renewal arrives: it learns of that, and changes nothing.
#[tenure_testkit::test]
async fn h43_a_renewal_never_prolongs_the_successors_lease() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(900)).acquire().await.unwrap();
    let mut redis = server.client();
    redis.command(&["SET", "n", "theirs", "PX", "60000"]);
    // By the first renewal. At its deadline it would be told that it has expired.
    assert_eq!(guard.lost().await, LostReason::Taken);
    let left = redis.command(&["PTTL", "n"]).int();
    assert!(left > 50_000, "{left} ms are left of a minute");
    drop(guard);
    tenure.shutdown(ms(1_000)).await;
    assert_eq!(redis.command(&["GET", "n"]).text(), "theirs");
}

/// The release arrives when the lease is over and another client has the lock.
#[tenure_testkit::test]
async fn h44_a_late_release_does_not_hit_the_successor() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let slow = Tenure::connect(proxy.url()).await.unwrap();
    let next = Tenure::connect(server.url()).await.unwrap();
    let guard = slow
        .lock("n")
        .ttl(ms(400))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    let sent_before = proxy.counts().request_chunks;
    proxy.hold_requests();
    let releasing = tokio::spawn(guard.release());
    assert!(soon(async || proxy.counts().request_chunks > sent_before).await);
    let successor = next.lock("n").acquire().await.unwrap();
    proxy.release_requests();
    assert_ne!(releasing.await.unwrap().unwrap(), Released::WasHeld);
    check_holds(&server, &successor);
    assert_eq!(successor.release().await.unwrap(), Released::WasHeld);
}

/// The same while the release is under way: whatever it asks, it must not ask in two steps.
#[tenure_testkit::test]
async fn h44_a_slow_release_does_not_hit_the_successor() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let slow = Tenure::connect(proxy.url()).await.unwrap();
    let next = Tenure::connect(server.url()).await.unwrap();
    let guard = slow
        .lock("n")
        .ttl(ms(500))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    let waiting = tokio::spawn(async move { next.lock("n").acquire().await.unwrap() });
    // A first step comes while the lease is there, a second one when it has ended.
    proxy.delay_requests(ms(350));
    let releasing = tokio::spawn(guard.release());
    let successor = waiting.await.unwrap();
    releasing.await.unwrap().unwrap();
    check_holds(&server, &successor);
    assert_eq!(successor.release().await.unwrap(), Released::WasHeld);
}

/// Everything the caller's runtime has is blocked for two ttls; renewals are not its business.
#[test]
fn h45_a_blocked_runtime_does_not_lose_its_lease() {
    const WORKERS: usize = 2;
    let ttl = ms(500);
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .unwrap();
    let tenure = runtime.block_on(Tenure::connect(server.url())).unwrap();
    let guard = runtime.block_on(async { tenure.lock("n").ttl(ttl).acquire().await.unwrap() });
    let deadline = guard.deadline();
    let all_blocked = Arc::new(Barrier::new(WORKERS + 1));
    let blocked: Vec<_> = (0..WORKERS)
        .map(|_| {
            let all_blocked = Arc::clone(&all_blocked);
            runtime.spawn(async move {
                all_blocked.wait();
                std::thread::sleep(2 * ttl);
            })
        })
        .collect();
    all_blocked.wait();
    let begun = Instant::now();
    let idle = runtime.spawn(async move { begun.elapsed() });
    // No worker is free, and still the lease is renewed.
    std::thread::sleep(ttl + ttl / 2);
    assert!(guard.is_valid());
    assert!(guard.deadline() > deadline);
    for blocked in blocked {
        runtime.block_on(blocked).unwrap();
    }
    let idle = runtime.block_on(idle).unwrap();
    assert!(idle >= ttl, "the workers were not all blocked: {idle:?}");
    assert_eq!(guard.standing(), Standing::Held);
    check_holds(&server, &guard);
    let released = runtime.block_on(guard.release()).unwrap();
    assert_eq!(released, Released::WasHeld);
}

/// Nothing comes back from the server. The holder is notified before another client can have the lock.
#[tenure_testkit::test]
async fn h46_a_holder_that_is_cut_off_is_told_in_time() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let tenure = Tenure::connect(proxy.url()).await.unwrap();
    let other = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(2_000)).acquire().await.unwrap();
    proxy.black_hole();
    let cut = Instant::now();
    let successor = tokio::spawn(async move {
        let successor = other.lock("n").acquire().await.unwrap();
        (Instant::now(), successor.fence())
    });
    assert!(soon(async || guard.standing() == Standing::Suspect).await);
    // From before the question: not later than what the guard believes.
    let believed_until = Instant::now() + guard.remaining();
    assert!(guard.is_valid(), "suspect is not yet lost");
    let token = guard.lost_token();
    assert_eq!(guard.lost().await, LostReason::Expired);
    check_within(cut, ms(10_000));
    assert!(token.is_cancelled() && !guard.is_valid());
    let (granted, fence) = successor.await.unwrap();
    let early = believed_until.saturating_duration_since(granted);
    assert!(early.is_zero(), "granted {early:?} before it was lost");
    assert!(fence > guard.fence());
    assert_eq!(tenure.stats().lost, 1);
    assert!(tenure.stats().renewals_failed > 0);
}
