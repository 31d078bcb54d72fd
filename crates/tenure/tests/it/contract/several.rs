//! Several names at once: all or nothing.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand::seq::SliceRandom;
use tenure::{ErrorKind, Locks, LostReason, MultiLock, NAMES_MAX, Released};
use tenure_testkit::Seed;
use tokio::time::timeout;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    several_locks_are_held_and_released_together,
    several_locks_exclude_single_ones_and_are_excluded_by_them,
    a_busy_lock_leaves_none_of_the_others_held,
    a_lock_that_stays_busy_is_named_with_its_holder,
    each_of_several_locks_has_a_fence_that_grows,
    a_waiter_gets_several_locks_when_they_are_released,
    a_waiter_passes_on_what_it_cannot_use,
    a_patient_waiter_holds_what_it_has,
    callers_in_opposite_orders_get_their_turns,
    a_dropped_wait_for_several_locks_leaves_nothing,
    a_dropped_guard_frees_all_its_locks,
    one_lost_lock_is_named_by_the_guard,
    work_under_several_locks_ends_with_the_first_that_is_lost,
    several_leases_are_renewed,
    settings_apply_to_each_of_several_locks,
    bad_lists_of_names_are_refused,
    a_shutdown_releases_several_locks,
    a_thread_without_a_runtime_acquires_several_locks,
}

/// In one slot of a cluster.
const TOGETHER: [&str; 3] = ["{t}:b", "{t}:a", "{t}:c"];
/// In several.
const APART: [&str; 3] = ["b", "a", "c"];
/// Renewed after a third; long enough for a machine that is busy.
const TTL: Duration = ms(9_000);
/// Longer than anything here takes, on any machine.
const LONG: Duration = ms(30_000);

async fn several_locks_are_held_and_released_together(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for names in [TOGETHER, APART] {
        let guard = a.locks(names).acquire().await.unwrap();
        assert!(guard.is_valid());
        let given: Vec<&str> = guard.names().map(AsRef::as_ref).collect();
        assert_eq!(given, names, "in the order that was given");
        assert!(b.locks(names).try_acquire().await.unwrap().is_none());
        let released = guard.release().await.unwrap();
        let expected = names.map(|name| (name.to_owned(), Released::WasHeld));
        let released = released
            .into_iter()
            .map(|(name, released)| (name.as_str().to_owned(), released));
        assert_eq!(released.collect::<Vec<_>>(), expected);
        let again = b.locks(names).try_acquire().await.unwrap();
        again.expect("they are free").release().await.unwrap();
        for name in names {
            assert!(soon(async || stage.is_clean(name).await).await, "{name}");
        }
    }
}

async fn several_locks_exclude_single_ones_and_are_excluded_by_them(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for names in [TOGETHER, APART] {
        let several = a.locks(names).acquire().await.unwrap();
        for name in names {
            let single = b.lock(name).try_acquire().await.unwrap();
            assert!(single.is_none(), "{name} is held");
        }
        several.release().await.unwrap();
        for name in names {
            let single = b.lock(name).acquire().await.unwrap();
            let several = a.locks(names).try_acquire().await.unwrap();
            assert!(several.is_none(), "{name} is held by another");
            single.release().await.unwrap();
        }
    }
}

async fn a_busy_lock_leaves_none_of_the_others_held(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for names in [TOGETHER, APART] {
        for busy in names {
            let single = b.lock(busy).acquire().await.unwrap();
            assert!(a.locks(names).try_acquire().await.unwrap().is_none());
            let error = refused(&a.locks(names).wait(ms(0))).await;
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            for name in names.into_iter().filter(|name| *name != busy) {
                let free = b.lock(name).try_acquire().await.unwrap();
                let free = free.unwrap_or_else(|| panic!("{name} was kept, {busy} is busy"));
                free.release().await.unwrap();
            }
            single.release().await.unwrap();
        }
    }
}

/// The error of a caller with little time. On a crowded machine the server may not answer within it.
async fn refused(locks: &MultiLock) -> tenure::Error {
    loop {
        let error = locks.acquire().await.map(drop).unwrap_err();
        if error.kind() != ErrorKind::Unavailable {
            return error;
        }
    }
}

async fn a_lock_that_stays_busy_is_named_with_its_holder(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for names in [TOGETHER, APART] {
        let single = b.lock(names[2]).acquire().await.unwrap();
        // Shorter than the time in which nothing is held, and longer.
        for wait in [ms(0), ms(200), ms(1_500)] {
            let error = refused(&a.locks(names).wait(wait)).await;
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            assert!(
                error.to_string().contains(&format!("`{}`", names[2])),
                "{error}"
            );
            assert_eq!(&error.holder().unwrap().lease, single.lease_id());
            for name in &names[..2] {
                let free = b.lock(name).try_acquire().await.unwrap();
                free.expect("none is held").release().await.unwrap();
            }
        }
        single.release().await.unwrap();
    }
}

async fn each_of_several_locks_has_a_fence_that_grows(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for names in [TOGETHER, APART] {
        let mut last = names.map(|_| None);
        for round in 0..6 {
            let client = if round % 2 == 0 { &a } else { &b };
            let guard = client.locks(names).acquire().await.unwrap();
            assert_eq!(guard.fences().count(), names.len());
            assert_eq!(guard.fence("other"), None);
            for (name, last) in names.iter().zip(&mut last) {
                let fence = guard.fence(name).unwrap();
                assert!(Some(fence) > *last, "{name} in round {round}");
                *last = Some(fence);
            }
            guard.release().await.unwrap();
            let single = client.lock(names[1]).acquire().await.unwrap();
            assert!(Some(single.fence()) > last[1]);
            last[1] = Some(single.fence());
            single.release().await.unwrap();
        }
    }
}

async fn a_waiter_gets_several_locks_when_they_are_released(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for names in [TOGETHER, APART] {
        let held = a.locks(names).acquire().await.unwrap();
        let fences: Vec<_> = held.fences().map(|(_, fence)| fence).collect();
        let waiting = b.locks(names);
        let waiting = tokio::spawn(async move { waiting.acquire().await });
        let is_busy = async || b.stats().busy > 0;
        assert!(soon(is_busy).await, "it does not wait");
        held.release().await.unwrap();
        let guard = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
        for (fence, (name, greater)) in fences.into_iter().zip(guard.fences()) {
            assert!(greater > fence, "{name}");
        }
        guard.release().await.unwrap();
    }
}

/// While it holds nothing but waits for one lock, another client can have that lock's neighbour.
async fn a_waiter_passes_on_what_it_cannot_use(stage: Stage) {
    let (a, b, c) = (
        stage.client().await,
        stage.client().await,
        stage.client().await,
    );
    let [first, second, _] = TOGETHER;
    let (one, two) = (
        a.lock(first).acquire().await.unwrap(),
        b.lock(second).acquire().await.unwrap(),
    );
    let waiting = c.locks([first, second]);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    assert!(soon(async || c.stats().busy > 0).await, "it does not wait");
    // It may be offered the one that is released, but must not keep both from others for good.
    one.release().await.unwrap();
    two.release().await.unwrap();
    let guard = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    for name in [first, second] {
        assert!(soon(async || stage.is_clean(name).await).await, "{name}");
    }
}

/// Others take the two locks in turns, so that both are never free at the same time.
async fn a_patient_waiter_holds_what_it_has(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let [first, second, _] = TOGETHER;
    let waiting = b.locks([first, second]);
    let relay = tokio::spawn({
        let a = a.clone();
        async move {
            let mut held = a.lock(first).acquire().await.unwrap();
            for turn in 0_usize.. {
                let next = [second, first][turn % 2];
                // Without a limit, this would wait for the waiter, which waits for this.
                let Ok(next) = a.lock(next).wait(ms(3_000)).acquire().await else {
                    break;
                };
                tokio::time::sleep(ms(20)).await;
                held.release().await.unwrap();
                held = next;
            }
            held.release().await.unwrap();
        }
    });
    assert!(soon(async || a.stats().acquired > 1).await);
    let guard = timeout(LONG, waiting.acquire()).await;
    let guard = guard.expect("it starves").unwrap();
    guard.release().await.unwrap();
    relay.abort();
}

async fn callers_in_opposite_orders_get_their_turns(stage: Stage) {
    const TURNS: usize = 4;
    let seed = Seed::from_env_or_random("TENURE_SEVERAL_SEED");
    let names = ["{t}:a", "{t}:b", "a", "b"];
    let inside: Arc<[AtomicUsize; 4]> = Arc::default();
    let mut tasks = Vec::new();
    for process in 0..2 {
        let client = stage.client().await;
        for task in 0..3 {
            let (client, inside) = (client.clone(), Arc::clone(&inside));
            let mut rng = seed.part(process * 10 + task).rng();
            tasks.push(tokio::spawn(async move {
                for _ in 0..TURNS {
                    let mut wanted = [0, 1, 2, 3];
                    wanted.shuffle(&mut rng);
                    let wanted = &wanted[..rng.random_range(1..=4)];
                    take_turn(&client, &names, wanted, &inside).await;
                }
            }));
        }
    }
    for task in tasks {
        timeout(ms(240_000), task)
            .await
            .expect("no progress")
            .unwrap();
    }
    for name in names {
        assert!(soon(async || stage.is_clean(name).await).await, "{name}");
    }
}

/// Holds these locks for a moment, and checks that no other task is inside.
async fn take_turn(client: &Locks, names: &[&str; 4], wanted: &[usize], inside: &[AtomicUsize; 4]) {
    let guard = client.locks(wanted.iter().map(|at| names[*at]));
    let guard = guard.acquire().await.unwrap();
    for at in wanted {
        let others = inside[*at].fetch_add(1, Ordering::SeqCst);
        assert_eq!(others, 0, "{} is held twice", names[*at]);
    }
    tokio::time::sleep(ms(2)).await;
    // On a machine that stands still for longer than the lease, others may be in.
    assert!(guard.is_valid(), "the machine stood still");
    for at in wanted {
        inside[*at].fetch_sub(1, Ordering::SeqCst);
    }
    guard.release().await.unwrap();
}

async fn a_dropped_wait_for_several_locks_leaves_nothing(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let mut rng = Seed::from_env_or_random("TENURE_SEVERAL_SEED").rng();
    for round in 0..30 {
        let names = if round % 2 == 0 { TOGETHER } else { APART };
        let busy = names[rng.random_range(0..3)];
        let held = match round % 3 {
            0 => Some(b.lock(busy).acquire().await.unwrap()),
            _ => None,
        };
        let time = Duration::from_micros(rng.random_range(0..6_000));
        let several = a.locks(names);
        // Dropped while it asks, while it waits, or with what it got.
        drop(timeout(time, several.acquire()).await);
        drop(held);
        let all = b.locks(names).wait(LONG).acquire().await;
        let all = all.unwrap_or_else(|error| panic!("round {round}: {error}"));
        all.release().await.unwrap();
    }
    for name in [TOGETHER, APART].concat() {
        assert!(soon(async || stage.is_clean(name).await).await, "{name}");
    }
}

async fn a_dropped_guard_frees_all_its_locks(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for names in [TOGETHER, APART] {
        let guard = a.locks(names).acquire().await.unwrap();
        let token = guard.lost_token();
        drop(guard);
        timeout(LONG, token.cancelled()).await.unwrap();
        let free = async || b.locks(names).try_acquire().await.unwrap().is_some();
        assert!(soon(free).await, "still held");
        for name in names {
            assert!(soon(async || stage.is_clean(name).await).await, "{name}");
        }
    }
}

async fn one_lost_lock_is_named_by_the_guard(stage: Stage) {
    let a = stage.client().await;
    for names in [TOGETHER, APART] {
        let lost = names[2];
        let guard = a.locks(names).ttl(TTL).acquire().await.unwrap();
        let token = guard.lost_token();
        stage.delete_lock(lost).await;
        let (name, reason) = timeout(LONG, guard.lost()).await.unwrap();
        assert_eq!((name.as_str(), reason), (lost, LostReason::Gone));
        assert!(!guard.is_valid());
        assert_eq!(guard.remaining(), Duration::ZERO);
        timeout(LONG, token.cancelled()).await.unwrap();
        let error = guard.ensure(ms(100)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(error.to_string().contains(&format!("`{lost}`")), "{error}");
        for (name, released) in guard.release().await.unwrap() {
            let expected = if name.as_str() == lost {
                Released::AlreadyGone
            } else {
                Released::WasHeld
            };
            assert_eq!(released, expected, "{name}");
        }
    }
}

async fn work_under_several_locks_ends_with_the_first_that_is_lost(stage: Stage) {
    let a = stage.client().await;
    let locks = a.locks(TOGETHER).ttl(TTL);
    let done = locks.with(async |guard| guard.fences().count()).await;
    assert_eq!(done.unwrap(), 3);
    let endless = locks.with(async |_| {
        stage.delete_lock(TOGETHER[1]).await;
        std::future::pending::<()>().await;
    });
    let error = timeout(LONG, endless).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains(TOGETHER[1]), "{error}");
    let failed = locks.try_with(async |_| Err::<(), Box<dyn Error>>("no".into()));
    assert_eq!(failed.await.unwrap_err().to_string(), "no");
    for name in TOGETHER {
        assert!(soon(async || stage.is_clean(name).await).await, "{name}");
    }
}

async fn several_leases_are_renewed(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.locks(TOGETHER).ttl(TTL).acquire().await.unwrap();
    let deadline = guard.deadline();
    // Each of them once, after a third of the ttl.
    let renewed = async || a.stats().renewed >= 3 && guard.deadline() > deadline;
    assert!(soon(renewed).await || soon(renewed).await, "not renewed");
    assert!(guard.is_valid());
    assert!(b.locks(TOGETHER).try_acquire().await.unwrap().is_none());
    guard.ensure(TTL * 3 / 4).await.unwrap();
    guard.release().await.unwrap();
}

async fn settings_apply_to_each_of_several_locks(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for names in [TOGETHER, APART] {
        let fixed = a.locks(names).ttl(ms(3_000)).no_renewal();
        let fixed = fixed.meta("job", "7").acquire().await.unwrap();
        assert_eq!(fixed.ttl(), ms(3_000));
        for (name, id) in fixed.lease_ids() {
            let holder = b.lock(name).holder().await.unwrap().unwrap();
            assert_eq!(&holder.lease, id);
            assert_eq!(holder.meta["job"], "7", "{name}");
        }
        let (_, reason) = timeout(LONG, fixed.lost()).await.unwrap();
        assert_eq!(reason, LostReason::Expired);
        drop(fixed);
        let short = a.locks(names).max_hold(ms(500));
        let short = short.acquire().await.unwrap();
        let (_, reason) = timeout(LONG, short.lost()).await.unwrap();
        assert_eq!(reason, LostReason::MaxHold);
        short.release().await.unwrap();
        for name in names {
            assert!(soon(async || stage.is_clean(name).await).await, "{name}");
        }
    }
}

async fn bad_lists_of_names_are_refused(stage: Stage) {
    let a = stage.client().await;
    let many: Vec<String> = (0..=NAMES_MAX).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(AsRef::as_ref).collect();
    for (names, kind, told) in [
        (&[][..], ErrorKind::InvalidSetting, "`0`"),
        (&["a", "b", "a"], ErrorKind::InvalidName, "`a`"),
        (&["a", ""], ErrorKind::InvalidName, "empty"),
        (&["a", "half}tag"], ErrorKind::InvalidName, "`half}tag`"),
        (&many, ErrorKind::InvalidSetting, "`129`"),
    ] {
        let locks = a.locks(names);
        let tried = locks.try_acquire().await.map(drop).unwrap_err();
        let waited = locks.acquire().await.map(drop).unwrap_err();
        for error in [tried, waited] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(told), "{error}");
        }
    }
    let error = a.locks(["a", "b"]).ttl(ms(1)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting);
    assert_eq!(a.stats().acquired, 0);
    assert!(stage.is_clean("a").await);
}

async fn a_shutdown_releases_several_locks(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.locks(TOGETHER).acquire().await.unwrap();
    assert_eq!(a.shutdown(ms(5_000)).await, vec![]);
    let (_, reason) = timeout(LONG, guard.lost()).await.unwrap();
    assert_eq!(reason, LostReason::Shutdown);
    assert!(b.locks(TOGETHER).try_acquire().await.unwrap().is_some());
    let error = a.locks(TOGETHER).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

async fn a_thread_without_a_runtime_acquires_several_locks(stage: Stage) {
    let other = stage.client().await;
    let builder = stage.builder();
    let thread = std::thread::spawn(move || {
        let locks = builder.connect_blocking().unwrap();
        let guard = locks.locks(TOGETHER).wait(LONG).acquire().unwrap();
        assert!(guard.fence(TOGETHER[0]).is_some());
        assert!(locks.locks(TOGETHER).try_acquire().unwrap().is_none());
        for (_, released) in guard.release().unwrap() {
            assert_eq!(released, Released::WasHeld);
        }
        let counted = locks.locks(APART).with(|guard| guard.fences().count());
        assert_eq!(counted.unwrap(), 3);
    });
    thread.join().unwrap();
    assert!(other.locks(TOGETHER).try_acquire().await.unwrap().is_some());
}
