//! The first question, asked by the caller's own task: what happens when it goes wrong.

use std::task::{Context, Waker};
use std::time::Instant;

use tenure::{ErrorKind, Released};

use crate::hazards::wire::{SOON, Wire};
use crate::stage::ms;
use crate::verdict::{check_nothing_left, check_within};

/// Sends the question, and goes away while the answer is held back.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_dropped_under_way_leaves_nothing() {
    let wire = Wire::start();
    let a = wire.client().await;
    for round in 0..20 {
        wire.proxy.hold_replies();
        let lock = a.lock("n");
        let mut asking = Box::pin(async {
            if round % 2 == 0 {
                lock.acquire().await.map(Some)
            } else {
                lock.try_acquire().await
            }
        });
        let mut context = Context::from_waker(Waker::noop());
        assert!(asking.as_mut().poll(&mut context).is_pending());
        assert!(wire.is_granted_soon("n"), "round {round}");
        drop(asking);
        wire.proxy.release_replies();
        assert!(wire.is_clean_soon("n"), "round {round}");
    }
    assert_eq!(a.stats().acquired, 0, "nobody got it");
}

/// The release was sent, and its caller did not wait for the answer.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_dropped_under_way_is_done() {
    let wire = Wire::start();
    let a = wire.client().await;
    for round in 0..20 {
        let guard = a.lock("n").acquire().await.unwrap();
        wire.proxy.hold_requests();
        let mut releasing = Box::pin(guard.release());
        let mut context = Context::from_waker(Waker::noop());
        assert!(releasing.as_mut().poll(&mut context).is_pending());
        drop(releasing);
        wire.proxy.release_requests();
        assert!(wire.is_clean_soon("n"), "round {round}");
    }
}

/// No answer, and no end of the connection either: after a second of silence the engine goes on.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_ends_the_question_and_the_engine_goes_on() {
    let wire = Wire::start();
    let a = wire.client().await;
    wire.proxy.black_hole();
    let begun = Instant::now();
    let lock = a.lock("n");
    let asking = tokio::spawn(async move { lock.acquire().await });
    let replaced = wire
        .proxy
        .wait_for(ms(10_000), |counts| counts.connections > 2);
    assert!(replaced, "it still believes in a silent connection");
    wire.proxy.heal();
    let guard = asking.await.unwrap().unwrap();
    check_within(begun, ms(8_000));
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_nothing_left(&wire.server, "n");
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_without_patience_is_told_in_time() {
    let wire = Wire::start();
    let builder = wire.builder().unreachable_after(ms(400));
    let a = builder.connect().await.unwrap();
    let guard = a.lock("n").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let held = a.lock("held").acquire().await.unwrap();
    wire.proxy.black_hole();
    let begun = Instant::now();
    let error = a.lock("n").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // The silence of the connection alone would take a second.
    check_within(begun, ms(950));
    let error = a.lock("n").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(held.release().await.unwrap(), Released::Unknown);
    wire.proxy.heal();
    let guard = a.lock("n").wait(SOON * 3).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    check_nothing_left(&wire.server, "n");
}
