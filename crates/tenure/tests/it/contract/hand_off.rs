//! Passing a lock on inside the process.
//!
//! A lease taken by its caller alone has one fence, so the first release asks the store; from then
//! on the lease has fences for those that follow. Hence every chain here begins with two holders.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::{Fence, Guard, LeaseId, Lock, Locks, LostReason, Released, Unordered};
use tenure_testkit::{RedisServer, eventually};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::contract;
use super::waiting::begun;
use crate::stage::{Stage, ms, soon};

contract! {
    a_released_lock_is_handed_on_in_order,
    a_dropped_guard_hands_on_as_well,
    switched_off_it_never_happens,
    the_last_holder_knows_that_it_is_over_before_the_next_begins,
    fences_grow_over_chains_and_processes,
    only_the_same_wish_is_handed_on,
    another_process_gets_its_turn_after_some_turns,
    another_process_gets_its_turn_without_any_turns,
    another_process_gets_its_turn_after_some_time,
    the_next_holder_is_renewed,
    max_hold_counts_anew_for_each_holder,
    a_holder_in_a_chain_is_told_of_a_forced_release,
    a_lease_that_was_lost_is_not_handed_on,
    an_owner_that_is_handed_a_lock_may_re_enter_it,
    waiters_of_one_owner_share_what_is_handed_on,
    a_thread_is_handed_the_lock_and_may_re_enter_it,
    a_shutdown_inside_a_chain_leaves_nothing,
    a_lease_detached_inside_a_chain_can_be_adopted,
    the_lock_is_free_as_soon_as_the_last_in_line_lets_go,
    a_waiter_that_leaves_at_the_moment_of_its_turn_holds_up_nobody,
    one_that_joins_while_the_last_one_leaves_is_not_forgotten,
}

/// A client that hands on however long it takes: only what a test is about shall end a chain.
async fn patient(stage: &Stage) -> Locks {
    let builder = stage.builder().hand_off_time(ms(600_000));
    builder.connect().await.unwrap()
}

/// How many wait in addition to the one of another process.
const WAITERS: usize = 40;

/// What a holder saw of its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    number: usize,
    fence: Fence,
    lease: LeaseId,
}

impl Turn {
    fn of(number: usize, guard: &Guard) -> Self {
        Self {
            number,
            fence: guard.fence(),
            lease: guard.lease_id().clone(),
        }
    }
}

/// Waits for the lock, at once in line.
fn waiting(lock: Lock<Unordered>) -> JoinHandle<Guard> {
    tokio::spawn(begun(async move { lock.acquire().await.unwrap() }))
}

/// Lets this many take turns behind a first holder; what each of them saw, in order.
async fn take_turns(tenure: &Locks, count: usize, end: fn(Guard) -> JoinHandle<()>) -> Vec<Turn> {
    let first = tenure.lock("n").acquire().await.unwrap();
    let turns = Arc::new(Mutex::new(vec![Turn::of(0, &first)]));
    let holders = (1..=count).map(|number| {
        let (lock, turns) = (tenure.lock("n"), Arc::clone(&turns));
        tokio::spawn(begun(async move {
            let guard = lock.acquire().await.unwrap();
            turns.lock().await.push(Turn::of(number, &guard));
            end(guard).await.unwrap();
        }))
    });
    let holders: Vec<_> = holders.collect();
    end(first).await.unwrap();
    for holder in holders {
        holder.await.unwrap();
    }
    Arc::into_inner(turns).unwrap().into_inner()
}

fn release(guard: Guard) -> JoinHandle<()> {
    tokio::spawn(async {
        let released = guard.release().await.unwrap();
        assert_eq!(released, Released::WasHeld);
    })
}

fn let_drop(guard: Guard) -> JoinHandle<()> {
    drop(guard);
    tokio::spawn(async {})
}

#[track_caller]
fn check_order(turns: &[Turn]) {
    let numbers: Vec<usize> = turns.iter().map(|turn| turn.number).collect();
    assert_eq!(numbers, (0..turns.len()).collect::<Vec<_>>());
    let grow = turns.windows(2).all(|pair| pair[0].fence < pair[1].fence);
    assert!(grow, "{turns:?}");
}

async fn a_released_lock_is_handed_on_in_order(stage: Stage) {
    let a = patient(&stage).await;
    let turns = take_turns(&a, 50, release).await;
    check_order(&turns);
    // The first release asked the store for further fences. If that is not answered in time, the lock is
    // released, and the next lease hands on.
    let stats = a.stats();
    let unanswered = 49 - stats.handed_off;
    let unanswered_max = if stage.waits_for_disks() { 2 } else { 0 };
    assert!(unanswered <= unanswered_max, "{stats:?}");
    let leases: BTreeSet<_> = turns.iter().map(|turn| turn.lease.as_str()).collect();
    assert_eq!(leases.len() as u64, 1 + unanswered);
    // An attempt may be granted just after its waiter was handed the lock; it is released again.
    let acquired = 51..=51 + stats.cancelled;
    assert!(acquired.contains(&stats.acquired), "{stats:?}");
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_dropped_guard_hands_on_as_well(stage: Stage) {
    let a = patient(&stage).await;
    let turns = take_turns(&a, 50, let_drop).await;
    check_order(&turns);
    assert_eq!(a.stats().handed_off, 49);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn switched_off_it_never_happens(stage: Stage) {
    let off = stage.builder().hand_off(false);
    let a = off.hand_off_time(ms(600_000)).connect().await.unwrap();
    let turns = take_turns(&a, 20, release).await;
    check_order(&turns);
    assert_eq!(a.stats().handed_off, 0);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn the_last_holder_knows_that_it_is_over_before_the_next_begins(stage: Stage) {
    let a = patient(&stage).await;
    let first = a.lock("n").acquire().await.unwrap();
    let last_token = Arc::new(Mutex::new(first.lost_token()));
    let held = Arc::new(AtomicBool::new(false));
    let holders: Vec<_> = (0..50)
        .map(|_| {
            let (lock, last_token, held) = (a.lock("n"), Arc::clone(&last_token), held.clone());
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                assert!(!held.swap(true, Ordering::SeqCst), "held twice");
                let mut last_token = last_token.lock().await;
                assert!(last_token.is_cancelled(), "somebody still works");
                *last_token = guard.lost_token();
                drop(last_token);
                assert!(guard.is_valid());
                tokio::task::yield_now().await;
                held.store(false, Ordering::SeqCst);
                assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
            })
        })
        .collect();
    tokio::time::sleep(ms(50)).await;
    first.release().await.unwrap();
    for holder in holders {
        holder.await.unwrap();
    }
    assert!(a.stats().handed_off >= 40, "{:?}", a.stats());
}

async fn fences_grow_over_chains_and_processes(stage: Stage) {
    // A chain of four ends often.
    let short = async || {
        let builder = stage.builder().hand_off_turns(3);
        builder.hand_off_time(ms(600_000)).connect().await.unwrap()
    };
    let clients = [short().await, short().await];
    let first = clients[0].lock("n").acquire().await.unwrap();
    let last = Arc::new(Mutex::new(first.fence()));
    let holders: Vec<_> = (0..80)
        .map(|number| {
            let (lock, last) = (clients[number % 2].lock("n"), Arc::clone(&last));
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let mut last = last.lock().await;
                assert!(guard.fence() > *last, "{} after {last}", guard.fence());
                *last = guard.fence();
                drop(last);
                guard.release().await.unwrap();
            })
        })
        .collect();
    tokio::time::sleep(ms(100)).await;
    first.release().await.unwrap();
    for holder in holders {
        holder.await.unwrap();
    }
    for client in &clients {
        assert!(client.stats().handed_off >= 10, "{:?}", client.stats());
    }
}

/// Two wishes one after the other, and whether the second is met by what the first leaves.
async fn only_the_same_wish_is_handed_on(stage: Stage) {
    type Wish = fn(Lock<Unordered>) -> Lock<Unordered>;
    let cases: [(&str, Wish, Wish, bool); 12] = [
        ("the same", |it| it, |it| it, true),
        (
            "a ttl",
            |it| it.ttl(ms(20_000)),
            |it| it.ttl(ms(20_000)),
            true,
        ),
        (
            "ttls",
            |it| it.ttl(ms(20_000)),
            |it| it.ttl(ms(20_001)),
            false,
        ),
        (
            "fixed",
            |it| it.ttl(ms(20_000)).no_renewal(),
            |it| it.ttl(ms(20_000)).no_renewal(),
            false,
        ),
        (
            "to fixed",
            |it| it.ttl(ms(20_000)),
            |it| it.ttl(ms(20_000)).no_renewal(),
            false,
        ),
        (
            "from fixed",
            |it| it.ttl(ms(20_000)).no_renewal(),
            |it| it.ttl(ms(20_000)),
            false,
        ),
        (
            "a max_hold",
            |it| it.max_hold(ms(9_000)),
            |it| it.max_hold(ms(9_000)),
            true,
        ),
        (
            "max_holds",
            |it| it.max_hold(ms(9_000)),
            |it| it.max_hold(ms(8_000)),
            false,
        ),
        ("one max_hold", |it| it.max_hold(ms(9_000)), |it| it, false),
        (
            "metadata",
            |it| it.meta("k", "v"),
            |it| it.meta("k", "v"),
            true,
        ),
        (
            "other metadata",
            |it| it.meta("k", "v"),
            |it| it.meta("k", "w"),
            false,
        ),
        ("no metadata", |it| it.meta("k", "v"), |it| it, false),
    ];
    for (what, one, other, fits) in cases {
        let a = patient(&stage).await;
        let before = one(a.lock("n")).acquire().await.unwrap();
        let first = waiting(one(a.lock("n")));
        let second = waiting(other(a.lock("n")));
        before.release().await.unwrap();
        let first = first.await.unwrap();
        assert!(!second.is_finished(), "{what}: two at once");
        let (turn, handed_off) = (Turn::of(1, &first), a.stats().handed_off);
        assert_eq!(first.release().await.unwrap(), Released::WasHeld, "{what}");
        let second = second.await.unwrap();
        assert!(second.fence() > turn.fence, "{what}");
        assert_eq!(*second.lease_id() == turn.lease, fits, "{what}");
        assert_eq!(a.stats().handed_off - handed_off, u64::from(fits), "{what}");
        assert_eq!(second.release().await.unwrap(), Released::WasHeld, "{what}");
        assert!(soon(async || stage.is_clean("n").await).await, "{what}");
    }
}

async fn another_process_gets_its_turn_after_some_turns(stage: Stage) {
    let builder = stage.builder().hand_off_turns(3);
    let a = builder.hand_off_time(ms(600_000)).connect().await.unwrap();
    // What is left of a chain, and a whole one should our own line have come before.
    let overtaken = overtaken_by(&stage, &a, Duration::ZERO).await;
    assert!(overtaken <= bounded(&stage, 3 + 4), "{overtaken}");
}

async fn another_process_gets_its_turn_without_any_turns(stage: Stage) {
    let builder = stage.builder().hand_off_turns(0);
    let a = builder.hand_off_time(ms(600_000)).connect().await.unwrap();
    let overtaken = overtaken_by(&stage, &a, Duration::ZERO).await;
    assert!(overtaken <= bounded(&stage, 1), "{overtaken}");
    assert_eq!(a.stats().handed_off, 0);
}

async fn another_process_gets_its_turn_after_some_time(stage: Stage) {
    let builder = stage.builder().hand_off_turns(1_000);
    let a = builder.hand_off_time(ms(100)).connect().await.unwrap();
    // Two chains of at most five holders, and the one who waits.
    let overtaken = overtaken_by(&stage, &a, ms(25)).await;
    assert!(overtaken <= bounded(&stage, 11), "{overtaken}");
}

/// A Redlock has no queue: the first client that asks has the turn, which on a crowded machine need not be
/// the one that is woken. It only must not come last of all.
fn bounded(stage: &Stage, turns: usize) -> usize {
    if matches!(stage, Stage::Redlock { .. }) {
        WAITERS - 1
    } else {
        turns
    }
}

/// How many waiters of `a` come before the one of another process that stands in the queue.
async fn overtaken_by(stage: &Stage, a: &Locks, hold: Duration) -> usize {
    let b = stage.client().await;
    let before = a.lock("n").acquire().await.unwrap();
    let first = waiting(a.lock("n"));
    let turns = Arc::new(Mutex::new(Vec::new()));
    let take_turn = |lock: Lock<Unordered>, who: char| {
        let turns = Arc::clone(&turns);
        tokio::spawn(begun(async move {
            let guard = lock.acquire().await.unwrap();
            turns.lock().await.push(who);
            tokio::time::sleep(hold).await;
            guard.release().await.unwrap();
        }))
    };
    before.release().await.unwrap();
    let first = first.await.unwrap();
    let mut holders: Vec<_> = (0..WAITERS).map(|_| take_turn(a.lock("n"), 'a')).collect();
    holders.push(take_turn(b.lock("n"), 'b'));
    // Asked by itself, and again from within the queue.
    assert!(soon(async || b.stats().busy >= 2).await);
    first.release().await.unwrap();
    for holder in holders {
        holder.await.unwrap();
    }
    let turns = turns.lock().await;
    turns.iter().position(|who| *who == 'b').unwrap()
}

/// Two holders of one lease: the second was handed it by the first, who held it for so long.
async fn handed(a: &Locks, held: Duration, lock: impl Fn() -> Lock<Unordered>) -> Guard {
    let before = lock().acquire().await.unwrap();
    let (first, second) = (waiting(lock()), waiting(lock()));
    before.release().await.unwrap();
    let first = first.await.unwrap();
    tokio::time::sleep(held).await;
    let handed_off = a.stats().handed_off;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    assert_eq!(a.stats().handed_off, handed_off + 1, "not handed off");
    second
}

async fn the_next_holder_is_renewed(stage: Stage) {
    let a = patient(&stage).await;
    let guard = handed(&a, Duration::ZERO, || a.lock("n").ttl(ms(1_500))).await;
    let (deadline, renewed) = (guard.deadline(), a.stats().renewed);
    // Two leases long; a machine that stands still for half a second does not matter.
    tokio::time::sleep(ms(3_000)).await;
    assert!(guard.is_valid());
    assert!(guard.deadline() > deadline);
    assert!(a.stats().renewed > renewed);
    let b = stage.client().await;
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(b.lock("n").try_acquire().await.unwrap().is_some());
}

async fn max_hold_counts_anew_for_each_holder(stage: Stage) {
    let a = patient(&stage).await;
    let guard = handed(&a, ms(1_500), || a.lock("n").max_hold(ms(3_000))).await;
    let left = guard.remaining();
    assert!(left > ms(2_000), "{left:?} of three seconds");
    let told = tokio::time::timeout(ms(10_000), guard.lost()).await;
    assert_eq!(told.unwrap(), LostReason::MaxHold);
}

async fn a_holder_in_a_chain_is_told_of_a_forced_release(stage: Stage) {
    let (a, admin) = (patient(&stage).await, stage.client().await);
    let guard = handed(&a, Duration::ZERO, || a.lock("n").ttl(ms(6_000))).await;
    let next = waiting(a.lock("n").ttl(ms(6_000)));
    let forced = admin.force_release("n", guard.lease_id()).await.unwrap();
    assert_eq!(forced, Released::WasHeld);
    let told = tokio::time::timeout(ms(20_000), guard.lost()).await;
    let reason = told.expect("the holder was not told");
    // Its own process is the next in the queue.
    assert!(
        matches!(reason, LostReason::Taken | LostReason::Gone),
        "{reason:?}"
    );
    let (turn, handed_off) = (Turn::of(1, &guard), a.stats().handed_off);
    drop(guard);
    let next = next.await.unwrap();
    assert!(next.fence() > turn.fence);
    assert_ne!(*next.lease_id(), turn.lease, "a lost lease was handed on");
    assert_eq!(a.stats().handed_off, handed_off);
}

async fn a_lease_that_was_lost_is_not_handed_on(stage: Stage) {
    let (a, b) = (patient(&stage).await, stage.client().await);
    let guard = handed(&a, Duration::ZERO, || a.lock("n").ttl(ms(6_000))).await;
    let next = waiting(a.lock("n").ttl(ms(6_000)));
    // Until the lease is watched and the line sleeps: then the holder is told first.
    tokio::time::sleep(ms(1_200)).await;
    stage.delete_lock("n").await;
    let told = tokio::time::timeout(ms(20_000), guard.lost()).await;
    told.expect("the holder was not told");
    let (turn, handed_off) = (Turn::of(1, &guard), a.stats().handed_off);
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
    let next = next.await.unwrap();
    assert!(next.fence() > turn.fence);
    assert_ne!(*next.lease_id(), turn.lease, "a lost lease was handed on");
    assert_eq!(a.stats().handed_off, handed_off);
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
}

async fn an_owner_that_is_handed_a_lock_may_re_enter_it(stage: Stage) {
    let a = patient(&stage).await;
    let owner = a.owner();
    let before = a.lock("n").acquire().await.unwrap();
    let (first, second) = (waiting(a.lock("n")), waiting(owner.lock("n")));
    before.release().await.unwrap();
    first.await.unwrap().release().await.unwrap();
    let guard = second.await.unwrap();
    assert_eq!(a.stats().handed_off, 1);
    let inner = owner.lock("n").try_acquire().await.unwrap().unwrap();
    assert_eq!(inner.fence(), guard.fence());
    drop(guard);
    assert!(inner.is_valid());
    assert!(a.lock("n").try_acquire().await.unwrap().is_none());
    assert_eq!(inner.release().await.unwrap(), Released::WasHeld);
    assert!(a.lock("n").try_acquire().await.unwrap().is_some());
}

async fn waiters_of_one_owner_share_what_is_handed_on(stage: Stage) {
    let a = patient(&stage).await;
    let owner = a.owner();
    let before = a.lock("n").acquire().await.unwrap();
    let between = waiting(a.lock("n"));
    let shared = [(); 3].map(|()| waiting(owner.lock("n")));
    let last = waiting(a.lock("n"));
    before.release().await.unwrap();
    between.await.unwrap().release().await.unwrap();
    assert!(soon(async || shared.iter().all(JoinHandle::is_finished)).await);
    let mut guards = Vec::new();
    for guard in shared {
        guards.push(guard.await.unwrap());
    }
    assert!(
        guards
            .iter()
            .all(|guard| guard.fence() == guards[0].fence())
    );
    let fence = guards[0].fence();
    guards.truncate(1);
    assert!(!last.is_finished(), "one of the owner's guards is left");
    drop(guards);
    assert!(last.await.unwrap().fence() > fence);
}

async fn a_thread_is_handed_the_lock_and_may_re_enter_it(stage: Stage) {
    let builder = stage.builder().hand_off_time(ms(600_000));
    let taken = tokio::task::spawn_blocking(|| {
        let tenure = builder.connect_blocking().unwrap();
        let before = tenure.lock("n").acquire().unwrap();
        let threads = [(); 3].map(|()| {
            let tenure = tenure.clone();
            std::thread::spawn(move || {
                let outer = tenure.lock("n").acquire().unwrap();
                let inner = tenure.lock("n").try_acquire().unwrap();
                let inner = inner.expect("this thread holds it");
                assert_eq!(outer.fence(), inner.fence());
                drop(outer);
                assert!(inner.is_valid());
                assert_eq!(inner.release().unwrap(), Released::WasHeld);
            })
        });
        std::thread::sleep(ms(100));
        before.release().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(tenure.stats().handed_off > 0, "{:?}", tenure.stats());
    });
    taken.await.unwrap();
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_shutdown_inside_a_chain_leaves_nothing(stage: Stage) {
    // Now amid many hand-offs, now while one holds what it was handed.
    for round in 0..20 {
        let a = patient(&stage).await;
        let before = a.lock("n").acquire().await.unwrap();
        let holders: Vec<_> = (0..30)
            .map(|number| {
                let lock = a.lock("n");
                tokio::spawn(begun(async move {
                    let Ok(guard) = lock.acquire().await else {
                        return;
                    };
                    if round % 2 == 0 && number == 10 {
                        assert_eq!(guard.lost().await, LostReason::Shutdown);
                    }
                    let _ = guard.release().await;
                }))
            })
            .collect();
        before.release().await.unwrap();
        let held = if round % 2 == 0 { 10 } else { 3 };
        assert!(soon(async || a.stats().handed_off >= held).await);
        assert_eq!(a.shutdown(ms(5_000)).await, vec![]);
        // A Redlock does not wait for the last word of a node that is slow.
        let clean = soon(async || stage.is_clean("n").await).await;
        assert!(clean, "after the shutdown");
        for holder in holders {
            holder.await.unwrap();
        }
    }
}

async fn a_lease_detached_inside_a_chain_can_be_adopted(stage: Stage) {
    let (a, b) = (patient(&stage).await, stage.client().await);
    let guard = handed(&a, Duration::ZERO, || a.lock("n").ttl(ms(5_000))).await;
    let next = waiting(a.lock("n").ttl(ms(5_000)));
    let fence = guard.fence();
    let lease = guard.detach().unwrap();
    assert_eq!(lease.fence(), fence);
    let adopted = b.adopt(&lease).await.unwrap();
    assert_eq!(adopted.fence(), fence);
    assert!(
        !next.is_finished(),
        "what was given away was handed on as well"
    );
    assert_eq!(adopted.release().await.unwrap(), Released::WasHeld);
    assert!(next.await.unwrap().fence() > fence);
}

async fn the_lock_is_free_as_soon_as_the_last_in_line_lets_go(stage: Stage) {
    let (a, b) = (patient(&stage).await, stage.client().await);
    for round in 0..20 {
        let before = a.lock("n").acquire().await.unwrap();
        let (first, last) = (waiting(a.lock("n")), waiting(a.lock("n")));
        if let Some(server) = keeper_of_the_queue(&stage) {
            // Otherwise a question of the line may be under way at the end, and be granted.
            let has_joined = || is_queued(server);
            assert!(eventually(ms(10_000), has_joined), "round {round}");
        }
        before.release().await.unwrap();
        first.await.unwrap().release().await.unwrap();
        let last = last.await.unwrap();
        assert_eq!(last.release().await.unwrap(), Released::WasHeld);
        let patience = keeper_of_the_queue(&stage).map_or(ms(1_000), |_| Duration::ZERO);
        without_waiting(&b, patience).await.release().await.unwrap();
        if let Some(server) = keeper_of_the_queue(&stage) {
            assert!(!is_queued(server), "round {round}: a place is left");
        }
    }
    assert!(a.stats().handed_off >= 20, "{:?}", a.stats());
}

/// The server with the queue of the lock `n`. A Redlock has none, and memory no server.
fn keeper_of_the_queue(stage: &Stage) -> Option<&RedisServer> {
    let is_redlock = matches!(stage, Stage::Redlock { .. });
    let servers = stage.servers_of("n");
    servers.first().copied().filter(|_| !is_redlock)
}

fn is_queued(server: &RedisServer) -> bool {
    let queue = server.client().command(&["EXISTS", "tenure:queue:{n}"]);
    queue.int() == 1
}

/// The lock, asked for until it is free, with some patience for a question of another line that is
/// granted and given back.
async fn without_waiting(tenure: &Locks, patience: Duration) -> Guard {
    let end = Instant::now() + patience;
    loop {
        if let Some(guard) = tenure.lock("n").try_acquire().await.unwrap() {
            return guard;
        }
        let is_over = Instant::now() >= end;
        assert!(!is_over, "busy, though nobody holds it or waits");
    }
}

async fn a_waiter_that_leaves_at_the_moment_of_its_turn_holds_up_nobody(stage: Stage) {
    let a = patient(&stage).await;
    let begun_at = Instant::now();
    for round in 0..300 {
        let before = a.lock("n").acquire().await.unwrap();
        let first = waiting(a.lock("n"));
        let leaving = waiting(a.lock("n"));
        let last = waiting(a.lock("n"));
        before.release().await.unwrap();
        let first = first.await.unwrap();
        // Both at once, on two threads: now this one is earlier, now the other.
        let leave = tokio::spawn(async move {
            for _ in 0..round % 7 {
                std::hint::spin_loop();
            }
            leaving.abort();
            let _ = leaving.await;
        });
        if round % 2 == 0 {
            drop(first);
        } else {
            first.release().await.unwrap();
        }
        let last = tokio::time::timeout(ms(5_000), last).await;
        let last = last.expect("skipped, or stuck behind one that left");
        assert_eq!(last.unwrap().release().await.unwrap(), Released::WasHeld);
        leave.await.unwrap();
    }
    // Timers would take ten seconds each.
    assert!(begun_at.elapsed() < ms(60_000), "{:?}", begun_at.elapsed());
    assert!(soon(async || stage.is_clean("n").await).await);
}

/// The line gives up its place in the store's queue with the last release; whoever comes at that
/// moment may stand in the same place.
async fn one_that_joins_while_the_last_one_leaves_is_not_forgotten(stage: Stage) {
    let a = patient(&stage).await;
    let tasks: Vec<_> = (0..4_u64)
        .map(|task| {
            let a = a.clone();
            tokio::spawn(async move {
                for round in 0..400_u64 {
                    // With so little patience it stands in line at once and asks nobody; without any
                    // limit nobody tells the line that it came.
                    let lock = a.lock("n").wait(ms(900));
                    let lock = if task == 0 { lock } else { a.lock("n") };
                    let guard = tokio::time::timeout(ms(5_000), lock.acquire()).await;
                    let guard = guard.unwrap_or_else(|_| panic!("round {round}: forgotten"));
                    let guard = guard.unwrap_or_else(|error| panic!("round {round}: {error}"));
                    if (round + task) % 2 == 0 {
                        drop(guard);
                    } else {
                        guard.release().await.unwrap();
                    }
                    for _ in 0..(round * 7 + task * 3) % 11 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(soon(async || stage.is_clean("n").await).await);
}
