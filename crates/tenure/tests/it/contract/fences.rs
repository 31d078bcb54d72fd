//! Fences only grow.

use tenure_testkit::{RedisServer, eventually};

use super::contract;
use crate::stage::{Stage, ms};

contract! {
    fences_grow_over_release_and_deletion,
    fences_grow_over_expiry,
    fences_grow_when_the_counter_is_deleted,
    fences_stay_below_two_to_the_53,
}

async fn fences_grow_over_release_and_deletion(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let mut last = 0;
    for turn in 0..20 {
        let client = if turn % 2 == 0 { &a } else { &b };
        let guard = client.lock("n").acquire().await.unwrap();
        assert!(guard.fence().get() > last);
        last = guard.fence().get();
        if turn % 3 == 0 {
            stage.delete_lock("n").await;
        }
        guard.release().await.unwrap();
    }
}

async fn fences_grow_over_expiry(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let first = a
        .lock("n")
        .ttl(ms(100))
        .no_renewal()
        .acquire()
        .await
        .unwrap();
    let fence = first.fence();
    let second = b.lock("n").acquire().await.unwrap();
    assert!(second.fence() > fence);
    assert!(!first.is_valid());
}

async fn fences_grow_when_the_counter_is_deleted(stage: Stage) {
    let a = stage.client().await;
    let mut last = 0;
    for _ in 0..5 {
        let guard = a.lock("n").acquire().await.unwrap();
        assert!(guard.fence().get() > last);
        last = guard.fence().get();
        guard.release().await.unwrap();
        // Of a Redlock, a node beyond the majority may store it later, or never.
        let servers = stage.servers_of("n");
        let delete = |server: &&RedisServer| server.client().command(&["DEL", stage.fence_key()]);
        let mut deleted = 0;
        let enough = eventually(ms(10_000), || {
            deleted += servers
                .iter()
                .map(|server| delete(server).int())
                .sum::<i64>();
            2 * deleted >= i64::try_from(servers.len()).unwrap()
        });
        assert!(
            enough,
            "the fence was stored on {deleted} of {} servers",
            servers.len()
        );
    }
}

async fn fences_stay_below_two_to_the_53(stage: Stage) {
    let guard = stage.client().await.lock("n").acquire().await.unwrap();
    assert!(guard.fence().get() < 1 << 53);
    assert!(
        guard.fence().get() > 1_600_000_000_000_000,
        "microseconds of the clock"
    );
}
