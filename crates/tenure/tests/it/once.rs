//! Runs of schedules where replies get lost, processes die and keys are not what they should be.

use std::time::Duration;

use tenure::{ErrorKind, Layout, OnceState, Start, Tenure, blocking};
use tenure_testkit::RedisServer;

use crate::hazards::wire::Wire;
use crate::lua::{ONCE, check_bad_numbers, eval};
use crate::stage::{ms, soon};

const LOCK: &str = "nightly@3";
const RECORD: &str = "tenure:once:{nightly@3}";

async fn begin(client: &Tenure) -> tenure::Run {
    match client.once("nightly", 3).try_begin().await.unwrap() {
        Start::Here(run) => run,
        Start::Elsewhere(state) => panic!("not here: {state}"),
    }
}

/// The step has run, and its repetition finds that.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_lost_reply_to_a_step_of_a_run_changes_nothing() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    // Both scripts are known by now, so that each step is one request.
    begin(&a).await.complete().await.unwrap();
    for (fire_time, step) in [(4, b"begin".as_slice()), (5, b"complete")] {
        let once = a.once("nightly", fire_time);
        wire.proxy.reset_after_request_with(step);
        let Start::Here(run) = once.try_begin().await.unwrap() else {
            panic!("it does not begin")
        };
        let lease = run.guard().lease_id().clone();
        run.complete().await.unwrap();
        let state = b.once("nightly", fire_time).state().await.unwrap();
        assert_eq!(state, OnceState::Completed(lease));
    }
}

/// Nobody knows whether the run began, so it counts as one that ended, and only `retry` lets another begin.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_of_unknown_outcome_counts_as_a_run_that_ended() {
    let wire = Wire::start();
    let a = wire.builder().unreachable_after(ms(1_000));
    let (a, b) = (a.connect().await.unwrap(), wire.bystander().await);
    begin(&a).await.complete().await.unwrap();
    wire.proxy.reset_after_request_with(b"begin");
    wire.proxy.refuse();
    let once = a.once("nightly", 4).ttl(ms(3_000));
    let error = once.try_begin().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let other = b.once("nightly", 4);
    let is_over = async || matches!(other.state().await.unwrap(), OnceState::Ended(_));
    assert!(soon(is_over).await);
    let Start::Elsewhere(state) = other.try_begin().await.unwrap() else {
        panic!("it began again")
    };
    assert!(matches!(state, OnceState::Ended(_)), "{state}");
    let Start::Here(run) = other.retry(true).try_begin().await.unwrap() else {
        panic!("it does not begin again")
    };
    run.complete().await.unwrap();
}

/// It knows of no run, and one begins and completes before it has the lock.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_completed_since_the_first_look_is_not_repeated() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    // The script is known by now, so that the look is one request.
    a.once("nightly", 4).state().await.unwrap();
    wire.server.reset_stats();
    wire.proxy.hold_replies();
    let once = a.once("nightly", 3);
    let slow = tokio::spawn(async move { once.try_begin().await.unwrap() });
    assert!(soon(async || wire.server.command_calls("evalsha") > 0).await);
    begin(&b).await.complete().await.unwrap();
    wire.proxy.release_replies();
    let start = slow.await.unwrap();
    let is_told = matches!(start, Start::Elsewhere(OnceState::Completed(_)));
    assert!(is_told, "{start:?}");
}

/// The server has recorded that the run begins, and its caller is gone before the reply.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_gone_when_its_run_begins_leaves_no_run() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    let (once, other) = (a.once("nightly", 3), b.once("nightly", 3));
    // Well below the response timeout.
    wire.proxy.delay_replies(ms(500));
    let mut redis = wire.server.client();
    let is_recorded = soon(async || redis.command(&["EXISTS", RECORD]).int() == 1);
    tokio::select! {
        biased;
        is_recorded = is_recorded => assert!(is_recorded),
        start = once.try_begin() => panic!("the reply was faster: {start:?}"),
    }
    wire.proxy.heal();
    let is_new = async || other.state().await.unwrap() == OnceState::New;
    assert!(soon(is_new).await, "{:?}", other.state().await);
    begin(&b).await.complete().await.unwrap();
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_run_expire() {
    let server = RedisServer::start();
    let client = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    let once = client.once("nightly", 3).remember(ms(3_600_000));
    let Start::Here(run) = once.try_begin().await.unwrap() else {
        panic!("it does not begin")
    };
    let lease = run.guard().lease_id().to_string();
    let record = redis.command(&["GET", RECORD]);
    assert_eq!(record.text(), format!("begun {lease}"));
    assert!(redis.command(&["PTTL", LOCK]).int() > 0);
    let mut kept = || redis.command(&["PTTL", RECORD]).int();
    assert!((3_000_000..=3_600_000).contains(&kept()), "{}", kept());
    run.complete().await.unwrap();
    assert!((3_000_000..=3_600_000).contains(&kept()), "{}", kept());
    let record = redis.command(&["GET", RECORD]);
    assert_eq!(record.text(), format!("completed {lease}"));
    assert_eq!(redis.command(&["EXISTS", LOCK]).int(), 0);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_not_ours_are_refused_and_left_alone() {
    let server = RedisServer::start();
    let client = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    for (key, command, kind, text) in [
        (LOCK, "HSET", ErrorKind::NotALock, "a hash"),
        (RECORD, "HSET", ErrorKind::NotALock, "a hash"),
    ] {
        redis.command(&["FLUSHALL"]);
        redis.command(&[command, key, "field", "value"]);
        let error = client.once("nightly", 3).try_begin().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(redis.command(&["TYPE", key]).text(), "hash");
        assert_eq!(redis.command(&["DBSIZE"]).int(), 1);
    }
    redis.command(&["FLUSHALL"]);
    redis.command(&["SET", RECORD, "yesterday"]);
    let error = client.once("nightly", 3).try_begin().await.unwrap_err();
    assert!(error.to_string().contains("not one of ours"), "{error}");
    assert_eq!(redis.command(&["GET", RECORD]).text(), "yesterday");
}

#[tenure_testkit::test]
async fn runs_are_refused_in_redissons_layout() {
    let server = RedisServer::start();
    let tenure = Tenure::builder(server.url()).layout(Layout::Redisson);
    let tenure = tenure.connect().await.unwrap();
    for error in [
        tenure.once("nightly", 3).try_begin().await.unwrap_err(),
        tenure.once("nightly", 3).begin().await.unwrap_err(),
        tenure.once("nightly", 3).state().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{error}");
        assert!(error.to_string().contains("Redisson's layout"), "{error}");
    }
    assert_eq!(server.client().command(&["EXISTS", LOCK, RECORD]).int(), 0);
}

#[test]
fn bad_numbers_are_refused_before_anything_is_written() {
    let keys = [LOCK, RECORD];
    let held = ["SET", LOCK, "me", "PX", "60000"];
    for step in ["begin", "complete"] {
        let good = [step, "me", "60000", ""];
        check_bad_numbers(ONCE, &keys, &good, &[2], &held);
    }
    let server = RedisServer::start();
    let mut redis = server.client();
    redis.command(&held);
    for step in ["begin", "complete"] {
        let reply = eval(&mut redis, ONCE, &keys, &[step, "me", "0", ""]);
        assert!(reply.is_err(), "{step}: {reply:?}");
    }
}

#[test]
fn runs_without_a_runtime() {
    let tenure = blocking::Tenure::connect("memory://").unwrap();
    let once = tenure.once("nightly", 3).ttl(Duration::from_secs(5));
    let blocking::Start::Here(run) = once.try_begin().unwrap() else {
        panic!("it does not begin")
    };
    assert!(run.is_valid() && run.remaining() > ms(1_000));
    // The thread does not own the run: it is refused as any other.
    let running = OnceState::Running(run.lease_id().clone());
    assert_eq!(once.state().unwrap(), running);
    let blocking::Start::Elsewhere(state) = once.try_begin().unwrap() else {
        panic!("it begins twice")
    };
    assert_eq!(state, running);
    run.complete().unwrap();
    let blocking::Start::Elsewhere(state) = once.begin().unwrap() else {
        panic!("it begins again")
    };
    assert!(matches!(state, OnceState::Completed(_)), "{state}");
}
