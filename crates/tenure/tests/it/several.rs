//! Several names at once, where a real server counts, refuses, loses replies, and holders die.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{ErrorKind, MultiGuard, Released, Tenure};
use tenure_testkit::{ClientProcess, Cluster, Proxy, RedisServer, eventually};
use tokio::time::timeout;

use crate::hazards::wire::{SOON, Wire};
use crate::stage::{ms, soon};
use crate::verdict::{check_error, check_nothing_left, refused};

const LONG: Duration = ms(30_000);

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("name:{number}")).collect()
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn several_locks_take_one_round_trip_and_one_to_release() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    // The first fence creates its counter.
    let first = tenure.lock("first").acquire().await.unwrap();
    first.release().await.unwrap();
    let scripts = || server.command_calls("evalsha") + server.command_calls("eval");
    for count in [2, 8, 64] {
        let locks = tenure.locks(names(count));
        server.reset_stats();
        let guard = locks.acquire().await.unwrap();
        assert_eq!(scripts(), 1, "to acquire {count}");
        assert_eq!(server.command_calls("xadd"), 1, "fences for {count}");
        guard.release().await.unwrap();
        assert_eq!(scripts(), 2, "to release {count}");
        let guard = locks.try_acquire().await.unwrap().unwrap();
        assert_eq!(scripts(), 3, "to try {count}");
        drop(guard);
        let free = || server.client().command(&["EXISTS", "name:0"]).int() == 0;
        assert!(eventually(SOON, free));
        assert_eq!(scripts(), 4, "to release {count} by dropping the guard");
        assert_eq!(server.command_calls("exec"), 0);
        assert_eq!(server.command_calls("publish"), 0);
    }
}

/// What it had at first ends while it waits for the rest.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_lock_that_is_lost_while_others_are_waited_for_is_acquired_again() {
    let server = RedisServer::start();
    let (a, b) = (
        Tenure::connect(server.url()).await.unwrap(),
        Tenure::connect(server.url()).await.unwrap(),
    );
    // In the same slot, so they are ordered by name.
    let second = b.lock("{n}second").acquire().await.unwrap();
    let both = a.locks(["{n}first", "{n}second"]);
    let both = both.ttl(ms(2_000)).no_renewal();
    let waiter = tokio::spawn(async move { both.acquire().await.unwrap() });
    let has_first = || server.client().command(&["EXISTS", "{n}first"]).int() == 1;
    // After a second it keeps what it has.
    assert!(eventually(SOON, has_first));
    assert!(eventually(SOON, || !has_first()), "it ends");
    second.release().await.unwrap();
    let guard = timeout(LONG, waiter).await.expect("in time").unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_busy_one_of_several_is_found_in_one_round_trip_that_writes_nothing() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let _held = tenure.lock("name:7").acquire().await.unwrap();
    server.reset_stats();
    let tried = tenure.locks(names(64)).try_acquire().await.unwrap();
    assert!(tried.is_none());
    assert_eq!(server.command_calls("evalsha"), 1);
    assert_eq!(server.command_calls("set"), 0);
}

/// M2: callers that do not wait hold both locks or none, whenever somebody looks.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_some_of_several_locks_held() {
    let server = RedisServer::start();
    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let (mut redis, is_over) = (server.client(), Arc::clone(&is_over));
        move || {
            let (mut held, mut free) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                // One command: it sees both at the same moment.
                match redis.command(&["EXISTS", "a", "b", "c"]).int() {
                    0 => free += 1,
                    3 => held += 1,
                    some => panic!("{some} of 3 are held"),
                }
            }
            (held, free)
        }
    });
    let mut tasks = Vec::new();
    for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]] {
        let tenure = Tenure::connect(server.url()).await.unwrap();
        tasks.push(tokio::spawn(async move {
            let mut turns = 0;
            while turns < 100 {
                let Some(guard) = tenure.locks(order).try_acquire().await.unwrap() else {
                    tokio::task::yield_now().await;
                    continue;
                };
                turns += 1;
                if turns % 2 == 0 {
                    guard.release().await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        timeout(ms(120_000), task)
            .await
            .expect("no progress")
            .unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let (held, free) = watcher.join().unwrap();
    assert!(held > 0 && free > 0, "held {held}, free {free}");
}

/// Each of them is offered to its waiter, also if others are simply free.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_release_of_several_locks_offers_each_to_its_waiter() {
    let server = RedisServer::start();
    let holder = Tenure::connect(server.url()).await.unwrap();
    let waiter = Tenure::connect(server.url()).await.unwrap();
    let guard = holder.locks(["a", "b", "c"]).acquire().await.unwrap();
    let waiting: Vec<_> = ["a", "c"]
        .map(|name| {
            let lock = waiter.lock(name);
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .into();
    let mut redis = server.client();
    let waits = || {
        let queues = ["tenure:queue:{a}", "tenure:queue:{c}"];
        redis.command(&[&["EXISTS"][..], &queues].concat()).int() == 2
    };
    assert!(eventually(SOON, waits), "they do not wait");
    for (name, released) in guard.release().await.unwrap() {
        assert_eq!(released, Released::WasHeld, "{name}");
    }
    for waiting in waiting {
        let guard = timeout(LONG, waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    assert!(waiter.stats().woken_by_message >= 2, "they were not told");
    assert_eq!(redis.command(&["EXISTS", "a", "b", "c"]).int(), 0);
}

#[tenure_testkit::test]
async fn a_key_that_is_no_lock_leaves_none_of_the_others() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.client().command(&["RPUSH", "b", "x"]);
    let locks = tenure.locks(["a", "b", "c"]).meta("job", "7");
    for error in [
        refused(locks.try_acquire().await),
        refused(locks.acquire().await),
    ] {
        check_error(&error, ErrorKind::NotALock, &["`b`", "list"]);
    }
    check_nothing_left(&server, "a");
    check_nothing_left(&server, "c");
    assert_eq!(server.client().command(&["LLEN", "b"]).int(), 1);
}

#[tenure_testkit::test]
async fn a_fence_counter_that_is_none_leaves_no_lock() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.client().command(&["SET", "tenure:fences:{b}", "x"]);
    let error = refused(tenure.locks(["a", "b", "c"]).try_acquire().await);
    check_error(&error, ErrorKind::Protocol, &["tenure:fences:{b}"]);
    let left = server.client().command(&["EXISTS", "a", "b", "c"]).int();
    assert_eq!(left, 0);
}

#[tenure_testkit::test]
async fn a_forbidden_key_leaves_none_of_the_others() {
    let rules = "on >pw +@all &* ~a ~c ~tenure:* %R~b";
    let server = RedisServer::builder().user("worker", rules).start();
    let url = format!("redis://worker:pw@{}", server.addr());
    let tenure = Tenure::connect(url).await.unwrap();
    let locks = tenure.locks(["a", "b", "c"]);
    for error in [
        refused(locks.try_acquire().await),
        refused(locks.acquire().await),
    ] {
        check_error(&error, ErrorKind::Denied, &[]);
    }
    check_nothing_left(&server, "a");
    check_nothing_left(&server, "c");
    let allowed = tenure.locks(["a", "c"]).acquire().await.unwrap();
    allowed.release().await.unwrap();
}

#[tenure_testkit::test]
async fn a_user_without_mget_can_still_acquire_several_locks() {
    let rules = "on >pw ~* &* +@all -mget";
    let server = RedisServer::builder().user("worker", rules).start();
    let url = format!("redis://worker:pw@{}", server.addr());
    let tenure = Tenure::connect(url).await.unwrap();
    let locks = tenure.locks(["a", "b"]);
    let guard = locks.acquire().await.unwrap();
    assert!(locks.try_acquire().await.unwrap().is_none());
    for (name, released) in guard.release().await.unwrap() {
        assert_eq!(released, Released::WasHeld, "{name}");
    }
    server.client().command(&["RPUSH", "b", "x"]);
    check_error(
        &refused(locks.try_acquire().await),
        ErrorKind::NotALock,
        &["`b`"],
    );
    check_nothing_left(&server, "a");
}

/// A client that knew no shared counter, or many hand-offs, leave a lock with a counter of its own.
#[tenure_testkit::test]
async fn a_lock_with_a_fence_counter_of_its_own_gets_a_greater_fence() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let first = tenure.locks(["a", "b"]).acquire().await.unwrap();
    let fence = first.fence("b").unwrap().get();
    first.release().await.unwrap();
    // A minute ahead of the clock.
    let ahead = fence + 60_000_000;
    let id = format!("{}-{}", ahead / 1_000, ahead % 1_000);
    let mut redis = server.client();
    redis.command(&["XADD", "tenure:fences:{b}", "MAXLEN", "0", &id, "f", ""]);
    let second = tenure.locks(["a", "b"]).acquire().await.unwrap();
    assert!(second.fence("b").unwrap().get() > ahead);
    assert!(second.fence("a").unwrap().get() > fence);
    assert!(second.fence("a").unwrap().get() < ahead, "only its own");
    second.release().await.unwrap();
    let single = tenure.lock("b").acquire().await.unwrap();
    assert!(single.fence().get() > ahead + 1);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_for_several_locks_ends_in_one_grant() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.proxy.reset_after_request_with(b"EVALSHA");
    let guard = a.locks(["a", "b"]).try_acquire().await.unwrap();
    let guard = guard.expect("it was granted, and reported as busy");
    assert!(a.stats().unknown_outcomes >= 1, "no reply was lost");
    for (name, id) in guard.lease_ids() {
        assert_eq!(wire.holder(name.as_str()).as_ref(), Some(id));
    }
    for (name, released) in guard.release().await.unwrap() {
        assert_eq!(released, Released::WasHeld, "{name}");
        assert!(wire.is_clean_soon(name.as_str()));
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_whose_grant_stays_unknown_are_released() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.proxy.drop_replies();
    let trying = a.locks(["a", "b"]);
    let trying = tokio::spawn(async move { trying.acquire().await });
    assert!(wire.is_granted_soon("a"));
    trying.abort();
    let _ = trying.await;
    wire.proxy.stop_dropping();
    for name in ["a", "b"] {
        assert!(wire.is_clean_soon(name), "{name} was granted to nobody");
    }
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_to_the_release_of_several_locks_is_no_lie() {
    let wire = Wire::start();
    let a = wire.client().await;
    let guard = a.locks(["a", "b"]).acquire().await.unwrap();
    wire.proxy.reset_after_request_with(b"EVALSHA");
    for (name, released) in guard.release().await.unwrap() {
        let possible = [Released::WasHeld, Released::Unknown];
        assert!(possible.contains(&released), "{name}: {released:?}");
        assert!(wire.is_clean_soon(name.as_str()));
    }
}

const URL: &str = "TENURE_TEST_SEVERAL_AT";

/// The program of a holder, for the test below.
#[test]
fn client_program() {
    let Ok(url) = std::env::var(URL) else { return };
    let tenure = tenure::blocking::Tenure::connect(url).unwrap();
    let locks = tenure.locks(["a", "b"]).ttl(ms(1_500));
    let _guard = locks.acquire().unwrap();
    println!("\nheld");
    std::thread::sleep(ms(60_000));
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_of_a_killed_process_are_free_when_their_leases_end() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "several::client_program", "--nocapture"])
        .env(URL, server.url());
    let holder = ClientProcess::spawn(&command);
    while holder.expect_line(ms(20_000)) != "held" {}
    // Longer than the ttl: it renews both.
    tokio::time::sleep(ms(1_800)).await;
    for name in ["a", "b"] {
        assert!(tenure.lock(name).try_acquire().await.unwrap().is_none());
    }
    holder.kill();
    let waiting = tenure.locks(["b", "a"]).wait(LONG).acquire().await;
    waiting.unwrap().release().await.unwrap();
}

/// A kept lease is no reason to report a lock as busy.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn kept_leases_of_any_client_give_way_to_several_locks() {
    let server = RedisServer::start();
    let keeper = Tenure::builder(server.url()).keep(ms(5_000));
    let keeper = keeper.connect().await.unwrap();
    let other = Tenure::connect(server.url()).await.unwrap();
    for client in [&keeper, &other] {
        let keep = async || {
            keeper
                .lock("b")
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            server.client().command(&["EXISTS", "b"]).int() == 1
        };
        assert!(soon(keep).await, "it keeps nothing");
        let guard = client.locks(["a", "b"]).wait(LONG).acquire().await;
        guard.unwrap().release().await.unwrap();
        // Several locks are not kept.
        assert_eq!(server.client().command(&["EXISTS", "a", "b"]).int(), 0);
    }
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn names_in_one_slot_of_a_cluster_take_one_script() {
    let cluster = Cluster::builder().masters(2).replicas(0).steady().start();
    let tenure = Tenure::connect(cluster.url()).await.unwrap();
    let names = ["{tag}:a", "{tag}:b", "{tag}:c"];
    let server = cluster.master_of_key(names[0]);
    let guard = tenure.locks(names).acquire().await.unwrap();
    guard.release().await.unwrap();
    server.reset_stats();
    let guard = tenure.locks(names).acquire().await.unwrap();
    assert_eq!(server.command_calls("evalsha"), 1, "to acquire");
    guard.release().await.unwrap();
    assert_eq!(server.command_calls("evalsha"), 2, "to release");
}

/// A node of a cluster that is used as one server learns from an error that names must be in one
/// slot.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn where_all_keys_must_be_in_one_slot_names_are_acquired_in_order() {
    let cluster = Cluster::builder().masters(1).replicas(0).steady().start();
    let server = cluster.master_of_key("a");
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let names = ["b", "a", "c"];
    let guard = tenure.locks(names).acquire().await.unwrap();
    assert!(tenure.locks(names).try_acquire().await.unwrap().is_none());
    for (name, released) in guard.release().await.unwrap() {
        assert_eq!(released, Released::WasHeld, "{name}");
    }
    let again = tenure.locks(names).try_acquire().await.unwrap();
    drop(again.expect("they are free"));
}

/// In Redisson's layout names are acquired one by one. In the order that each caller names, both would
/// hold one and wait for the other.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_hold_one_lock_and_wait_for_the_next_cannot_block_each_other() {
    let server = RedisServer::start();
    let url = format!("{}?layout=redisson", server.url());
    let holder = Tenure::connect(&url).await.unwrap();
    let (x, y) = (
        holder.lock("x").acquire().await.unwrap(),
        holder.lock("y").acquire().await.unwrap(),
    );
    let mut waiting = Vec::new();
    for order in [["x", "y"], ["y", "x"]] {
        let tenure = Tenure::connect(&url).await.unwrap();
        waiting.push(tokio::spawn(async move {
            let guard = tenure.locks(order).acquire().await.unwrap();
            guard.release().await.unwrap();
        }));
    }
    let mut redis = server.client();
    let mut waiters = |name: &str| {
        let queue = format!("tenure:queue:{{{name}}}");
        redis.command(&["ZCARD", &queue]).int()
    };
    assert!(eventually(SOON, || waiters("x") + waiters("y") == 2));
    x.release().await.unwrap();
    y.release().await.unwrap();
    for waiting in waiting {
        let done = timeout(ms(10_000), waiting).await;
        done.expect("they wait for each other").unwrap();
    }
}

/// One `WAIT` is for all, and too few replicas leave none held.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn replicas_confirm_several_locks_or_none_is_held() {
    let master = RedisServer::start();
    let link = Proxy::start(master.addr());
    let _replica = RedisServer::builder().replica_of_addr(link.addr()).start();
    let tenure = Tenure::connect(master.url()).await.unwrap();
    let locks = tenure.locks(["a", "b"]).replicas(1);
    let mut held: Option<MultiGuard> = None;
    let confirmed = soon(async || {
        held = locks.try_acquire().await.ok().flatten();
        held.is_some()
    });
    assert!(confirmed.await, "the replica does not confirm");
    held.unwrap().release().await.unwrap();
    link.black_hole();
    let error = refused(locks.try_acquire().await);
    check_error(&error, ErrorKind::NotReplicated, &["needs `1`", "only `0`"]);
    check_nothing_left(&master, "a");
    check_nothing_left(&master, "b");
}
