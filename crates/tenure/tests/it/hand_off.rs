//! Handing off, where a real server counts, stops, or is out of reach.

use std::time::{Duration, Instant};

use tenure::{Guard, Lock, LostReason, Released, Tenure};
use tokio::task::JoinHandle;

use crate::contract::waiting::begun;
use crate::hazards::program::Program;
use crate::hazards::wire::{SOON, Wire};
use crate::stage::{ms, soon};
use crate::verdict::{check_nothing_left, check_within};

const TTL: Duration = ms(1_500);

/// A client behind the proxy that hands on however long it takes.
async fn patient(wire: &Wire) -> Tenure {
    let builder = wire.builder().hand_off_time(ms(600_000));
    builder.connect().await.unwrap()
}

/// Waits for the lock, at once in line.
fn waiting(lock: Lock) -> JoinHandle<Guard> {
    tokio::spawn(begun(async move { lock.acquire().await.unwrap() }))
}

/// The second holder of a lease, which may be handed on further, and two who wait behind it.
async fn chain(lock: impl Fn() -> Lock) -> (Guard, [JoinHandle<Guard>; 2]) {
    let before = lock().acquire().await.unwrap();
    let first = waiting(lock());
    let behind = [waiting(lock()), waiting(lock())];
    before.release().await.unwrap();
    (first.await.unwrap(), behind)
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn handing_off_costs_the_server_nothing() {
    const TURNS: u64 = 90;
    let wire = Wire::start();
    let a = patient(&wire).await;
    let before = a.lock("n").acquire().await.unwrap();
    let first = waiting(a.lock("n"));
    let turns = (0..TURNS).map(|_| waiting(a.lock("n"))).collect::<Vec<_>>();
    before.release().await.unwrap();
    let mut guard = first.await.unwrap();
    // The line has asked for whoever is first by now.
    assert!(soon(async || a.stats().busy >= 1).await);
    tokio::time::sleep(ms(100)).await;
    wire.server.reset_stats();
    for turn in turns {
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
        guard = turn.await.unwrap();
    }
    assert_eq!(a.stats().handed_off, TURNS);
    // What the client writes about itself, two scripts at a time.
    let calls = wire.server.command_calls("evalsha");
    assert!(calls <= 10, "{calls} calls for {TURNS} turns");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_nothing_left(&wire.server, "n");
}

/// The server says nothing until the lease must have ended.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ended_unreachable_is_not_handed_on() {
    let wire = Wire::start();
    let a = patient(&wire).await;
    let (guard, [next, last]) = chain(|| a.lock("n").ttl(TTL)).await;
    let (fence, lease) = (guard.fence(), guard.lease_id().clone());
    wire.proxy.black_hole();
    let told = tokio::time::timeout(ms(10_000), guard.lost()).await;
    told.expect("the holder was not told");
    assert!(wire.is_free_soon("n"));
    let other = wire.bystander().await.lock("n").acquire().await.unwrap();
    let handed_off = a.stats().handed_off;
    assert_ne!(guard.release().await.unwrap(), Released::WasHeld);
    tokio::time::sleep(ms(300)).await;
    assert!(!next.is_finished(), "granted while another holds it");
    wire.proxy.heal();
    let between = other.fence();
    assert!(fence < between);
    assert_eq!(other.release().await.unwrap(), Released::WasHeld);
    let next = next.await.unwrap();
    assert!(next.fence() > between);
    assert_ne!(*next.lease_id(), lease);
    assert_eq!(a.stats().handed_off, handed_off);
    drop(next);
    last.await.unwrap().release().await.unwrap();
    check_nothing_left(&wire.server, "n");
}

/// Renewals fail, and less than half of the lease is left: what follows could be too short.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_with_little_time_left_is_not_handed_on() {
    let wire = Wire::start();
    let a = patient(&wire).await;
    let ttl = ms(6_000);
    let (guard, [next, last]) = chain(|| a.lock("n").ttl(ttl)).await;
    wire.proxy.black_hole();
    assert!(soon_after(ttl, || guard.remaining() < ttl / 2).await);
    assert!(guard.is_valid(), "the machine stood still");
    let handed_off = a.stats().handed_off;
    // By the deadline alone.
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    tokio::time::sleep(ms(200)).await;
    assert!(!next.is_finished(), "handed on with little time left");
    wire.proxy.heal();
    drop(next.await.unwrap());
    last.await.unwrap().release().await.unwrap();
    assert!(a.stats().handed_off <= handed_off + 1);
    check_nothing_left(&wire.server, "n");
}

async fn soon_after(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if condition() {
            return true;
        }
        tokio::time::sleep(ms(20)).await;
    }
    false
}

/// The whole process stands still inside a chain, until another has the lock.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_stopped_inside_a_chain_hands_on_nothing() {
    let wire = Wire::start();
    let b = wire.bystander().await;
    let program = Program::start(&wire.server.url());
    assert!(program.ask("acquire n 600").starts_with("granted"));
    for _ in 0..3 {
        assert_eq!(program.ask("line up n 600"), "in line");
    }
    assert_eq!(program.ask("release"), "WasHeld");
    assert!(program.ask("next").starts_with("granted"));
    assert_eq!(program.ask("release"), "WasHeld");
    let held = program.ask("next");
    assert!(held.starts_with("granted"), "{held}");
    program.process.pause();
    let other = b.lock("n").wait(ms(10_000)).acquire().await.unwrap();
    program.process.resume();
    assert_eq!(program.ask("release"), "AlreadyGone");
    assert_eq!(program.ask("next"), "not yet");
    let fence = other.fence().get();
    assert_eq!(other.release().await.unwrap(), Released::WasHeld);
    let next = program.ask("next");
    let next: u64 = next.strip_prefix("granted ").expect(&next).parse().unwrap();
    assert!(next > fence, "{next} after {fence}");
    assert_eq!(program.ask("release"), "WasHeld");
    check_nothing_left(&wire.server, "n");
}

/// A lease of more than a second is watched, also when its holder has changed.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_holder_is_told_at_once_when_the_key_is_deleted() {
    let wire = Wire::start();
    let a = patient(&wire).await;
    let (guard, [next, last]) = chain(|| a.lock("n")).await;
    tokio::time::sleep(ms(1_500)).await;
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(a.stats().handed_off, 1);
    let deleted = Instant::now();
    wire.server.client().command(&["DEL", "n"]);
    let told = tokio::time::timeout(ms(8_000), next.lost()).await;
    told.expect("the holder was not told");
    // Its renewal would come after ten seconds.
    check_within(deleted, ms(5_000));
    drop(next);
    last.abort();
    let _ = last.await;
    check_nothing_left(&wire.server, "n");
}

/// It is not known yet that the lease is gone: the next holder learns of it, and its fence is refused.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_deleted_just_before_it_is_handed_on_is_lost_and_has_the_lower_fence() {
    let wire = Wire::start();
    let (a, b) = (patient(&wire).await, wire.bystander().await);
    let (guard, [next, last]) = chain(|| a.lock("n").ttl(ms(9_000))).await;
    // Those who wait have asked, and will not again for three seconds.
    let is_queued = async || {
        let queue = wire
            .server
            .client()
            .command(&["EXISTS", "tenure:queue:{n}"]);
        queue.int() == 1
    };
    assert!(soon(is_queued).await);
    wire.server.client().command(&["DEL", "n"]);
    let other = b.lock("n").try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    assert!(next.fence() < other.fence());
    let told = tokio::time::timeout(ms(10_000), next.lost()).await;
    assert_eq!(told.expect("not told"), LostReason::Taken);
    drop(next);
    assert!(!last.is_finished(), "handed on although that is known");
    let fence = other.fence();
    assert_eq!(other.release().await.unwrap(), Released::WasHeld);
    assert!(last.await.unwrap().fence() > fence);
    check_nothing_left(&wire.server, "n");
}

/// The renewal was sent for one holder, and its answer finds the next.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_under_way_counts_for_the_next_holder() {
    let wire = Wire::start();
    let a = patient(&wire).await;
    let ttl = ms(6_000);
    let (guard, [next, last]) = chain(|| a.lock("n").ttl(ttl)).await;
    let deadline = guard.deadline();
    assert!(soon_after(ttl, || wire.left("n") < ms(4_500)).await);
    wire.proxy.delay_replies(ms(500));
    let renewed = soon_after(ttl, || wire.left("n") > ms(5_000)).await;
    assert!(renewed, "the server has seen no renewal");
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(a.stats().handed_off, 1);
    let later = soon_after(ms(2_000), || next.deadline() > deadline).await;
    assert!(later, "the renewal moved nothing");
    drop(next);
    last.await.unwrap().release().await.unwrap();
    wire.proxy.heal();
    check_nothing_left(&wire.server, "n");
}

/// A question whose turn it is gets no answer: the lease is released, whatever the store did.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_answer_is_lost_leaves_nothing() {
    for round in 0..10 {
        let wire = Wire::start();
        let (a, b) = (patient(&wire).await, wire.bystander().await);
        let before = a.lock("n").acquire().await.unwrap();
        let next = waiting(a.lock("n"));
        assert!(soon(async || a.stats().busy >= 1).await);
        tokio::time::sleep(ms(20 + round)).await;
        wire.proxy.reset_after_request_with(b"EVALSHA");
        let fence = before.fence();
        before.release().await.unwrap();
        let next = tokio::time::timeout(ms(8_000), next)
            .await
            .expect("stuck")
            .unwrap();
        assert!(next.fence() > fence);
        assert_eq!(next.release().await.unwrap(), Released::WasHeld);
        assert!(b.lock("n").wait(SOON).acquire().await.is_ok());
        check_nothing_left(&wire.server, "n");
    }
}
