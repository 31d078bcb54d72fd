//! Latches: parties are counted, those who wait pass when all have arrived, and so do those who come later.

use std::time::Duration;

use tenure::{ErrorKind, Latch, PARTIES_MAX, Tenure};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::contract;
use crate::stage::{Stage, ms};

contract! {
    native:
    a_latch_opens_when_all_parties_have_arrived,
    those_who_wait_pass_when_it_opens,
    those_who_come_late_pass,
    a_repeated_arrival_counts_once,
    parties_of_several_processes_open_a_latch_once,
    nobody_passes_before_all_have_arrived,
    a_limited_wait_tells_how_many_have_arrived,
    another_number_of_parties_is_refused,
    a_latch_is_remembered_for_as_long_as_asked,
    a_latch_is_not_a_lock,
    a_waiter_that_is_dropped_leaves_nothing,
    a_shutdown_ends_a_wait,
    what_a_latch_cannot_be_is_refused,
}

/// Less than a waiter that hears nothing sleeps, so that a message that is not sent is noticed.
const TOLD: Duration = ms(10_000);
const LIMIT: Duration = ms(30_000);

async fn client(stage: &Stage) -> Tenure {
    Tenure::connect(stage.url()).await.unwrap()
}

/// Starts to wait. Whether it waits already when the latch opens must not matter.
fn waiting(latch: &Latch) -> JoinHandle<tenure::Result<()>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await })
}

async fn passes(waiter: JoinHandle<tenure::Result<()>>) {
    let passed = timeout(TOLD, waiter).await.expect("it is told in time");
    passed.unwrap().unwrap();
}

async fn a_latch_opens_when_all_parties_have_arrived(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let (here, there) = (a.latch("n", 3), b.latch("n", 3));
    assert_eq!(there.arrived().await.unwrap(), 0);
    assert_eq!(here.arrive("one").await.unwrap(), 1);
    assert_eq!(there.arrive("two").await.unwrap(), 2);
    assert_eq!(here.arrived().await.unwrap(), 2);
    assert!(!there.is_open().await.unwrap());
    assert_eq!(here.arrive("three").await.unwrap(), 3);
    assert!(there.is_open().await.unwrap());
    assert_eq!(there.arrived().await.unwrap(), 3);
}

async fn those_who_wait_pass_when_it_opens(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let (here, there) = (a.latch("n", 2), b.latch("n", 2));
    // Before the key exists, and after.
    let mut waiters = vec![waiting(&here), waiting(&there)];
    tokio::time::sleep(ms(100)).await;
    here.arrive("one").await.unwrap();
    waiters.extend([waiting(&here), waiting(&there)]);
    tokio::time::sleep(ms(100)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    there.arrive("two").await.unwrap();
    for waiter in waiters {
        passes(waiter).await;
    }
}

async fn those_who_come_late_pass(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    let latch = a.latch("n", 2);
    latch.arrive("one").await.unwrap();
    assert_eq!(latch.arrive("two").await.unwrap(), 2);
    passes(waiting(&b.latch("n", 2))).await;
    passes(waiting(&latch)).await;
    // One too many changes nothing.
    assert_eq!(b.latch("n", 2).arrive("three").await.unwrap(), 2);
    assert!(latch.is_open().await.unwrap());
    passes(waiting(&latch)).await;
}

async fn a_repeated_arrival_counts_once(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    for _ in 0..3 {
        assert_eq!(a.latch("n", 2).arrive("one").await.unwrap(), 1);
        assert_eq!(b.latch("n", 2).arrive("one").await.unwrap(), 1);
    }
    assert!(!a.latch("n", 2).is_open().await.unwrap());
    b.latch("n", 2).arrive("two").await.unwrap();
    assert_eq!(a.latch("n", 2).arrive("one").await.unwrap(), 2);
}

async fn parties_of_several_processes_open_a_latch_once(stage: Stage) {
    const PARTIES: u32 = 12;
    let mut tasks = Vec::new();
    for process in 0..3 {
        let client = client(&stage).await;
        for party in 0..PARTIES / 3 {
            let latch = client.latch("n", PARTIES);
            tasks.push(tokio::spawn(async move {
                let party = format!("{process}/{party}");
                let first = latch.arrive(&party).await.unwrap();
                latch.arrive(&party).await.unwrap();
                latch.wait().await.unwrap();
                first
            }));
        }
    }
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(timeout(LIMIT, task).await.expect("in time").unwrap());
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=PARTIES).collect::<Vec<_>>());
}

async fn nobody_passes_before_all_have_arrived(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    for need in 2..6 {
        let (here, there) = (
            a.latch(format!("n{need}"), need),
            b.latch(format!("n{need}"), need),
        );
        let waiter = waiting(&there);
        for party in 1..need {
            assert_eq!(here.arrive(party.to_string()).await.unwrap(), party);
            assert!(!there.is_open().await.unwrap());
            assert!(!waiter.is_finished());
        }
        assert_eq!(here.arrive("last").await.unwrap(), need);
        passes(waiter).await;
    }
}

async fn a_limited_wait_tells_how_many_have_arrived(stage: Stage) {
    let client = client(&stage).await;
    let latch = client.latch("n", 3);
    latch.arrive("one").await.unwrap();
    let error = latch.clone().limit(ms(50)).wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("1 of 3 parties"), "{error}");
    latch.arrive("two").await.unwrap();
    latch.arrive("three").await.unwrap();
    latch.limit(Duration::ZERO).wait().await.unwrap();
}

async fn another_number_of_parties_is_refused(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    a.latch("n", 2).arrive("one").await.unwrap();
    for need in [1, 3] {
        let other = b.latch("n", need);
        for error in [
            other.arrive("two").await.unwrap_err(),
            other.wait().await.unwrap_err(),
            other.is_open().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("`{need}` parties")), "{text}");
            assert!(text.contains("waits for `2`"), "{text}");
        }
    }
    assert_eq!(a.latch("n", 2).arrived().await.unwrap(), 1);
}

async fn a_latch_is_remembered_for_as_long_as_asked(stage: Stage) {
    let client = client(&stage).await;
    let brief = client.latch("n", 1).remember(ms(1_000));
    brief.arrive("one").await.unwrap();
    let half = client.latch("m", 2).remember(ms(1_000));
    half.arrive("one").await.unwrap();
    let is_new = async || {
        let [brief, half] = [
            brief.arrived().await.unwrap(),
            half.arrived().await.unwrap(),
        ];
        brief == 0 && half == 0
    };
    assert!(crate::stage::soon(is_new).await);
    // Another number of parties is not refused now.
    assert_eq!(client.latch("n", 5).arrive("one").await.unwrap(), 1);
    assert!(stage.is_clean("m").await);
}

async fn a_latch_is_not_a_lock(stage: Stage) {
    let (a, b) = (client(&stage).await, client(&stage).await);
    a.latch("n", 2).arrive("one").await.unwrap();
    for error in [
        b.lock("n").try_acquire().await.unwrap_err(),
        b.lock("n").acquire().await.unwrap_err(),
        b.lock("n").shared().acquire().await.unwrap_err(),
        b.lock("n").fair().acquire().await.unwrap_err(),
        b.semaphore("n", 2).acquire().await.unwrap_err(),
        b.semaphore("n", 2).resize(3).await.unwrap_err(),
        b.locks(["n", "m"]).acquire().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
        assert!(error.to_string().contains("latch"), "{error}");
    }
    let shown = async || b.lock("n").holder().await.unwrap().unwrap().to_string();
    assert_eq!(shown().await, "a closed latch of `2` parties");
    assert_eq!(a.latch("n", 2).arrive("two").await.unwrap(), 2);
    assert_eq!(shown().await, "an open latch of `2` parties");

    let guard = a.lock("l").acquire().await.unwrap();
    let permit = a.semaphore("s", 1).acquire().await.unwrap();
    for name in ["l", "s"] {
        for error in [
            b.latch(name, 2).arrive("one").await.unwrap_err(),
            b.latch(name, 2).wait().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
            assert!(error.to_string().contains("use another name"), "{error}");
        }
    }
    guard.release().await.unwrap();
    permit.release().await.unwrap();
    assert_eq!(b.latch("l", 1).arrive("one").await.unwrap(), 1);
}

async fn a_waiter_that_is_dropped_leaves_nothing(stage: Stage) {
    let client = client(&stage).await;
    let latch = client.latch("n", 2);
    for _ in 0..5 {
        let waiter = waiting(&latch);
        tokio::task::yield_now().await;
        waiter.abort();
        let _ = waiter.await;
    }
    assert!(stage.is_clean("n").await);
    latch.arrive("one").await.unwrap();
    latch.arrive("two").await.unwrap();
    passes(waiting(&latch)).await;
}

async fn a_shutdown_ends_a_wait(stage: Stage) {
    let client = client(&stage).await;
    let waiter = waiting(&client.latch("n", 2));
    tokio::time::sleep(ms(50)).await;
    assert!(client.shutdown(LIMIT).await.is_empty());
    let ended = timeout(LIMIT, waiter).await.expect("in time").unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
}

async fn what_a_latch_cannot_be_is_refused(stage: Stage) {
    let client = client(&stage).await;
    let invalid = ErrorKind::InvalidSetting;
    for (latch, kind, text) in [
        (client.latch("n", 0), invalid, "1 to 100000"),
        (client.latch("n", PARTIES_MAX + 1), invalid, "1 to 100000"),
        (client.latch("", 1), ErrorKind::InvalidName, "empty"),
        (
            client.latch("n", 1).remember(ms(999)),
            invalid,
            "from a second",
        ),
        (
            client.latch("n", 1).remember(Duration::MAX),
            invalid,
            "ten years",
        ),
    ] {
        for error in [
            latch.arrive("one").await.unwrap_err(),
            latch.wait().await.unwrap_err(),
            latch.arrived().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
    for party in [String::new(), "x".repeat(257)] {
        let error = client.latch("n", 1).arrive(party).await.unwrap_err();
        assert_eq!(error.kind(), invalid, "{error}");
        assert!(error.to_string().contains("1 to 256 bytes"), "{error}");
    }
    assert!(stage.is_clean("n").await);
}
