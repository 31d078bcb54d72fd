//! Once per fire time: of all processes whose timer fires for it, at most one completes.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::{ErrorKind, Once, OnceState, Run, Start, Tenure};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    native:
    of_all_that_fire_together_one_runs,
    a_late_process_finds_a_quick_run_completed,
    a_process_that_comes_meanwhile_finds_the_run,
    a_run_that_ended_is_not_repeated,
    a_run_that_ended_is_repeated_if_wanted,
    a_crashed_run_is_repeated_after_its_lease_and_cannot_complete,
    a_run_may_complete_after_its_lease_if_no_other_began,
    those_who_wait_are_told_what_came_of_the_run,
    a_waiter_of_the_same_process_does_not_go_on_with_the_run,
    a_limited_wait_for_a_run_ends,
    a_begin_that_is_dropped_leaves_no_run,
    fire_times_and_schedules_are_told_apart,
    a_run_is_remembered_for_as_long_as_asked,
    a_run_that_takes_longer_than_it_is_remembered_completes,
    fences_of_runs_grow,
    work_completes_only_if_it_succeeds,
    work_is_cancelled_when_its_run_is_lost,
    a_plain_lock_of_that_name_excludes_a_run,
    runs_are_listed,
    a_shutdown_ends_a_run_without_completing_it,
    what_cannot_be_is_refused_before_anything_is_sent,
}

/// Longer than a waiter that hears nothing sleeps on its own.
const LIMIT: Duration = ms(30_000);
const TIME: &str = "2026-03-01T03:00Z";

async fn client(stage: &Stage) -> Tenure {
    Tenure::connect(stage.url()).await.unwrap()
}

/// The fire time that most cases are about.
fn nightly(client: &Tenure) -> Once {
    client.once("nightly", TIME)
}

/// One whose run is not renewed, so that it ends as that of a process that died.
fn brief(client: &Tenure) -> Once {
    nightly(client).ttl(ms(1_500)).no_renewal()
}

async fn begun(once: &Once) -> Run {
    match once.try_begin().await.unwrap() {
        Start::Here(run) => run,
        Start::Elsewhere(state) => panic!("not here: {state}"),
    }
}

async fn not_begun(once: &Once) -> OnceState {
    match once.try_begin().await.unwrap() {
        Start::Here(run) => panic!("it began here: {run:?}"),
        Start::Elsewhere(state) => state,
    }
}

/// Starts to wait for the run in progress, and returns when the store has the caller in its queue.
async fn waiting(client: &Tenure, once: Once) -> JoinHandle<Start> {
    let busy = client.stats().busy;
    let waiter = tokio::spawn(async move { once.begin().await.unwrap() });
    // Who is refused a second time has joined the queue in the same step.
    let is_queued = soon(async || client.stats().busy >= busy + 2).await;
    assert!(is_queued, "it does not wait");
    waiter
}

async fn done(waiter: JoinHandle<Start>) -> Start {
    timeout(LIMIT, waiter).await.expect("in time").unwrap()
}

async fn of_all_that_fire_together_one_runs(stage: Stage) {
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = client(&stage).await;
        for _ in 0..3 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                let mut completed = BTreeSet::new();
                for fire_time in 0..10 {
                    let once = client.once("nightly", fire_time);
                    if let Start::Here(run) = once.try_begin().await.unwrap() {
                        run.complete().await.unwrap();
                        completed.insert(fire_time);
                    }
                }
                completed
            }));
        }
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(timeout(LIMIT, task).await.expect("in time").unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
}

async fn a_late_process_finds_a_quick_run_completed(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let run = begun(&nightly(&a)).await;
    let lease = run.guard().lease_id().clone();
    run.complete().await.unwrap();
    let completed = OnceState::Completed(lease);
    assert_eq!(not_begun(&nightly(&b)).await, completed);
    assert_eq!(not_begun(&nightly(&b).retry(true)).await, completed);
    let Start::Elsewhere(state) = nightly(&b).begin().await.unwrap() else {
        panic!("it began")
    };
    assert_eq!(state, completed);
    let name = format!("nightly@{TIME}");
    assert!(!b.lock(name).is_locked().await.unwrap());
}

async fn a_process_that_comes_meanwhile_finds_the_run(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    assert_eq!(nightly(&b).state().await.unwrap(), OnceState::New);
    let run = begun(&nightly(&a)).await;
    let running = OnceState::Running(run.guard().lease_id().clone());
    for once in [nightly(&b), nightly(&b).retry(true), nightly(&a)] {
        assert_eq!(not_begun(&once).await, running);
    }
    assert_eq!(nightly(&b).state().await.unwrap(), running);
    run.complete().await.unwrap();
}

async fn a_run_that_ended_is_not_repeated(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let run = begun(&brief(&a)).await;
    let ended = OnceState::Ended(run.guard().lease_id().clone());
    assert!(soon(async || nightly(&b).state().await.unwrap() == ended).await);
    assert!(!run.is_valid());
    assert_eq!(not_begun(&nightly(&b)).await, ended);
    drop(run);
    assert_eq!(not_begun(&nightly(&a)).await, ended);
    let Start::Elsewhere(state) = nightly(&b).begin().await.unwrap() else {
        panic!("it began")
    };
    assert_eq!(state, ended);
}

async fn a_run_that_ended_is_repeated_if_wanted(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let run = begun(&nightly(&a)).await;
    drop(run);
    let is_over = async || matches!(nightly(&b).state().await.unwrap(), OnceState::Ended(_));
    assert!(soon(is_over).await);
    let again = begun(&nightly(&b).retry(true)).await;
    again.complete().await.unwrap();
    let state = nightly(&a).state().await.unwrap();
    assert!(matches!(state, OnceState::Completed(_)), "{state}");
}

async fn a_crashed_run_is_repeated_after_its_lease_and_cannot_complete(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let crashed = begun(&brief(&a)).await;
    let retried = waiting(&b, nightly(&b).retry(true)).await;
    let Start::Here(again) = done(retried).await else {
        panic!("it is not repeated")
    };
    assert!(!crashed.is_valid());
    assert!(again.fence() > crashed.fence());
    let error = crashed.complete().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(error.to_string().contains("another has begun"), "{error}");
    let state = nightly(&a).state().await.unwrap();
    assert!(matches!(state, OnceState::Running(_)), "{state}");
    again.complete().await.unwrap();
}

async fn a_run_may_complete_after_its_lease_if_no_other_began(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let run = begun(&brief(&a)).await;
    let is_over = async || matches!(nightly(&b).state().await.unwrap(), OnceState::Ended(_));
    assert!(soon(is_over).await);
    run.complete().await.unwrap();
    let state = not_begun(&nightly(&b).retry(true)).await;
    assert!(matches!(state, OnceState::Completed(_)), "{state}");
}

async fn those_who_wait_are_told_what_came_of_the_run(stage: Stage) {
    let runs = client(&stage).await;
    let run = begun(&nightly(&runs)).await;
    let (mut clients, mut waiters) = (Vec::new(), Vec::new());
    for retry in [false, true, false] {
        let client = client(&stage).await;
        waiters.push(waiting(&client, nightly(&client).retry(retry)).await);
        clients.push(client);
    }
    run.complete().await.unwrap();
    for waiter in waiters {
        let start = done(waiter).await;
        assert!(
            matches!(&start, Start::Elsewhere(OnceState::Completed(_))),
            "{start:?}"
        );
    }
}

/// A lease that is handed on in a process keeps its id, by which runs are told apart.
async fn a_waiter_of_the_same_process_does_not_go_on_with_the_run(stage: Stage) {
    let client = client(&stage).await;
    let run = begun(&nightly(&client)).await;
    let waiter = waiting(&client, nightly(&client)).await;
    drop(run);
    let start = done(waiter).await;
    assert!(
        matches!(&start, Start::Elsewhere(OnceState::Ended(_))),
        "{start:?}"
    );
}

async fn a_limited_wait_for_a_run_ends(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let run = begun(&nightly(&a)).await;
    let error = nightly(&b).wait(ms(50)).begin().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    run.complete().await.unwrap();
}

async fn a_begin_that_is_dropped_leaves_no_run(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let mut dropped = 0;
    for polls in 1..7 {
        let once = a.once("nightly", polls);
        let mut beginning = Box::pin(once.try_begin());
        let mut start = None;
        for _ in 0..polls {
            tokio::select! {
                biased;
                begun = &mut beginning => {
                    start = Some(begun.unwrap());
                    break;
                }
                () = std::future::ready(()) => {}
            }
            // What it asked for arrives, so that it is dropped in each of its steps.
            tokio::time::sleep(ms(50)).await;
        }
        drop(beginning);
        if start.is_none() {
            dropped += 1;
            let other = b.once("nightly", polls);
            let is_new = async || other.state().await.unwrap() == OnceState::New;
            assert!(soon(is_new).await, "a run is left after {polls} polls");
            begun(&other).await.complete().await.unwrap();
        }
    }
    assert!(dropped > 0, "every call was faster");
}

async fn fire_times_and_schedules_are_told_apart(stage: Stage) {
    let client = client(&stage).await;
    let runs = [
        begun(&client.once("nightly", TIME)).await,
        begun(&client.once("nightly", "2026-03-02T03:00Z")).await,
        begun(&client.once("hourly", TIME)).await,
        begun(&client.once("{tag}ged", 1_772_334_000)).await,
    ];
    let names: BTreeSet<_> = runs.iter().map(|run| run.name().to_string()).collect();
    assert_eq!(names.len(), runs.len());
    for run in runs {
        run.complete().await.unwrap();
    }
    let state = client.once("hourly", "2026-03-02T03:00Z").state().await;
    assert_eq!(state.unwrap(), OnceState::New);
}

async fn a_run_is_remembered_for_as_long_as_asked(stage: Stage) {
    let client = client(&stage).await;
    let short = nightly(&client).ttl(ms(200)).remember(ms(1_000));
    begun(&short).await.complete().await.unwrap();
    let long = client.once("hourly", TIME).remember(ms(3_600_000));
    begun(&long.ttl(ms(200))).await.complete().await.unwrap();
    assert!(soon(async || nightly(&client).state().await.unwrap() == OnceState::New).await);
    let state = client.once("hourly", TIME).state().await.unwrap();
    assert!(matches!(state, OnceState::Completed(_)), "{state}");
    begun(&nightly(&client)).await.complete().await.unwrap();
}

async fn a_run_that_takes_longer_than_it_is_remembered_completes(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let run = begun(&nightly(&a).ttl(ms(600)).remember(ms(600))).await;
    let since = std::time::Instant::now();
    // It is renewed meanwhile, and the record of its begin ends.
    assert!(soon(async || since.elapsed() > ms(1_500)).await);
    let running = OnceState::Running(run.guard().lease_id().clone());
    assert_eq!(not_begun(&nightly(&b)).await, running);
    run.complete().await.unwrap();
}

async fn fences_of_runs_grow(stage: Stage) {
    let client = client(&stage).await;
    let once = nightly(&client).retry(true);
    let mut last = None;
    for _ in 0..3 {
        let Start::Here(run) = once.begin().await.unwrap() else {
            panic!("it does not begin")
        };
        assert!(Some(run.fence()) > last);
        last = Some(run.fence());
        drop(run);
    }
}

async fn work_completes_only_if_it_succeeds(stage: Stage) {
    type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
    let client = client(&stage).await;
    let failed: Result<Option<()>> = nightly(&client).run(async |_| Err("no disk".into())).await;
    assert_eq!(failed.unwrap_err().to_string(), "no disk");
    let is_over = async || matches!(nightly(&client).state().await.unwrap(), OnceState::Ended(_));
    assert!(soon(is_over).await);
    let skipped: Result<Option<()>> = nightly(&client).run(async |_| unreachable!()).await;
    assert!(skipped.unwrap().is_none());
    let again = nightly(&client).retry(true);
    let worked: Result<Option<u32>> = again.run(async |_| Ok(42)).await;
    assert_eq!(worked.unwrap(), Some(42));
    let state = nightly(&client).state().await.unwrap();
    assert!(matches!(state, OnceState::Completed(_)), "{state}");
}

async fn work_is_cancelled_when_its_run_is_lost(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let once = nightly(&a).ttl(ms(2_000));
    let work = once.run(async |run| {
        let id = run.guard().lease_id();
        b.force_release(run.name().as_str(), id).await.unwrap();
        std::future::pending::<Result<(), tenure::Error>>().await
    });
    let error = timeout(LIMIT, work).await.expect("cancelled").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let state = nightly(&b).state().await.unwrap();
    assert!(matches!(state, OnceState::Ended(_)), "{state}");
}

async fn a_plain_lock_of_that_name_excludes_a_run(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let name = format!("nightly@{TIME}");
    let guard = a.lock(&name).acquire().await.unwrap();
    let running = OnceState::Running(guard.lease_id().clone());
    assert_eq!(not_begun(&nightly(&b)).await, running);
    guard.release().await.unwrap();
    begun(&nightly(&b)).await.complete().await.unwrap();

    let readers = a.lock("r@1").shared().acquire().await.unwrap();
    let state = not_begun(&b.once("r", 1)).await;
    assert!(matches!(state, OnceState::Running(_)), "{state}");
    drop(readers);
}

async fn runs_are_listed(stage: Stage) {
    let client = client(&stage).await;
    let run = begun(&nightly(&client).meta("why", "backup")).await;
    let name = run.name().clone();
    let is_listed = async || {
        let listing = client.list(|_| true).await.unwrap();
        listing.locks.iter().any(|listed| listed.name == name)
    };
    assert!(soon(is_listed).await);
    let holder = client.lock(&name).holder().await.unwrap().unwrap();
    assert_eq!(holder.meta["why"], "backup");
    run.complete().await.unwrap();
}

async fn a_shutdown_ends_a_run_without_completing_it(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let run = begun(&nightly(&a)).await;
    assert!(a.shutdown(LIMIT).await.is_empty());
    assert!(!run.is_valid());
    let state = nightly(&b).state().await.unwrap();
    assert!(matches!(state, OnceState::Ended(_)), "{state}");
    let error = nightly(&a).try_begin().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

async fn what_cannot_be_is_refused_before_anything_is_sent(stage: Stage) {
    let client = client(&stage).await;
    let invalid = ErrorKind::InvalidSetting;
    let long = "x".repeat(129);
    for (once, kind, text) in [
        (client.once("nightly", ""), invalid, "fire time"),
        (
            client.once("nightly", "3@4"),
            invalid,
            "`3@4` as the fire time",
        ),
        (client.once("nightly", "{3}"), invalid, "without `@`"),
        (client.once("nightly", "3\n"), invalid, "`3\\n`"),
        (client.once("nightly", long), invalid, "1 to 128 bytes"),
        (client.once("", 3), ErrorKind::InvalidName, "empty"),
        (client.once("tenure:x", 3), ErrorKind::InvalidName, "prefix"),
        (
            client.once("x".repeat(512), 3),
            ErrorKind::InvalidName,
            "514",
        ),
        (nightly(&client).remember(ms(29_999)), invalid, "remember"),
        (
            nightly(&client).remember(Duration::from_secs(400_000_000)),
            invalid,
            "ten years",
        ),
        (nightly(&client).ttl(ms(1)), invalid, "ttl"),
    ] {
        for error in [
            once.try_begin().await.unwrap_err(),
            once.begin().await.unwrap_err(),
            once.state().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
    assert_eq!(nightly(&client).state().await.unwrap(), OnceState::New);
}
