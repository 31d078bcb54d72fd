//! Waiters in processes of their own, which are killed or stopped while they wait.

use std::process::Command;
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure_testkit::{ClientProcess, RedisServer, eventually};
use tokio::task::JoinSet;

use crate::stage::ms;
use crate::verdict::{check_nothing_left, check_within};

const URL: &str = "TENURE_TEST_WAIT_AT";
const CLIENTS: &str = "TENURE_TEST_WAIT_CLIENTS";
const QUEUE: &str = "tenure:queue:{n}";
const ALIVE: &str = "tenure:alive:{n}";
/// Until processes have started on a busy machine, and for whatever must happen at all.
const PATIENCE: Duration = ms(60_000);

/// The program of those who wait: so many clients, each of which is one place in the queue. Says when
/// one has the lock. Does nothing unless started by the tests below.
#[test]
fn waiting_program() {
    let (Ok(url), Ok(clients)) = (std::env::var(URL), std::env::var(CLIENTS)) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut waiting = JoinSet::new();
        for number in 0..clients.parse::<usize>().unwrap() {
            let tenure = Tenure::connect(&url).await.unwrap();
            waiting.spawn(async move {
                let guard = tenure.lock("n").acquire().await.unwrap();
                println!("\nheld {number}");
                guard.release().await.unwrap();
            });
        }
        while waiting.join_next().await.is_some() {}
    });
}

fn start(url: &str, clients: usize) -> ClientProcess {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "dead_waiters::waiting_program", "--nocapture"])
        .env(URL, url)
        .env(CLIENTS, clients.to_string());
    ClientProcess::spawn(&command)
}

fn places(server: &RedisServer) -> Vec<String> {
    let places = server.client().command(&["ZRANGE", QUEUE, "0", "-1"]);
    let places = places.array().iter();
    places.map(|place| place.text().to_owned()).collect()
}

/// Until so many stand in the queue.
#[track_caller]
fn stand(server: &RedisServer, count: usize) -> Vec<String> {
    let mut redis = server.client();
    let stand = || usize::try_from(redis.command(&["ZCARD", QUEUE]).int()) == Ok(count);
    assert!(
        eventually(PATIENCE, stand),
        "{} stand",
        places(server).len()
    );
    places(server)
}

/// Waits until none of these counts as living any more, by the server's own clock.
#[track_caller]
fn wait_until_dead(server: &RedisServer, places: &[String]) {
    let mut redis = server.client();
    let are_dead = || {
        let time = redis.command(&["TIME"]);
        let [seconds, micros] = [0, 1].map(|at| time.array()[at].text().parse::<u64>().unwrap());
        let now_ms = seconds * 1_000 + micros / 1_000;
        places.iter().all(|place| {
            let until = redis.command(&["ZSCORE", ALIVE, place]);
            until.is_nil() || until.text().parse::<u64>().unwrap() < now_ms
        })
    };
    assert!(
        eventually(ms(30_000), are_dead),
        "they still count as living"
    );
}

/// The waiter that a message names.
fn waiter_in(message: &str) -> String {
    message.split(' ').next().unwrap().to_owned()
}

async fn connect(url: &str) -> Tenure {
    Tenure::connect(url).await.unwrap()
}

/// Once they count as dead, nothing waits for them: neither living waiters, nor a release that nobody
/// waits for.
async fn the_dead_slow_nobody_down(layout: &str) {
    const DEAD: usize = 8;
    const TURNS: usize = 20;
    let server = RedisServer::start();
    let url = format!("{}?layout={layout}", server.url());
    let clients = [connect(&url).await, connect(&url).await];
    let guard = clients[0].lock("n").acquire().await.unwrap();
    let fleet = [start(&url, DEAD / 2), start(&url, DEAD / 2)];
    let dead = stand(&server, DEAD);
    fleet.iter().for_each(ClientProcess::kill);
    wait_until_dead(&server, &dead);

    let mut ear = server.client();
    ear.subscribe(&["tenure:wake:{n}"]);
    let mut turns = JoinSet::new();
    for client in clients {
        turns.spawn(async move {
            for _ in 0..TURNS {
                let guard = client.lock("n").acquire().await.unwrap();
                // Until the other one waits again.
                tokio::time::sleep(ms(10)).await;
                guard.release().await.unwrap();
            }
        });
    }
    stand(&server, DEAD + 2);
    let begun = Instant::now();
    guard.release().await.unwrap();
    while let Some(done) = turns.join_next().await {
        done.unwrap();
    }
    // One offer to each of the dead would take 16 s, and brief ones four.
    check_within(begun, ms(3_900));
    let mut told = 0;
    while let Some(message) = ear.next_message(ms(100)) {
        let offered_to = waiter_in(&message.payload);
        assert!(!dead.contains(&offered_to), "offered to the dead");
        told += 1;
    }
    assert!(told >= TURNS, "only {told} hand-overs");
    check_nothing_left(&server, "n");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_slow_nobody_down_native() {
    the_dead_slow_nobody_down("native").await;
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_slow_nobody_down_redisson() {
    the_dead_slow_nobody_down("redisson").await;
}

/// They have just died, and nobody can know that yet but by their connections. Each place is that of a
/// client of its own.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_has_just_died_is_outlived_in_a_moment() {
    const PROCESSES: usize = 4;
    const FLEET: usize = 1_000;
    let server = RedisServer::builder().config("maxclients", "10000").start();
    let url = server.url();
    let (holder, living) = (connect(&url).await, connect(&url).await);
    let guard = holder.lock("n").acquire().await.unwrap();
    let fleet: Vec<_> = (0..PROCESSES)
        .map(|_| start(&url, FLEET / PROCESSES))
        .collect();
    let dead = stand(&server, FLEET);
    let waiting = tokio::spawn(async move { living.lock("n").acquire().await.unwrap() });
    stand(&server, FLEET + 1);
    fleet.iter().for_each(ClientProcess::kill);
    let mut redis = server.client();
    let wake = ["PUBSUB", "NUMSUB", "tenure:wake:{n}"];
    let alone = || redis.command(&wake).array()[1].int() <= 1;
    assert!(eventually(PATIENCE, alone), "the server still knows them");

    let released = Instant::now();
    guard.release().await.unwrap();
    let offered = holder.lock("n").holder().await.unwrap();
    let guard = waiting.await.unwrap();
    // Half a second for the one that was offered the lock, and a bit until the living one looks.
    check_within(released, ms(5_000));
    println!("the living one had it after {:?}", released.elapsed());
    if let Some(offered) = offered.filter(|it| dead.contains(&it.lease.as_str().to_owned())) {
        let left = offered.remaining.unwrap();
        assert!(left <= ms(500), "kept for one that has died: {left:?}");
    }

    wait_until_dead(&server, &dead);
    guard.release().await.unwrap();
    assert!(redis.command(&["GET", "n"]).is_nil(), "offered to the dead");
    assert_eq!(places(&server), Vec::<String>::new());
}

/// A process that stands still for longer than it is believed to live loses its place; it goes on, and
/// takes another.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_process_is_passed_over_and_comes_back() {
    let server = RedisServer::start();
    let url = server.url();
    let (holder, other) = (connect(&url).await, connect(&url).await);
    let guard = holder.lock("n").acquire().await.unwrap();
    let paused = start(&url, 1);
    let first = stand(&server, 1).remove(0);
    let second = tokio::spawn(async move { other.lock("n").acquire().await.unwrap() });
    stand(&server, 2);
    paused.pause();
    wait_until_dead(&server, std::slice::from_ref(&first));

    let mut ear = server.client();
    ear.subscribe(&["tenure:wake:{n}"]);
    guard.release().await.unwrap();
    let told = waiter_in(&ear.next_message(PATIENCE).unwrap().payload);
    assert_ne!(told, first, "offered to one that stands still");
    let guard = second.await.unwrap();
    assert_eq!(guard.lease_id().as_str(), told);

    paused.resume();
    assert_eq!(stand(&server, 1), [first], "it does not wait any more");
    guard.release().await.unwrap();
    while paused.expect_line(PATIENCE) != "held 0" {}
    paused.wait_for_success(PATIENCE);
}

/// What a client said of itself outlives it by minutes; whether it waits, the lock's own queue says.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_died_is_not_listed() {
    let server = RedisServer::start();
    let url = server.url();
    let holder = connect(&url).await;
    let guard = holder.lock("n").acquire().await.unwrap();
    let waiters = async || {
        let listing = holder.list(|_| true).await.unwrap();
        let lock = listing.locks.iter().find(|it| it.name.as_str() == "n");
        lock.map_or(0, |lock| lock.waiters.len())
    };
    let process = start(&url, 3);
    let dead = stand(&server, 3);
    let begun = Instant::now();
    while waiters().await < 3 {
        check_within(begun, PATIENCE);
        tokio::time::sleep(ms(20)).await;
    }
    process.kill();
    let killed = Instant::now();
    wait_until_dead(&server, &dead);
    assert_eq!(waiters().await, 0);
    // Whether they have died is known after six seconds.
    check_within(killed, ms(10_000));
    let records = server.client().command(&["ZCARD", "tenure:clients"]);
    assert!(records.int() >= 3, "their records are still there");
    guard.release().await.unwrap();
}

/// The only query is whether there are waiters.
#[tenure_testkit::test]
async fn a_release_that_nobody_waits_for_looks_at_the_queue_once() {
    let server = RedisServer::start();
    let tenure = connect(&server.url()).await;
    drop(tenure.lock("n").acquire().await.unwrap());
    check_nothing_left(&server, "n");
    server.reset_stats();
    for _ in 0..10 {
        let guard = tenure.lock("n").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    // One looks for waiters, and one for a fence counter of the lock.
    assert_eq!(server.command_calls("exists"), 20);
    for command in [
        "zrange",
        "zscore",
        "zcard",
        "zrem",
        "zadd",
        "zrangebyscore",
        "publish",
    ] {
        assert_eq!(server.command_calls(command), 0, "{command}");
    }
}

/// A reader that comes after a writer waits for it, but only while it lives.
#[tenure_testkit::test]
async fn a_dead_writer_stops_readers_for_a_moment_only() {
    let server = RedisServer::start();
    let (a, b) = (
        Tenure::connect(server.url()).await.unwrap(),
        Tenure::connect(server.url()).await.unwrap(),
    );
    let first = a.lock("n").shared().acquire().await.unwrap();
    let writer = start(&server.url(), 1);
    let places = stand(&server, 1);
    assert!(b.lock("n").shared().try_acquire().await.unwrap().is_none());
    writer.kill();
    wait_until_dead(&server, &places);
    let guard = b.lock("n").shared().try_acquire().await.unwrap();
    assert_eq!(guard.unwrap().fence(), first.fence());
}
