//! A lock that goes from one process to another in one trip: the message of the offer grants it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::{Guard, Released, Tenure};
use tenure_testkit::{Proxy, RedisServer, RespClient};
use tokio::task::JoinHandle;

use crate::stage::{ms, soon};
use crate::verdict::{check_nothing_left, check_within};

const WAKE: &str = "tenure:wake:{n}";
const QUEUE: &str = "tenure:queue:{n}";
/// Until something has happened that needs no quiet machine, only time.
const PATIENCE: Duration = ms(60_000);

/// A holder, and a waiter whose connections can be stopped.
struct Pair {
    server: RedisServer,
    proxy: Proxy,
    holder: Tenure,
    waiter: Tenure,
}

impl Pair {
    async fn start() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.addr());
        Self {
            holder: Tenure::connect(server.url()).await.unwrap(),
            waiter: Tenure::connect(proxy.url()).await.unwrap(),
            server,
            proxy,
        }
    }

    /// Starts to wait. Returns the task and its place in the queue.
    async fn wait(&self) -> (JoinHandle<Guard>, String) {
        let waiter = self.waiter.clone();
        let waiting = tokio::spawn(async move { waiter.lock("n").acquire().await.unwrap() });
        let place = place(&mut self.server.client()).await;
        (waiting, place)
    }

    /// A guard that the waiter got although none of its requests arrives. A message that is heard
    /// too late on a crowded machine is not trusted: then once more, with a new client, because a
    /// request for the server's clock may have been held too.
    async fn granted_by_message(&mut self) -> Guard {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.waiter = Tenure::connect(self.proxy.url()).await.unwrap();
            let guard = self.holder.lock("n").acquire().await.unwrap();
            let (mut waiting, _) = self.wait().await;
            self.proxy.hold_requests();
            guard.release().await.unwrap();
            if let Ok(guard) = tokio::time::timeout(ms(300), &mut waiting).await {
                return guard.unwrap();
            }
            self.proxy.release_requests();
            waiting.await.unwrap().release().await.unwrap();
        }
        panic!("no message was enough");
    }
}

/// The place of the only waiter, once it has one.
async fn place(redis: &mut RespClient) -> String {
    let mut first = || {
        let places = redis.command(&["ZRANGE", QUEUE, "0", "0"]);
        places.array().first().map(|it| it.text().to_owned())
    };
    assert!(soon(async || first().is_some()).await, "nobody waits");
    first().unwrap()
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_enough_and_the_first_renewal_makes_it_a_whole_lease() {
    let mut pair = Pair::start().await;
    let guard = pair.granted_by_message().await;
    assert!(guard.remaining() <= ms(2_000), "{:?}", guard.remaining());
    pair.proxy.release_requests();
    assert!(
        soon(async || guard.remaining() > ms(2_000)).await,
        "it was not renewed"
    );
    let found = pair.server.client().command(&["PTTL", "n"]).int();
    assert!(found > 2_000, "{found}");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_nothing_left(&pair.server, "n");
}

/// Nothing but a renewal may extend the belief, and it ends before the offer does.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_renewal_the_belief_ends_before_the_offer() {
    let mut pair = Pair::start().await;
    let guard = pair.granted_by_message().await;
    let mut redis = pair.server.client();
    let begun = Instant::now();
    // In this order: a guard that is valid now was valid when the key was still there.
    while !redis.command(&["GET", "n"]).is_nil() {
        assert!(begun.elapsed() < PATIENCE, "the offer has no end");
    }
    assert!(!guard.is_valid(), "the offer is over");
    pair.proxy.release_requests();
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
}

/// When the message arrives, the offer is over and another client has the lock.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_late_grants_nothing() {
    let pair = Pair::start().await;
    let guard = pair.holder.lock("n").acquire().await.unwrap();
    let (waiting, _) = pair.wait().await;
    pair.proxy.hold_replies();
    guard.release().await.unwrap();
    let next = pair.holder.lock("n").acquire().await.unwrap();
    let busy = pair.waiter.stats().busy;
    pair.proxy.release_replies();
    assert!(
        soon(async || pair.waiter.stats().busy > busy || waiting.is_finished()).await,
        "it did not ask"
    );
    assert!(!waiting.is_finished(), "two have the lock");
    next.release().await.unwrap();
    assert!(waiting.await.unwrap().is_valid());
}

/// Messages that somebody else publishes, with the place of a waiter that was not offered the lock.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_another_time_or_for_another_waiter_grants_nothing() {
    let pair = Pair::start().await;
    let guard = pair.holder.lock("n").acquire().await.unwrap();
    let (waiting, place) = pair.wait().await;
    let mut redis = pair.server.client();
    let time = redis.command(&["TIME"]);
    let [seconds, micros] = [0, 1].map(|at| time.array()[at].text().parse::<u64>().unwrap());
    let now_us = seconds * 1_000_000 + micros;
    let other = "tenure:00000000000000000000000000000007:001:30000";
    for (to, written_us) in [
        (place.as_str(), now_us - 1_000_000),
        (place.as_str(), now_us + 60_000_000),
        (other, now_us + 1_000),
    ] {
        let ends_us = written_us + 2_000_000;
        let message = format!("{to} {now_us} {written_us} {ends_us}");
        let busy = pair.waiter.stats().busy;
        redis.command(&["PUBLISH", WAKE, &message]);
        let asks = async || to == other || pair.waiter.stats().busy > busy;
        assert!(soon(asks).await, "it did not ask");
        assert!(!waiting.is_finished(), "two have the lock");
    }
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap().is_valid());
}

/// What the release of an earlier version does and publishes: nothing but the waiter.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_understands_the_message_of_an_earlier_version() {
    let pair = Pair::start().await;
    let mut redis = pair.server.client();
    redis.command(&[
        "SET",
        "n",
        "tenure:00000000000000000000000000000007:1:30000",
    ]);
    redis.command(&["PEXPIRE", "n", "30000"]);
    let (waiting, place) = pair.wait().await;
    redis.command(&["SET", "n", &place, "PX", "2000"]);
    redis.command(&["ZREM", QUEUE, &place]);
    redis.command(&["PUBLISH", WAKE, &place]);
    let begun = Instant::now();
    let guard = waiting.await.unwrap();
    check_within(begun, ms(5_000));
    assert!(guard.remaining() > ms(2_000), "it was accepted, not told");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

/// A waiter of an earlier version takes the whole message for its id.
#[tenure_testkit::test]
async fn a_waiter_of_an_earlier_version_is_told_nothing_but_its_id() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").acquire().await.unwrap();
    let mut redis = server.client();
    let earlier = "tenure:00000000000000000000000000000007:1:30000";
    redis.command(&["ZADD", QUEUE, "1", earlier]);
    let mut ear = server.client();
    ear.subscribe(&[WAKE]);
    guard.release().await.unwrap();
    assert_eq!(ear.next_message(PATIENCE).unwrap().payload, earlier);
}

/// Nobody renews a detached lease, so it must not end with the offer.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_detached_at_once_lasts_for_its_ttl() {
    let mut pair = Pair::start().await;
    let lease = pair.granted_by_message().await.detach().unwrap();
    pair.proxy.release_requests();
    let mut redis = pair.server.client();
    assert!(
        soon(async || redis.command(&["PTTL", "n"]).int() > 2_000).await,
        "it ends with the offer"
    );
    assert_eq!(redis.command(&["GET", "n"]).text(), lease.id().as_str());
}

/// Whoever has the lock is alone here.
fn check_greater(last: &Mutex<u64>, fence: u64) {
    let mut last = last.try_lock().expect("two have the lock");
    assert!(fence > *last, "{fence} after {last}");
    *last = fence;
}

/// Each grant has a greater fence than the one before, also past waiters that take no offer.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_from_process_to_process() {
    let server = RedisServer::start();
    let last = Arc::new(Mutex::new(0));
    let mut tasks = Vec::new();
    for number in 0..8 {
        let builder = Tenure::builder(server.url()).hand_off(number % 2 == 0);
        let tenure = builder.connect().await.unwrap();
        for _ in 0..2 {
            let (tenure, last) = (tenure.clone(), Arc::clone(&last));
            tasks.push(tokio::spawn(async move {
                for _ in 0..25 {
                    let guard = tenure.lock("n").ttl(ms(10_000)).acquire().await.unwrap();
                    check_greater(&last, guard.fence().get());
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    let mut redis = server.client();
    redis.command(&[
        "ZADD",
        QUEUE,
        "1",
        "tenure:00000000000000000000000000000007:001:200",
    ]);
    for task in tasks {
        task.await.unwrap();
    }
    check_nothing_left(&server, "n");
}

/// Without hand-off, the reply to a release passes the lock to the next caller of the process. If
/// that reply is lost, the caller must not wait for the end of the lease.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_that_passed_the_lock_on_delays_nobody() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let builder = Tenure::builder(proxy.url()).hand_off(false);
    let tenure = builder.connect().await.unwrap();
    let guard = tenure.lock("n").acquire().await.unwrap();
    let next = tenure.clone();
    let waiting = tokio::spawn(async move { next.lock("n").acquire().await.unwrap() });
    place(&mut server.client()).await;
    proxy.reset_after_request_with(b"EVALSHA");
    let begun = Instant::now();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();
    // A third of the ttl would be ten seconds.
    check_within(begun, ms(8_000));
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_nothing_left(&server, "n");
}

/// Without hand-off, one request releases the lock and grants it to the next caller.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_hand_off_the_reply_to_a_release_passes_the_lock_on() {
    let server = RedisServer::start();
    let builder = Tenure::builder(server.url()).hand_off(false);
    let tenure = builder.connect().await.unwrap();
    let guard = tenure.lock("n").acquire().await.unwrap();
    let fence = guard.fence();
    let next = tenure.clone();
    let waiting = tokio::spawn(async move { next.lock("n").acquire().await.unwrap() });
    place(&mut server.client()).await;
    server.reset_stats();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(guard.fence() > fence);
    assert!(guard.remaining() > ms(2_000), "it is a whole lease");
    assert_eq!(server.command_calls("evalsha"), 1, "one request");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_nothing_left(&server, "n");
}
