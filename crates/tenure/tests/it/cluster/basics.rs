//! Taking, holding and releasing locks on all nodes; what clients say of themselves.

use super::{CLUSTER, client, fresh_name};
use crate::stage::{ms, soon};

#[tenure_testkit::test]
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

#[tenure_testkit::test]
async fn a_waiter_is_woken_by_a_message() {
    let (one, other) = (client().await, client().await);
    let name = fresh_name();
    let guard = one.lock(&name).acquire().await.unwrap();
    let lock = other.lock(&name);
    let waiting = tokio::spawn(async move { lock.wait(ms(20_000)).acquire().await });
    // It hears messages before it stands in the queue.
    let queue = format!("tenure:queue:{{{name}}}");
    let mut redis = CLUSTER.master_of_key(&name).client();
    let mut waits = || redis.command(&["ZCARD", &queue]).int() == 1;
    assert!(soon(async || waits()).await, "nobody waits in `{queue}`");
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    assert_eq!(other.stats().woken_by_message, 1);
}

/// Records are wherever their keys are, and are all found.
#[tenure_testkit::test]
async fn all_clients_are_listed_wherever_their_records_are() {
    let mut clients = Vec::new();
    for _ in 0..8 {
        let tenure = client().await;
        let guard = tenure.lock(fresh_name()).acquire().await.unwrap();
        clients.push((tenure, guard));
    }
    let admin = client().await;
    let all_listed = async || {
        let listed = admin.clients().await.unwrap();
        clients.iter().all(|(tenure, guard)| {
            let record = listed.iter().find(|record| record.id == tenure.id());
            record.is_some_and(|record| record.leases.iter().any(|it| it.name == *guard.name()))
        })
    };
    assert!(soon(all_listed).await, "{:?}", admin.clients().await);
    let (tenure, guard) = clients.pop().unwrap();
    let holder = admin.lock(guard.name()).holder().await.unwrap().unwrap();
    assert_eq!(holder.client.unwrap().id, tenure.id());
}

#[tenure_testkit::test]
async fn a_lock_is_adopted_and_force_released_wherever_it_is() {
    let (one, other) = (client().await, client().await);
    let name = fresh_name();
    let lease = one.lock(&name).acquire().await.unwrap().detach();
    let guard = other.adopt(&lease.unwrap()).await.unwrap();
    let id = guard.lease_id().clone();
    one.force_release(&name, &id).await.unwrap();
    assert!(!one.lock(&name).is_locked().await.unwrap());
}
