//! Fences where the server's data goes back while connections live, where greetings are slow, and where
//! many are handed on in a short time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Layout, Tenure};
use tenure_testkit::{ClockShim, Pair, Proxy, RedisServer, Sentinels, eventually};

use crate::stage::ms;

const SOON: Duration = Duration::from_secs(20);

/// The fence of one grant.
async fn fence(tenure: &Tenure, name: &str) -> u64 {
    let guard = tenure.lock(name).acquire().await.unwrap();
    let fence = guard.fence().get();
    guard.release().await.unwrap();
    fence
}

/// What the server's clock shows, in microseconds.
fn clock(server: &RedisServer) -> u64 {
    let time = server.client().command(&["TIME"]);
    let part = |at: usize| time.array()[at].text().parse::<u64>().unwrap();
    part(0) * 1_000_000 + part(1)
}

/// Waits until the clock of the server that takes over has passed the millisecond of this fence: fences
/// of two servers are compared to the millisecond.
fn pass_millisecond_of(fence: u64, server: &RedisServer) {
    assert!(eventually(SOON, || clock(server) / 1_000 > fence / 1_000));
}

fn follow(server: &RedisServer, master: &RedisServer) {
    let port = master.port().to_string();
    let mut redis = server.client();
    redis.command(&["REPLICAOF", "127.0.0.1", &port]);
    assert!(server.wait_for_master(SOON));
}

fn follow_nobody(server: &RedisServer) {
    server.client().command(&["REPLICAOF", "NO", "ONE"]);
}

/// Does something while one slow script after the other runs on the server: each answer takes up to the
/// length of one, so that nobody knows when within that time the server told its clock.
fn stalled<T>(server: &RedisServer, work: impl Future<Output = T>) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(server.busy_script(250).wait());
            }
        });
        let handle = tokio::runtime::Handle::current();
        let worked = tokio::task::block_in_place(|| handle.block_on(work));
        done.store(true, Ordering::Relaxed);
        worked
    })
}

/// The server gets an older copy of its data and keeps the client's connection: nothing tells the client.
async fn check_growth_though_data_goes_back(layout: Layout) {
    let (server, copy) = (RedisServer::start(), RedisServer::start());
    let builder = Tenure::builder(server.url()).layout(layout);
    let tenure = builder.connect().await.unwrap();
    for _ in 0..3 {
        fence(&tenure, "n").await;
    }
    follow(&copy, &server);
    follow_nobody(&copy);
    let mut last = 0;
    for _ in 0..20 {
        last = fence(&tenure, "n").await;
    }
    let before = tenure.stats().connections;
    follow(&server, &copy);
    follow_nobody(&server);
    pass_millisecond_of(last, &server);
    let next = fence(&tenure, "n").await;
    assert!(next > last, "{next} after {last}");
    assert_eq!(tenure.stats().connections, before, "a new connection");
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn fences_grow_though_the_data_goes_back_under_a_connection() {
    check_growth_though_data_goes_back(Layout::Native).await;
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn fences_grow_though_the_data_goes_back_under_a_connection_in_redissons_layout() {
    check_growth_though_data_goes_back(Layout::Redisson).await;
}

/// A proxy leads to a copy that lags behind, from one command to the next: nothing tells the client.
async fn check_growth_though_the_server_is_swapped(layout: Layout) {
    let pair = Pair::start(&RedisServer::builder());
    let proxy = Proxy::start_swappable(pair.primary().addr());
    let builder = Tenure::builder(format!("redis://{}/", proxy.addr())).layout(layout);
    let tenure = builder.connect().await.unwrap();
    for _ in 0..3 {
        fence(&tenure, "n").await;
    }
    // On a crowded machine a command may be under way when the servers are swapped: then its connection is
    // reset, and the client notices.
    let (mut unnoticed, mut round) = (0, 0);
    while unnoticed < 3 {
        round += 1;
        assert!(round < 30, "the client notices every time");
        pair.set_lag(Duration::from_secs(60));
        let mut last = 0;
        for _ in 0..20 {
            last = fence(&tenure, "n").await;
        }
        let successor = pair.promote();
        pass_millisecond_of(last, successor);
        let moved = proxy.swap_target(successor.addr());
        let next = fence(&tenure, "n").await;
        assert!(next > last, "round {round}: {next} after {last}");
        unnoticed += usize::from(moved > 0);
        tokio::task::block_in_place(|| pair.follow_new());
    }
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn fences_grow_though_the_server_is_swapped_under_a_connection() {
    check_growth_though_the_server_is_swapped(Layout::Native).await;
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn fences_grow_though_the_server_is_swapped_under_a_connection_in_redissons_layout() {
    check_growth_though_the_server_is_swapped(Layout::Redisson).await;
}

/// A client that had to wait for its greeting does not know when the server told its clock. Its fences
/// must not be ahead of that clock: a promoted replica would mint lower ones.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn no_fence_is_ahead_of_the_servers_clock_after_a_slow_greeting() {
    let sentinels = Sentinels::start();
    let connecting = Tenure::connect(sentinels.url());
    let tenure = stalled(sentinels.master(), connecting).unwrap();
    for _ in 0..10 {
        let fence = fence(&tenure, "n").await;
        let clock = clock(sentinels.master());
        assert!(fence <= clock, "{} ahead", fence - clock);
    }
}

/// As many turns as can be had, so that fences are used up fast; then the counter is lost.
async fn check_growth_after_many_turns(layout: Layout, counter: &str) {
    const TASKS: usize = 16;
    let server = RedisServer::start();
    let builder = Tenure::builder(server.url()).layout(layout);
    let builder = builder.hand_off_turns(10_000).hand_off_time(ms(10));
    let tenure = builder.connect().await.unwrap();
    let other = Tenure::builder(server.url()).layout(layout);
    let other = other.hand_off_turns(10_000).connect().await.unwrap();
    let clients = [&tenure, &other].into_iter().cycle().take(TASKS);
    let tasks = clients.cloned().map(|tenure| {
        tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..400 {
                last = fence(&tenure, "n").await.max(last);
            }
            last
        })
    });
    let mut last = 0;
    for task in tasks.collect::<Vec<_>>() {
        last = task.await.unwrap().max(last);
    }
    let handed_off = tenure.stats().handed_off + other.stats().handed_off;
    assert!(handed_off > 100, "only {handed_off} turns were handed off");
    let now = clock(&server);
    assert!(last <= now, "{} ahead of the clock", last - now);
    let mut redis = server.client();
    let end = redis.command(&["PEXPIRETIME", counter]).int();
    assert!(
        end == -1 || end.unsigned_abs() * 1_000 > last,
        "the counter ends {end} before the clock has passed {last}"
    );
    assert_eq!(redis.command(&["DEL", counter]).int(), 1);
    let next = fence(&tenure, "n").await;
    assert!(next > last, "{next} after {last}");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_though_the_counter_is_lost_after_many_turns() {
    check_growth_after_many_turns(Layout::Native, "tenure:fences").await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_though_the_counter_is_lost_after_many_turns_in_redissons_layout() {
    check_growth_after_many_turns(Layout::Redisson, "redisson_lock_token:{n}").await;
}

/// Fences that were handed on are known to the counter when the lock is free: they grow although the
/// clock is set back.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_that_were_handed_on_are_counted() {
    let clock = ClockShim::compile().expect("a C compiler");
    let server = RedisServer::builder().clock(clock.clone()).start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut last = 0;
    let tasks = (0..8).map(|_| {
        let tenure = tenure.clone();
        tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..200 {
                last = fence(&tenure, "n").await.max(last);
            }
            last
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        last = task.await.unwrap().max(last);
    }
    assert!(tenure.stats().handed_off > 50);
    clock.step_back(Duration::from_secs(3_600));
    for _ in 0..3 {
        let next = fence(&tenure, "n").await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

/// The lease of a process that hands it on ends early by the server's clock, and the clock is then set
/// back: nobody else gets a fence that was handed on.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fence_is_given_twice_though_a_lease_ends_early() {
    let clock = ClockShim::compile().expect("a C compiler");
    let server = RedisServer::builder().clock(clock.clone()).start();
    // On a crowded machine the next waiter may come late.
    let a = Tenure::builder(server.url()).hand_off_time(ms(1_000));
    let a = a.connect().await.unwrap();
    let b = Tenure::connect(server.url()).await.unwrap();
    // A lock that its waiters get from the store may be handed on among them.
    let held_by_b = b.lock("n").acquire().await.unwrap();
    let fences = Arc::new(Mutex::new(Vec::new()));
    let waiting = (0..3).map(|_| {
        let (a, fences) = (a.clone(), Arc::clone(&fences));
        tokio::spawn(async move {
            let guard = a.lock("n").acquire().await.unwrap();
            let mut fences = fences.lock().unwrap();
            fences.push(guard.fence().get());
            (fences.len() == 3).then_some(guard)
        })
    });
    let waiting: Vec<_> = waiting.collect();
    let place = || {
        server
            .client()
            .command(&["ZCARD", "tenure:queue:{n}"])
            .int()
            == 1
    };
    assert!(eventually(SOON, place));
    held_by_b.release().await.unwrap();
    let mut last_guard = None;
    for task in waiting {
        last_guard = task.await.unwrap().or(last_guard);
    }
    assert!(a.stats().handed_off >= 1, "nothing was handed on");
    clock.step_forward(Duration::from_secs(60));
    let is_free = || server.client().command(&["GET", "n"]).is_nil();
    assert!(eventually(SOON, is_free));
    clock.step_back(Duration::from_secs(120));
    let next = fence(&b, "n").await;
    let used = fences.lock().unwrap().clone();
    assert!(
        used.iter().all(|used| next > *used),
        "{next} after {used:?}"
    );
    drop(last_guard);
}

/// When a counter ends, the clock stands in for it: it must have passed the last fence long ago.
#[tenure_testkit::test]
async fn a_counter_outlasts_its_last_fence_by_a_day() {
    let server = RedisServer::start();
    let mut redis = server.client();
    for ahead_s in [0, 3_600] {
        let tenure = Tenure::connect(server.url()).await.unwrap();
        // Ahead of the clock, as it is after the clock was set back.
        let id = format!("{}-0", clock(&server) / 1_000 + ahead_s * 1_000);
        redis.command(&["DEL", "tenure:fences"]);
        redis.command(&["XADD", "tenure:fences", "MAXLEN", "0", &id, "f", ""]);
        let last = fence(&tenure, "n").await;
        let end_ms = redis.command(&["PEXPIRETIME", "tenure:fences"]).int();
        let day_ms = 24 * 60 * 60 * 1_000;
        assert!(
            end_ms.unsigned_abs() + 1 >= last / 1_000 + day_ms,
            "{end_ms} after {last}"
        );
    }
}

/// A counter that ended while the lock was busy is not begun anew without an end.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn no_counter_is_left_without_an_end() {
    let server = RedisServer::start();
    let (a, b) = (
        Tenure::connect(server.url()).await.unwrap(),
        Tenure::connect(server.url()).await.unwrap(),
    );
    fence(&b, "n").await; // From now on it asks by a transaction.
    let guard = a.lock("n").acquire().await.unwrap();
    let mut redis = server.client();
    for counter in ["tenure:fences", "tenure:fences:{n}"] {
        redis.command(&["DEL", counter]);
    }
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    assert!(eventually(SOON, || {
        let keys = redis.command(&["KEYS", "tenure:fence*"]);
        let mut keys = keys.array().iter();
        keys.all(|key| redis.command(&["PTTL", key.text()]).int() > 0)
    }));
    drop(guard);
}

/// More than a thousand fences in one millisecond of a clock that was set back.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn fences_grow_while_the_clock_that_was_set_back_catches_up() {
    let clock = ClockShim::compile().expect("a C compiler");
    let server = RedisServer::builder().clock(clock.clone()).start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut last = fence(&tenure, "n").await;
    clock.step_back(Duration::from_secs(10));
    for turn in 0..2_500 {
        let next = fence(&tenure, "n").await;
        assert!(next > last, "turn {turn}: {next} after {last}");
        last = next;
    }
    clock.step_forward(Duration::from_secs(20));
    let next = fence(&tenure, "n").await;
    assert!(next > last, "{next} after {last}");
}
