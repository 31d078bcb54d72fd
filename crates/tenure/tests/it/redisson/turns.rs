//! Whose turn it is when both wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use tenure::{Layout, Tenure};
use tenure_testkit::{RedisServer, Redisson};

use super::{java, ours};
use crate::lua::{eval, redisson};
use crate::stage::{ms, soon};
use crate::verdict::check_within;

const ONE: &str = "00000000-0000-8000-8000-000000000001:100030000";
const TWO: &str = "00000000-0000-8000-8000-000000000002:100030000";
const QUEUE: &str = "tenure:queue:{n}";
const ALIVE: &str = "tenure:alive:{n}";
const WAKE: &str = "tenure:wake:{n}";
const CHANNEL: &str = "redisson_lock__channel:{n}";
/// By chance it is Redisson's turn at every fourth release. That it is not in so many has odds of one
/// in 10^24.
const RELEASES: usize = 200;

/// Keeps a lock in use by waiters of ours, until it is stopped.
async fn contend(server: &RedisServer, stop: &Arc<AtomicBool>, turns: &Arc<AtomicUsize>) {
    for _ in 0..2 {
        let client = ours(server).await;
        for _ in 0..3 {
            let (client, stop, turns) = (client.clone(), Arc::clone(stop), Arc::clone(turns));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = client.lock("n").acquire().await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                    turns.fetch_add(1, Ordering::Relaxed);
                    guard.release().await.unwrap();
                }
            });
        }
    }
}

/// Our waiters stand in a queue that Java's do not know. They must not shut them out.
#[tenure_testkit::test]
async fn java_gets_its_turn_while_ours_wait() {
    let server = RedisServer::start();
    let (stop, turns) = (Arc::default(), Arc::default());
    contend(&server, &stop, &turns).await;
    assert!(soon(async || turns.load(Ordering::Relaxed) > 10).await);
    let mut java = java(&server);
    let java_turns = tokio::task::spawn_blocking(move || {
        let turn =
            |java: &mut Redisson| java.lock_within("n", ms(20_000)) && java.unlock("n").is_some();
        (0..5).take_while(|_| turn(&mut java)).count()
    });
    assert_eq!(java_turns.await.unwrap(), 5);
    stop.store(true, Ordering::Relaxed);
}

#[tenure_testkit::test]
async fn we_get_our_turn_while_javas_wait() {
    let server = RedisServer::start();
    let stop: Arc<AtomicBool> = Arc::default();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (mut java, stop) = (java(&server), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert!(java.lock_within("n", ms(20_000)), "Java starved");
                    std::thread::sleep(ms(1));
                    java.unlock("n");
                    // Who locks again at once beats all waiters, Java's own as well.
                    std::thread::sleep(ms(5));
                }
            })
        })
        .collect();
    let ours = ours(&server).await;
    for _ in 0..20 {
        let guard = ours.lock("n").wait(ms(20_000)).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A waiter of Redisson's that listens and never takes the lock costs ours a moment only.
#[tenure_testkit::test]
async fn a_java_that_does_not_take_its_turn_does_not_hold_up_ours() {
    let server = RedisServer::start();
    let mut ear = server.client();
    ear.subscribe(&[CHANNEL]);
    let (stop, turns) = (Arc::default(), Arc::default());
    contend(&server, &stop, &turns).await;
    let begun = Instant::now();
    while turns.load(Ordering::Relaxed) < RELEASES {
        tokio::time::sleep(ms(5)).await;
        check_within(begun, ms(20_000));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(ear.next_message(ms(5_000)).is_some(), "it had its turns");
}

/// Releases a lock for which one of ours waits, and tells what our channel and Redisson's said.
fn heard_at_release(server: &RedisServer, listeners: &[&str]) -> (Vec<String>, bool) {
    let mut redis = server.client();
    redis.command(&["HSET", "n", ONE, "1"]);
    redis.command(&["ZADD", QUEUE, "1", TWO]);
    let mut ear = server.client();
    ear.subscribe(listeners);
    eval(
        &mut redis,
        redisson::RELEASE,
        &["n", QUEUE, ALIVE],
        &[ONE, CHANNEL],
    )
    .unwrap();
    let is_offered = redis.command(&["EXISTS", "n"]).int() == 1;
    redis.command(&["DEL", "n", QUEUE]);
    redis.command(&["PUBLISH", listeners[0], "end"]);
    let mut heard = Vec::new();
    loop {
        let message = ear.next_message(ms(5_000)).unwrap().payload;
        if message == "end" {
            return (heard, is_offered);
        }
        heard.push(message);
    }
}

#[test]
fn while_no_java_waits_the_lock_is_always_offered() {
    let server = RedisServer::start();
    for _ in 0..50 {
        let (heard, is_offered) = heard_at_release(&server, &[WAKE, CHANNEL]);
        assert!(is_offered);
        assert_eq!(heard, [TWO]);
    }
}

#[test]
fn while_a_java_waits_the_lock_is_left_to_it_now_and_then() {
    let server = RedisServer::start();
    let mut java_1 = server.client();
    java_1.subscribe(&[CHANNEL]);
    let (mut offered, mut opened) = (0, 0);
    for _ in 0..RELEASES {
        let (heard, is_offered) = heard_at_release(&server, &[WAKE, CHANNEL]);
        if is_offered {
            assert_eq!(heard, [TWO]);
            offered += 1;
        } else {
            // In this order: who holds back must know before it hears that the lock is free.
            assert_eq!(heard, [format!("open {TWO}"), "0".to_owned()]);
            opened += 1;
        }
    }
    assert!(
        offered > opened && opened > 0,
        "{offered} offered, {opened} opened"
    );
}

/// The one that held back gives up before it asked: the next must not wait for a timer.
#[test]
fn a_place_given_up_while_the_lock_is_free_passes_the_turn_on() {
    let server = RedisServer::start();
    let mut redis = server.client();
    redis.command(&["ZADD", QUEUE, "1", ONE, "2", TWO]);
    let mut ear = server.client();
    ear.subscribe(&[WAKE, CHANNEL]);
    eval(
        &mut redis,
        redisson::RELEASE,
        &["n", QUEUE, ALIVE],
        &[ONE, CHANNEL],
    )
    .unwrap();
    let heard: Vec<String> = (0..2)
        .map(|_| ear.next_message(ms(5_000)).unwrap().payload)
        .collect();
    assert_eq!(heard, [format!("open {TWO}"), "0".to_owned()]);
    let left = redis.command(&["ZRANGE", QUEUE, "0", "-1"]);
    assert_eq!(left.array().len(), 1);
}

/// Where it cannot be asked who listens, Java may be waiting, and everybody gets a turn.
#[tenure_testkit::test]
async fn without_the_right_to_ask_who_listens_both_get_their_turns() {
    let rules = "on >pw ~* &* +@all -pubsub";
    let server = RedisServer::builder().user("worker", rules).start();
    let url = format!("redis://worker:pw@{}?layout=redisson", server.addr());
    let (a, b) = (
        Tenure::connect(&url).await.unwrap(),
        Tenure::builder(&url)
            .layout(Layout::Redisson)
            .connect()
            .await
            .unwrap(),
    );
    for _ in 0..20 {
        let guard = a.lock("n").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let b = b.clone();
            async move { b.lock("n").wait(ms(10_000)).acquire().await }
        });
        tokio::time::sleep(ms(5)).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    let mut java = java(&server);
    assert!(java.lock_within("n", ms(5_000)));
}
