//! Taking, holding and releasing locks on all nodes.

use crate::stage::ms;

use super::{client, fresh_name};

#[tokio::test]
async fn locks_are_taken_and_released_wherever_they_are() {
    let (one, other) = (client().await, client().await);
    for _ in 0..30 {
        let name = fresh_name();
        let guard = one.lock(&name).acquire().await.unwrap();
        assert!(other.lock(&name).try_acquire().await.unwrap().is_none());
        let fence = guard.fence();
        guard.release().await.unwrap();
        let next = other.lock(&name).acquire().await.unwrap();
        assert!(next.fence() > fence);
    }
}

#[tokio::test]
async fn a_waiter_is_woken_by_a_message() {
    let (one, other) = (client().await, client().await);
    let name = fresh_name();
    let guard = one.lock(&name).acquire().await.unwrap();
    let lock = other.lock(&name);
    let waiting = tokio::spawn(async move { lock.acquire_within(ms(5_000)).await });
    tokio::time::sleep(ms(200)).await;
    guard.release().await.unwrap();
    let woken = tokio::time::timeout(ms(200), waiting).await;
    woken.expect("nobody woke it").unwrap().unwrap();
    assert_eq!(other.stats().woken_by_message, 1);
}
