//! Waiting for a turn.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tenure::ErrorKind;
use tokio::sync::Mutex;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    a_waiter_gets_the_lock_when_it_is_released,
    waiters_of_one_process_are_served_in_order,
    a_waiter_that_gives_up_leaves_nothing,
    a_dropped_waiter_leaves_nothing_and_passes_its_turn_on,
    a_dead_holder_is_succeeded_when_its_lease_ends,
    limits_hold_also_behind_the_head_of_the_line;
    queued:
    waiters_of_several_processes_take_turns,
    a_dead_waiter_does_not_hold_up_the_others,
    a_dead_waiter_costs_no_more_than_its_lease_would,
}

async fn a_waiter_gets_the_lock_when_it_is_released(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { b.lock("n").acquire().await.unwrap().fence() });
    tokio::time::sleep(ms(100)).await;
    let (fence, released) = (guard.fence(), Instant::now());
    guard.release().await.unwrap();
    assert!(waiter.await.unwrap() > fence);
    // The fallback would take ten seconds: this was a message.
    assert!(released.elapsed() < ms(5_000), "{:?}", released.elapsed());
}

async fn waiters_of_one_process_are_served_in_order(stage: Stage) {
    let a = stage.client().await;
    let first = a.lock("n").acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..20 {
        let (a, order) = (a.clone(), Arc::clone(&order));
        let turn = async move {
            let guard = a.lock("n").acquire().await.unwrap();
            order.lock().await.push(number);
            guard.release().await.unwrap();
        };
        waiters.push(tokio::spawn(begun(turn)));
    }
    first.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().await, (0..20).collect::<Vec<_>>());
}

/// A race among one waiter per process would starve some of them.
async fn waiters_of_several_processes_take_turns(stage: Stage) {
    let first = stage.client().await.lock("n").acquire().await.unwrap();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let (mut clients, mut tasks) = (Vec::new(), Vec::new());
    for process in 0..3 {
        let client = stage.builder().hand_off(false).connect().await.unwrap();
        clients.push(client.clone());
        for _ in 0..4 {
            let (client, turns) = (client.clone(), Arc::clone(&turns));
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = client.lock("n").acquire().await.unwrap();
                    turns.lock().await.push(process);
                    // Time for who has just let go to come back, on a machine that is slow.
                    tokio::time::sleep(ms(5)).await;
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    // Who is refused a second time has joined the queue in the same step.
    let all_wait = async || clients.iter().all(|client| client.stats().busy >= 2);
    assert!(soon(all_wait).await, "not all stand in the queue");
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let turns = turns.lock().await;
    assert_eq!(turns.len(), 60);
    // While all three wait, none gets two turns more than another.
    let begin = &turns[..45];
    for process in 0..3 {
        let share = begin.iter().filter(|turn| **turn == process).count();
        assert!(
            (12..=18).contains(&share),
            "{process}: {share} of {begin:?}"
        );
    }
}

async fn a_waiter_that_gives_up_leaves_nothing(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").acquire().await.unwrap();
    let error = b.lock("n").wait(ms(100)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    guard.release().await.unwrap();
    let begun = Instant::now();
    // Had it left its place in the queue, the lock would be offered to nobody for two seconds.
    assert!(soon(async || stage.is_clean("n").await).await);
    assert!(begun.elapsed() < ms(1_000), "{:?}", begun.elapsed());
    assert!(a.lock("n").try_acquire().await.unwrap().is_some());
}

async fn a_dropped_waiter_leaves_nothing_and_passes_its_turn_on(stage: Stage) {
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    let guard = a.lock("n").acquire().await.unwrap();
    let waiter = tokio::spawn(async move { b.lock("n").acquire().await });
    tokio::time::sleep(ms(100)).await;
    let second = tokio::spawn(async move { c.lock("n").acquire().await.unwrap() });
    tokio::time::sleep(ms(100)).await;
    waiter.abort();
    guard.release().await.unwrap();
    let begun = Instant::now();
    let guard = second.await.unwrap();
    assert!(begun.elapsed() < ms(1_000), "{:?}", begun.elapsed());
    guard.release().await.unwrap();
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_dead_holder_is_succeeded_when_its_lease_ends(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    // A detached lease is what a killed process leaves behind.
    let guard = a.lock("n").ttl(ms(700)).acquire().await.unwrap();
    let _given_away = guard.detach().unwrap();
    let begun = Instant::now();
    let guard = b.lock("n").wait(ms(5_000)).acquire().await.unwrap();
    let waited = begun.elapsed();
    assert!(waited > ms(500), "{waited:?}");
    guard.release().await.unwrap();
}

async fn a_dead_waiter_does_not_hold_up_the_others(stage: Stage) {
    let (a, c) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").acquire().await.unwrap();
    dead_waiter(&stage, ms(30_000));
    let waiter = tokio::spawn(async move { c.lock("n").wait(ms(6_000)).acquire().await.unwrap() });
    tokio::time::sleep(ms(100)).await;
    guard.release().await.unwrap();
    let begun = Instant::now();
    let guard = waiter.await.unwrap();
    // The offer to the dead one stands for two seconds, then the next one looks.
    assert!(begun.elapsed() < ms(4_000), "{:?}", begun.elapsed());
    guard.release().await.unwrap();
}

async fn a_dead_waiter_costs_no_more_than_its_lease_would(stage: Stage) {
    let (a, c) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").acquire().await.unwrap();
    dead_waiter(&stage, ms(200));
    let waiter = tokio::spawn(async move { c.lock("n").acquire().await.unwrap() });
    tokio::time::sleep(ms(100)).await;
    guard.release().await.unwrap();
    let begun = Instant::now();
    let guard = waiter.await.unwrap();
    assert!(begun.elapsed() < ms(1_200), "{:?}", begun.elapsed());
    guard.release().await.unwrap();
}

/// Puts somebody into the queue who never takes up an offer. In the memory store nobody dies but
/// with the process.
fn dead_waiter(stage: &Stage, ttl: Duration) {
    for server in stage.servers_of("n") {
        let dead = stage.dead_lease(ttl);
        let mut redis = server.client();
        redis.command(&["ZADD", "tenure:queue:{n}", "1", dead.as_str()]);
    }
}

async fn limits_hold_also_behind_the_head_of_the_line(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let _guard = a.lock("n").acquire().await.unwrap();
    let head = tokio::spawn({
        let b = b.clone();
        async move { b.lock("n").acquire().await }
    });
    tokio::time::sleep(ms(50)).await;
    let begun = Instant::now();
    let error = b.lock("n").wait(ms(200)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(begun.elapsed() < ms(5_000), "{:?}", begun.elapsed());
    head.abort();
}

/// A future that has been polled once, so that it stands in the line already.
pub fn begun<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    future
}
