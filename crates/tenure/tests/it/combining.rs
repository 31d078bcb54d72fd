//! Requests of concurrent callers travel together, and each has its own outcome.
//!
//! The replies are held while the callers ask: the first requests are sent at once, and the others wait
//! for the next call. The test's own runtime has one thread, so that all have asked after one round.

use tenure::{Error, ErrorKind, Guard, Released, Tenure};
use tenure_testkit::{RedisServer, eventually};
use tokio::task::JoinHandle;

use crate::hazards::wire::{SOON, Wire};
use crate::stage::{ms, soon};

const CALLERS: usize = 40;

#[tenure_testkit::test]
async fn many_callers_share_few_calls_and_each_gets_its_own_lock() {
    let wire = Wire::start();
    let client = known_to(&wire).await;
    let fence_before = wire.fence("").unwrap();
    wire.server.reset_stats();
    let guards = all(ask_together(&wire, &client).await).await;
    for (caller, guard) in guards.iter().enumerate() {
        let guard = guard.as_ref().unwrap().as_ref().unwrap();
        assert_eq!(guard.name().as_str(), name(caller));
        assert_eq!(
            wire.holder(&name(caller)).as_ref(),
            Some(guard.lease_id()),
            "{caller}"
        );
        assert!(guard.fence().get() > fence_before, "{caller}");
        assert!(wire.fence(&name(caller)) >= Some(guard.fence().get()));
    }
    let calls = wire.server.command_calls("exec");
    assert!(calls <= 5, "{calls} calls for {CALLERS} locks");

    wire.server.reset_stats();
    let releases = release_together(&wire, guards).await;
    assert_eq!(releases, vec![Released::WasHeld; CALLERS]);
    let calls = wire.server.command_calls("evalsha");
    assert!(calls <= 5, "{calls} calls for {CALLERS} releases");
    is_clean(&wire);
}

/// Locks that others hold, in the middle of those that are free.
#[tenure_testkit::test]
async fn a_busy_lock_makes_no_other_busy() {
    let wire = Wire::start();
    let client = known_to(&wire).await;
    let other = wire.bystander().await;
    let mut held = Vec::new();
    for caller in (0..CALLERS).step_by(3) {
        held.push(other.lock(name(caller)).acquire().await.unwrap());
    }
    let guards = all(ask_together(&wire, &client).await).await;
    for (caller, guard) in guards.iter().enumerate() {
        let granted = guard.as_ref().unwrap().is_some();
        assert_eq!(granted, caller % 3 != 0, "{caller}");
    }
    drop((guards, held));
    is_clean(&wire);
}

/// A name that has become something else than a lock.
#[tenure_testkit::test]
async fn a_key_of_another_type_fails_alone() {
    let wire = Wire::start();
    let client = known_to(&wire).await;
    let mut redis = wire.server.client();
    redis.command(&["HSET", &name(7), "field", "value"]);
    let guards = all(ask_together(&wire, &client).await).await;
    for (caller, guard) in guards.iter().enumerate() {
        match guard {
            Err(error) if caller == 7 => assert_eq!(error.kind(), ErrorKind::NotALock, "{error}"),
            guard => assert!(
                guard.as_ref().is_ok_and(Option::is_some),
                "{caller}: {guard:?}"
            ),
        }
    }
    drop(guards);
    redis.command(&["DEL", &name(7)]);
    is_clean(&wire);
}

/// The server refuses a transaction as a whole if one of its commands is forbidden.
#[tenure_testkit::test]
async fn a_forbidden_lock_fails_alone() {
    let server = RedisServer::builder().user("worker", "on >pw ~* &* +@all");
    let wire = Wire::to(server);
    let url = format!("redis://worker:pw@{}", wire.proxy.addr());
    let client = Tenure::connect(url).await.unwrap();
    learn(&client).await;
    let mut redis = wire.server.client();
    // All but the lock with the number 7.
    let rules = ["resetkeys", "~lock-[^7]", "~lock-??", "~tenure:*"];
    let user = ["ACL", "SETUSER", "worker"];
    redis.command(&[&user[..], &rules[..]].concat());
    let guards = all(ask_together(&wire, &client).await).await;
    for (caller, guard) in guards.iter().enumerate() {
        match guard {
            Err(error) if caller == 7 => assert_eq!(error.kind(), ErrorKind::Denied, "{error}"),
            guard => assert!(
                guard.as_ref().is_ok_and(Option::is_some),
                "{caller}: {guard:?}"
            ),
        }
    }
    drop(guards);
    is_clean(&wire);
}

/// Callers that go away: some before their request was sent, some after.
#[tenure_testkit::test]
async fn callers_that_go_away_leave_nothing() {
    let wire = Wire::start();
    let client = known_to(&wire).await;
    for round in 0..5 {
        wire.proxy.hold_replies();
        let asking = ask(&client).await;
        assert!(is_one_granted(&wire), "round {round}");
        wire.server.reset_stats();
        for (caller, asking) in asking.iter().enumerate() {
            if caller % 2 == round % 2 {
                asking.abort();
            }
        }
        tokio::task::yield_now().await;
        // Most are cancelled before they were sent. They must not be sent after that.
        let cancels = || wire.server.command_calls("evalsha") >= CALLERS as u64 / 4;
        assert!(eventually(SOON, cancels), "round {round}");
        wire.proxy.release_replies();
        for asking in asking {
            if let Ok(guard) = asking.await {
                guard.unwrap().unwrap().release().await.unwrap();
            }
        }
        is_clean(&wire);
    }
}

/// The connection ends in the middle of a batch: its callers get their locks by another one.
#[tenure_testkit::test]
async fn a_batch_that_is_cut_off_is_made_good() {
    let wire = Wire::start();
    let client = known_to(&wire).await;
    for bytes in [1, 300, 2_000, 5_000] {
        wire.proxy.hold_replies();
        let asking = ask(&client).await;
        assert!(is_one_granted(&wire));
        wire.proxy.cut_request_after(bytes);
        wire.proxy.release_replies();
        let guards = all(asking).await;
        for (caller, guard) in guards.into_iter().enumerate() {
            let guard = guard.unwrap().unwrap();
            assert_eq!(wire.holder(&name(caller)).as_ref(), Some(guard.lease_id()));
            guard.release().await.unwrap();
        }
        is_clean(&wire);
    }
}

/// A server that has forgotten the script.
#[tenure_testkit::test]
async fn releases_go_on_when_the_server_forgets_the_script() {
    let wire = Wire::start();
    let client = known_to(&wire).await;
    for _ in 0..3 {
        let guards = all(ask_together(&wire, &client).await).await;
        wire.server.script_flush();
        let releases = release_together(&wire, guards).await;
        assert_eq!(releases, vec![Released::WasHeld; CALLERS]);
        is_clean(&wire);
    }
}

/// Clients that wait for some of the locks get them.
#[tenure_testkit::test]
async fn waiters_are_offered_what_is_released_together() {
    let wire = Wire::start();
    let client = known_to(&wire).await;
    let other = wire.bystander().await;
    let guards = all(ask_together(&wire, &client).await).await;
    let waiting: Vec<_> = (0..CALLERS)
        .step_by(5)
        .map(|caller| {
            // A waiter that is not offered the lock polls after ten seconds.
            let lock = other.lock(name(caller)).wait(ms(8_000));
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    let expected = waiting.len() as u64;
    assert!(soon(async || other.stats().busy >= 2 * expected).await);
    let releases = release_together(&wire, guards).await;
    assert_eq!(releases, vec![Released::WasHeld; CALLERS]);
    for waiting in waiting {
        let guard = waiting.await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    }
    is_clean(&wire);
}

/// A release that comes too late must not free the lock of the next holder, also in a batch.
#[tenure_testkit::test]
async fn what_another_holds_is_not_released() {
    let wire = Wire::start();
    let client = known_to(&wire).await;
    let guards = all(ask_together(&wire, &client).await).await;
    let mut redis = wire.server.client();
    for caller in (0..CALLERS).step_by(2) {
        redis.command(&["SET", &name(caller), "another", "PX", "60000"]);
    }
    let releases = release_together(&wire, guards).await;
    for (caller, released) in releases.into_iter().enumerate() {
        let is_mine = caller % 2 == 1;
        assert_eq!(released == Released::WasHeld, is_mine, "{caller}");
        let left = wire.holder(&name(caller));
        assert_eq!(left.is_none(), is_mine, "{caller}: {left:?}");
    }
}

fn name(caller: usize) -> String {
    format!("lock-{caller}")
}

/// A client that has acquired all locks before, so that it needs no script for them.
async fn known_to(wire: &Wire) -> Tenure {
    let client = wire.client().await;
    learn(&client).await;
    client
}

async fn learn(client: &Tenure) {
    for caller in 0..CALLERS {
        let guard = client.lock(name(caller)).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}

type Asking = JoinHandle<Result<Option<Guard>, Error>>;

/// Lets every caller ask for its lock.
async fn ask(client: &Tenure) -> Vec<Asking> {
    let asking = (0..CALLERS).map(|caller| {
        let lock = client.lock(name(caller));
        tokio::spawn(async move { lock.try_acquire().await })
    });
    let asking = asking.collect();
    tokio::task::yield_now().await;
    asking
}

async fn ask_together(wire: &Wire, client: &Tenure) -> Vec<Asking> {
    wire.proxy.hold_replies();
    let asking = ask(client).await;
    wire.proxy.release_replies();
    asking
}

async fn all(asking: Vec<Asking>) -> Vec<Result<Option<Guard>, Error>> {
    let mut guards = Vec::new();
    for asking in asking {
        guards.push(asking.await.unwrap());
    }
    guards
}

async fn release_together(wire: &Wire, guards: Vec<Result<Option<Guard>, Error>>) -> Vec<Released> {
    wire.proxy.hold_replies();
    let releasing: Vec<_> = guards
        .into_iter()
        .map(|guard| tokio::spawn(guard.unwrap().unwrap().release()))
        .collect();
    tokio::task::yield_now().await;
    wire.proxy.release_replies();
    let mut releases = Vec::new();
    for releasing in releasing {
        releases.push(releasing.await.unwrap().unwrap());
    }
    releases
}

fn is_one_granted(wire: &Wire) -> bool {
    eventually(SOON, || {
        (0..CALLERS).any(|caller| wire.holder(&name(caller)).is_some())
    })
}

#[track_caller]
fn is_clean(wire: &Wire) {
    for caller in 0..CALLERS {
        assert!(wire.is_clean_soon(&name(caller)), "{caller}");
    }
}
