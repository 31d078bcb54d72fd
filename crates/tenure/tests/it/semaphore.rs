//! Semaphores where a real server counts, loses keys and replies, and holders die.

use std::time::Duration;

use tenure::{Layout, Tenure};
use tenure_testkit::{RedisServer, eventually};
use tokio::time::timeout;

use crate::hazards::wire::{SOON, Wire};
use crate::lua::{PERMIT_ACQUIRE, PERMIT_RENEW, RESIZE, check_bad_numbers};
use crate::stage::{ms, soon};

const LONG: Duration = ms(30_000);
const LATEST: &str = "9000000000000000";

/// The attempt has run, and its repetition must not take other slots.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_a_lost_reply_to_an_acquire_of_permits_takes_its_slots_once() {
    let wire = Wire::start();
    let (a, b) = (wire.client().await, wire.bystander().await);
    wire.proxy.reset_after_request_with(b"EVALSHA");
    let permit = a.semaphore("n", 3).acquire_many(2).await.unwrap();
    assert_eq!(permit.slots(), [0, 1]);
    let other = b.semaphore("n", 3).try_acquire().await.unwrap().unwrap();
    assert_eq!(other.slot(), 2);
    assert!(b.semaphore("n", 3).try_acquire().await.unwrap().is_none());
    permit.release().await.unwrap();
    other.release().await.unwrap();
    let all = b.semaphore("n", 3).try_acquire_many(3).await.unwrap();
    assert!(all.is_some());
}

/// A caller gives up, and its request arrives later.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_a_late_acquire_of_a_permit_leaves_nothing() {
    let wire = Wire::start();
    let a = wire.builder().response_timeout(ms(300));
    let (a, b) = (a.connect().await.unwrap(), wire.bystander().await);
    wire.proxy.hold_requests();
    let acquiring = a.semaphore("n", 1).wait(ms(500));
    assert!(acquiring.acquire().await.is_err());
    wire.proxy.release_requests();
    let only = b.semaphore("n", 1);
    for _ in 0..3 {
        let permit = timeout(LONG, only.acquire()).await.expect("it is free");
        permit.unwrap().release().await.unwrap();
    }
    let is_free = async || only.try_acquire().await.unwrap().is_some();
    assert!(soon(is_free).await);
}

#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_of_a_semaphore_expires() {
    let server = RedisServer::start();
    let (a, b) = (
        Tenure::connect(server.url()).await.unwrap(),
        Tenure::connect(server.url()).await.unwrap(),
    );
    let one = a.semaphore("n", 3).acquire().await.unwrap();
    let two = a.semaphore("n", 3).acquire().await.unwrap();
    one.release().await.unwrap();
    let wide = b.semaphore("n", 3);
    let waiter = tokio::spawn(async move { wide.acquire_many(3).await.unwrap() });
    let mut redis = server.client();
    let waits = || {
        server
            .client()
            .command(&["ZCARD", "tenure:queue:{n}"])
            .int()
            == 1
    };
    assert!(eventually(SOON, waits));
    let beside = ["permits", "slots", "unused", "wanted", "queue", "alive"];
    let beside = beside.map(|role| format!("tenure:{role}:{{n}}"));
    for key in ["n".to_owned()].iter().chain(&beside) {
        let left = redis.command(&["PTTL", key]).int();
        assert!(left > 0, "{key}: {left}");
    }
    two.release().await.unwrap();
    let all = timeout(LONG, waiter).await.expect("in time").unwrap();
    all.release().await.unwrap();
    for key in &beside {
        let exists = redis.command(&["EXISTS", key]).int();
        assert_eq!(exists, 0, "{key} is left");
    }
}

/// Whoever holds a permit whose slot is not known any more has one all the same.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_whose_slots_were_lost_is_full_until_its_leases_end() {
    let server = RedisServer::start();
    let (a, b) = (
        Tenure::connect(server.url()).await.unwrap(),
        Tenure::connect(server.url()).await.unwrap(),
    );
    let brief = a.semaphore("n", 2).ttl(ms(2_000)).no_renewal();
    let held = brief.acquire().await.unwrap();
    server.client().command(&["DEL", "tenure:slots:{n}"]);
    assert!(b.semaphore("n", 2).try_acquire().await.unwrap().is_none());
    let only = b.semaphore("n", 2);
    let next = timeout(LONG, only.acquire()).await.expect("in time");
    assert!(!held.is_valid());
    assert_eq!(next.unwrap().slot(), 0);
    assert!(b.semaphore("n", 2).try_acquire().await.unwrap().is_some());
}

#[tenure_testkit::test]
async fn semaphores_are_refused_in_redissons_layout() {
    let server = RedisServer::start();
    let tenure = Tenure::builder(server.url()).layout(Layout::Redisson);
    let tenure = tenure.connect().await.unwrap();
    let error = tenure.semaphore("n", 2).acquire().await.unwrap_err();
    assert!(error.to_string().contains("Redisson's layout"), "{error}");
    let error = tenure.semaphore("n", 2).resize(3).await.unwrap_err();
    assert!(error.to_string().contains("Redisson's layout"), "{error}");
    assert_eq!(server.client().command(&["EXISTS", "n"]).int(), 0);
}

#[test]
fn bad_numbers_are_refused_before_anything_is_written() {
    let keys: Vec<String> = ["queue", "alive", "permits", "slots", "unused", "wanted"]
        .iter()
        .map(|role| format!("tenure:{role}:{{n}}"))
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let free = ["DEL", "n"];
    let acquire = ["me", "1000", LATEST, "3", "1", "0", "queue", ""];
    let counters = ["n", "tenure:fences", "tenure:fences:{n}"];
    let of_acquire = [&counters[..], &keys].concat();
    check_bad_numbers(PERMIT_ACQUIRE, &of_acquire, &acquire, &[1, 2, 3, 4], &free);
    let semaphore = ["SET", "n", "tenure:semaphore:3", "PX", "60000"];
    let of_renewal = [&["n"], &keys[2..]].concat();
    check_bad_numbers(PERMIT_RENEW, &of_renewal, &["me", "1000"], &[1], &semaphore);
    let of_resize = [&["n"], &keys[..]].concat();
    check_bad_numbers(RESIZE, &of_resize, &["2"], &[0], &semaphore);
}
