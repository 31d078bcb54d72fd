//! Latches where replies and messages get lost, and keys are not what they should be.

use tenure::{ErrorKind, Layout, Tenure, blocking};
use tenure_testkit::RedisServer;
use tokio::time::timeout;

use crate::hazards::wire::{SOON, Wire};
use crate::lua::{LATCH, check_bad_numbers, eval};
use crate::stage::ms;

const PARTIES: &str = "tenure:arrived:{n}";

/// The arrival has counted, and its repetition must not count again.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_lost_reply_to_an_arrival_counts_once() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    // The script is known by now, so that an arrival is one request.
    a.latch("known", 1).arrive("one").await.unwrap();
    wire.proxy.reset_after_request_with(b"{n}");
    assert_eq!(a.latch("n", 3).arrive("one").await.unwrap(), 1);
    assert_eq!(b.latch("n", 3).arrived().await.unwrap(), 1);
    wire.proxy.reset_after_request_with(b"{n}");
    b.latch("n", 3).arrive("two").await.unwrap();
    assert_eq!(a.latch("n", 3).arrive("three").await.unwrap(), 3);
    assert!(b.latch("n", 3).is_open().await.unwrap());
}

/// The message that would have woken the waiter is never sent to it.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_connections_broke_passes() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    let latch = a.latch("n", 1);
    let waiter = tokio::spawn(async move { latch.wait().await });
    tokio::time::sleep(ms(100)).await;
    wire.proxy.refuse();
    wire.proxy.reset_all();
    b.latch("n", 1).arrive("one").await.unwrap();
    wire.proxy.accept();
    let passed = timeout(SOON, waiter).await.expect("it looks again");
    passed.unwrap().unwrap();
}

#[tenure_testkit::test]
async fn the_keys_of_a_latch_expire() {
    let server = RedisServer::start();
    let client = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    let latch = client.latch("n", 2).remember(ms(3_600_000));
    latch.arrive("one").await.unwrap();
    assert_eq!(redis.command(&["GET", "n"]).text(), "tenure:latch:2");
    for key in ["n", PARTIES] {
        let left = redis.command(&["PTTL", key]).int();
        assert!((3_000_000..=3_600_000).contains(&left), "{key}: {left}");
    }
    latch.arrive("two").await.unwrap();
    assert_eq!(redis.command(&["GET", "n"]).text(), "tenure:latch:2:open");
    assert!(redis.command(&["PTTL", "n"]).int() > 3_000_000);
    assert_eq!(redis.command(&["EXISTS", PARTIES]).int(), 0);
}

#[tenure_testkit::test]
async fn parties_of_another_type_are_refused_and_left_alone() {
    let server = RedisServer::start();
    let client = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    for key in ["n", PARTIES] {
        redis.command(&["FLUSHALL"]);
        redis.command(&["HSET", key, "field", "value"]);
        let error = client.latch("n", 2).arrive("one").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
        assert!(error.to_string().contains("a hash"), "{error}");
        assert_eq!(redis.command(&["DBSIZE"]).int(), 1);
    }
}

#[tenure_testkit::test]
async fn latches_are_refused_in_redissons_layout() {
    let server = RedisServer::start();
    let tenure = Tenure::builder(server.url()).layout(Layout::Redisson);
    let tenure = tenure.connect().await.unwrap();
    for error in [
        tenure.latch("n", 2).arrive("one").await.unwrap_err(),
        tenure.latch("n", 2).wait().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{error}");
        assert!(error.to_string().contains("Redisson's layout"), "{error}");
    }
    assert_eq!(server.client().command(&["DBSIZE"]).int(), 0);
}

#[test]
fn bad_numbers_are_refused_before_anything_is_written() {
    let keys = ["n", PARTIES];
    let closed = ["SET", "n", "tenure:latch:2", "PX", "60000"];
    check_bad_numbers(LATCH, &keys, &["2", "60000", "one"], &[0, 1], &closed);
    let server = RedisServer::start();
    let mut redis = server.client();
    for bad in [["0", "60000", "one"], ["2", "0", "one"]] {
        let reply = eval(&mut redis, LATCH, &keys, &bad);
        assert!(reply.is_err(), "{bad:?}: {reply:?}");
    }
}

#[test]
fn latches_without_a_runtime() {
    let tenure = blocking::Tenure::connect("memory://").unwrap();
    let latch = tenure.latch("n", 2);
    let waiter = std::thread::spawn({
        let latch = latch.clone();
        move || latch.wait()
    });
    assert_eq!(latch.arrive("one").unwrap(), 1);
    assert!(!latch.is_open().unwrap());
    assert_eq!(latch.arrive("two").unwrap(), 2);
    waiter.join().unwrap().unwrap();
    assert_eq!((latch.need(), latch.arrived().unwrap()), (2, 2));
}
