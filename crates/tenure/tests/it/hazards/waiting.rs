//! Messages, herds, dead holders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::{Released, Tenure};
use tenure_testkit::{ClientKind, Proxy, RedisServer};
use tokio::task::JoinHandle;

use crate::stage::{ms, soon};
use crate::verdict::{check_nothing_left, check_within};

/// A caller that waits for the lock, holds it for a moment and lets go. Answers when it got it.
fn waiter(tenure: &Tenure, hold: Duration) -> JoinHandle<Instant> {
    let tenure = tenure.clone();
    tokio::spawn(async move {
        let guard = tenure.lock("n").acquire().await.unwrap();
        let granted = Instant::now();
        tokio::time::sleep(hold).await;
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        granted
    })
}

/// The lock is released after the waiter found it busy and before it hears messages.
#[tenure_testkit::test]
async fn h33_a_release_before_the_subscription_is_not_missed() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let holder = Tenure::connect(server.url()).await.unwrap();
    let tenure = Tenure::connect(proxy.url()).await.unwrap();
    let guard = holder.lock("n").acquire().await.unwrap();
    // Each request takes this long, and the connection that hears messages needs several.
    proxy.delay_requests(ms(150));
    let waiting = waiter(&tenure, ms(0));
    assert!(soon(async || tenure.stats().busy == 1).await);
    guard.release().await.unwrap();
    let released = Instant::now();
    waiting.await.unwrap();
    // The fallback would be ten seconds.
    check_within(released, ms(5_000));
    assert_eq!(tenure.stats().woken_by_message, 0, "released in the window");
}

/// Ends all subscribed connections again and again, until it is dropped.
struct Killer {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Killer {
    fn start(server: &Arc<RedisServer>, every: Duration) -> Self {
        let (server, stop) = (Arc::clone(server), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut killed = 0;
            while !stopped.load(Ordering::Relaxed) {
                killed += server.kill_clients(ClientKind::Pubsub);
                std::thread::sleep(every);
            }
            killed
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn killed(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h34_waiters_get_their_turn_while_their_connection_is_killed() {
    let server = Arc::new(RedisServer::start());
    let clients = [
        Tenure::connect(server.url()).await.unwrap(),
        Tenure::connect(server.url()).await.unwrap(),
    ];
    let guard = clients[0].lock("n").acquire().await.unwrap();
    let waiting: Vec<_> = (0..10)
        .map(|number| waiter(&clients[number % 2], ms(150)))
        .collect();
    tokio::time::sleep(ms(200)).await;
    let killer = Killer::start(&server, ms(100));
    let begun = Instant::now();
    guard.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap();
    }
    // Ten holds of 150 ms. One missed message would cost ten seconds.
    check_within(begun, ms(8_000));
    let killed = killer.killed();
    assert!(killed > 5, "only {killed} connections were killed");
    check_nothing_left(&server, "n");
}

/// Once killed and left in peace, the waiter hears messages again.
#[tenure_testkit::test]
async fn h34_a_waiter_hears_again_after_its_connection_was_killed() {
    let server = RedisServer::start();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = holder.lock("n").acquire().await.unwrap();
    let waiting = waiter(&tenure, ms(0));
    assert!(soon(async || server.kill_clients(ClientKind::Pubsub) == 1).await);
    let mut redis = server.client();
    let mut listens = || {
        let listening = redis.command(&["PUBSUB", "NUMSUB", "tenure:wake:{n}"]);
        listening.array()[1].int() == 1
    };
    assert!(soon(async || listens()).await, "subscribed again");
    // It asks once more when it hears again.
    tokio::time::sleep(ms(1_000)).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    waiting.await.unwrap();
    check_within(released, ms(5_000));
    assert_eq!(tenure.stats().woken_by_message, 1);
}

/// The server tells nobody that a key has ended, and with many such keys not even its own events
/// come in time.
#[tenure_testkit::test]
async fn h35_the_end_of_a_lease_needs_no_message() {
    let server = RedisServer::start();
    let fill = "for i = 1, 20000 do redis.call('SET', 'k' .. i, 1, 'PX', 60000) end";
    server.client().command(&["EVAL", fill, "0"]);
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let dead = Tenure::connect(server.url()).await.unwrap();
    let lease = dead.lock("n").ttl(ms(1_500)).acquire().await.unwrap();
    let held_since = Instant::now();
    let _given_away = lease.detach().unwrap();
    let granted = waiter(&tenure, ms(0)).await.unwrap();
    let waited = granted - held_since;
    assert!(waited > ms(1_000) && waited < ms(8_000), "{waited:?}");
}

const HERD: u64 = 1_000;
const OTHERS: u64 = 20;

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h36_a_herd_asks_twice_per_grant_and_only_its_head_asks() {
    let server = RedisServer::start();
    let herd = Tenure::connect(server.url()).await.unwrap();
    let others = Tenure::connect(server.url()).await.unwrap();
    let guard = herd.lock("n").acquire().await.unwrap();
    let mut waiting: Vec<_> = (0..HERD).map(|_| waiter(&herd, ms(0))).collect();
    waiting.extend((0..OTHERS).map(|_| waiter(&others, ms(0))));
    tokio::time::sleep(ms(500)).await;
    // Found busy, subscribed, asked once more; the others stand behind and ask nobody. While there
    // is no line yet, each of the two threads may ask for a task of its own.
    for client in [&herd, &others] {
        assert!(
            (2..=4).contains(&client.stats().busy),
            "{:?}",
            client.stats()
        );
    }

    server.reset_stats();
    guard.release().await.unwrap();
    let begun = Instant::now();
    for waiting in waiting {
        waiting.await.unwrap();
    }
    check_within(begun, ms(20_000));
    let grants = HERD + OTHERS;
    let asked = [&herd, &others].map(|client| client.stats().busy + client.stats().acquired);
    let asked: u64 = asked.iter().sum();
    assert!(
        asked <= 2 * grants + 10,
        "{asked} questions for {grants} grants"
    );
    // The same by the server's account: two questions and one release for each, and what the
    // clients wrote about themselves, at most twice a second.
    let calls = server.command_calls("evalsha");
    let records = 4 * (begun.elapsed().as_secs() + 2) * 2;
    assert!(
        calls <= 3 * grants + 10 + records,
        "{calls} calls for {grants} grants"
    );
    check_nothing_left(&server, "n");
}

#[tenure_testkit::test]
async fn h35_a_foreign_holder_that_says_nothing_is_noticed_within_a_second() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    redis.command(&["SET", "n", "theirs", "NX", "PX", "60000"]);
    let waiting = waiter(&tenure, ms(0));
    tokio::time::sleep(ms(1_300)).await;
    redis.command(&["DEL", "n"]);
    let released = Instant::now();
    waiting.await.unwrap();
    check_within(released, ms(2_000));
}

#[tenure_testkit::test]
async fn h36_waiting_behind_a_lease_asks_once_per_third_of_its_ttl() {
    let server = RedisServer::start();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = holder.lock("n").ttl(ms(3_000)).acquire().await.unwrap();
    server.reset_stats();
    let waiting = waiter(&tenure, ms(0));
    tokio::time::sleep(ms(3_300)).await;
    // Two to begin with, then one a second.
    let asked = tenure.stats().busy;
    assert!((4..=6).contains(&asked), "asked {asked} times");
    // Besides: the holder's renewals, and two records of two scripts each.
    let calls = server.command_calls("evalsha");
    assert!(calls <= 6 + 4 + 8, "{calls} calls");
    guard.release().await.unwrap();
    waiting.await.unwrap();
}

/// Puts so many waiters before all others, of whom nothing will ever be heard.
fn stand_before(server: &RedisServer, dead: usize) {
    let mut redis = server.client();
    for place in 1..=dead {
        let (score, waiter) = (place.to_string(), format!("dead{place}:1:1000"));
        redis.command(&["ZADD", "tenure:queue:{n}", &score, &waiter]);
    }
}

/// Where many wait, those behind only look when the lease should have ended. That must do, should the
/// holder and all who stand before them have died at once.
#[tenure_testkit::test]
async fn h36_behind_the_dead_a_lock_is_taken_when_its_lease_ends() {
    let server = RedisServer::start();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    stand_before(&server, 5);
    let begun = Instant::now();
    let guard = holder.lock("n").ttl(ms(3_000)).acquire().await.unwrap();
    let lease = guard.detach().unwrap();
    waiter(&tenure, ms(0)).await.unwrap();
    assert!(begun.elapsed() >= ms(2_900), "before its lease ended");
    check_within(begun, ms(10_000));
    // Twice when it came. Then it had an eye on the lease, and asked when that was over.
    assert_eq!(tenure.stats().busy, 2, "{lease}: {:?}", tenure.stats());
}

/// Those before it went away, and it does not know that it is the first by now. It hears of it.
#[tenure_testkit::test]
async fn h36_whoever_was_behind_hears_that_the_lock_is_offered() {
    let server = RedisServer::start();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    stand_before(&server, 5);
    let guard = holder.lock("n").ttl(ms(9_000)).acquire().await.unwrap();
    let waiting = waiter(&tenure, ms(0));
    // After a third of the ttl. The next time would be when the lease should have ended.
    while tenure.stats().woken_by_timer == 0 {
        tokio::time::sleep(ms(5)).await;
    }
    server
        .client()
        .command(&["ZREMRANGEBYRANK", "tenure:queue:{n}", "0", "4"]);
    let released = Instant::now();
    guard.release().await.unwrap();
    waiting.await.unwrap();
    check_within(released, ms(4_000));
    // The message may overtake the reply to its look, and then wakes nobody.
    assert_eq!(tenure.stats().woken_by_timer, 1, "{:?}", tenure.stats());
}

/// A user that may use no channel at all.
fn server_without_channels() -> RedisServer {
    let rules = "on >pw ~* resetchannels +@all";
    RedisServer::builder().user("deaf", rules).start()
}

#[tenure_testkit::test]
async fn h34_without_its_channel_waiting_becomes_looking() {
    let server = server_without_channels();
    let url = format!("redis://deaf:pw@{}", server.addr());
    let holder = Tenure::connect(&url).await.unwrap();
    let tenure = Tenure::connect(&url).await.unwrap();
    let guard = holder.lock("n").acquire().await.unwrap();
    let waiting: Vec<_> = (0..5).map(|_| waiter(&tenure, ms(20))).collect();
    assert!(soon(async || tenure.stats().messages_refused > 0).await);
    let busy = tenure.stats().busy;
    assert!(soon(async || tenure.stats().busy > busy).await);
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    for waiting in waiting {
        waiting.await.unwrap();
    }
    check_within(released, ms(5_000));
    assert!(tenure.stats().woken_by_poll > 0, "{:?}", tenure.stats());
    check_nothing_left(&server, "n");
}

/// The waiter may listen, but the holder may not tell: the fallback finds the offer.
#[tenure_testkit::test]
async fn h34_a_release_that_may_not_tell_still_releases() {
    let server = server_without_channels();
    let deaf = format!("redis://deaf:pw@{}", server.addr());
    let holder = Tenure::connect(deaf).await.unwrap();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = holder.lock("n").ttl(ms(1_500)).acquire().await.unwrap();
    let waiting = waiter(&tenure, ms(0));
    assert!(soon(async || tenure.stats().busy == 2).await);
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    waiting.await.unwrap();
    check_within(released, ms(3_000));
}
