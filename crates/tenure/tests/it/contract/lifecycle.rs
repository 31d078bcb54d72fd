//! Leases that change hands, clients that end.

use std::time::Instant;

use tenure::{ErrorKind, Lease, LostReason, Released};

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    a_detached_lease_can_be_adopted_elsewhere,
    a_detached_lease_is_not_renewed,
    a_detached_lease_lasts_as_long_as_it_was_told,
    an_ended_lease_cannot_be_adopted,
    a_lease_is_adopted_once,
    a_detached_lease_is_renewed_in_place,
    an_ended_lease_cannot_be_renewed,
    a_renewal_refuses_a_ttl_that_is_none,
    a_chain_cannot_be_detached_from_below,
    force_release_needs_the_right_lease,
    shutdown_releases_everything,
    shutdown_takes_back_what_is_just_being_granted,
    a_shut_down_client_refuses,
    a_cancelled_acquire_leaves_the_lock_free,
}

async fn a_detached_lease_can_be_adopted_elsewhere(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(800)).acquire().await.unwrap();
    let fence = guard.fence();
    let travelling = guard.detach().unwrap().to_string();
    let lease: Lease = travelling.parse().unwrap();
    let guard = b.adopt(&lease).await.unwrap();
    assert_eq!(guard.fence(), fence);
    tokio::time::sleep(ms(1_000)).await;
    assert!(guard.is_valid(), "renewed again");
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

async fn a_detached_lease_is_not_renewed(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(300)).acquire().await.unwrap();
    let _given_away = guard.detach().unwrap();
    assert!(
        b.lock("n").try_acquire().await.unwrap().is_none(),
        "given away, not released"
    );
    tokio::time::sleep(ms(350)).await;
    assert!(b.lock("n").try_acquire().await.unwrap().is_some());
}

async fn a_detached_lease_lasts_as_long_as_it_was_told(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    // Shorter than it would have lasted.
    let guard = a.lock("n").ttl(ms(20_000)).acquire().await.unwrap();
    let lease = guard.detach_for(ms(300)).await.unwrap();
    assert_eq!(lease.ttl(), ms(300));
    let holder = b.lock("n").holder().await.unwrap();
    assert!(holder.is_none_or(|holder| holder.remaining.unwrap() <= ms(300)));
    assert!(soon(async || !b.lock("n").is_locked().await.unwrap()).await);
    // And longer.
    let guard = a.lock("n").ttl(ms(300)).acquire().await.unwrap();
    let lease = guard.detach_for(ms(20_000)).await.unwrap();
    tokio::time::sleep(ms(500)).await;
    let holder = b.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(&holder.lease, lease.id());
    let guard = b.adopt(&lease).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    // What is gone cannot be kept.
    let guard = a.lock("n").ttl(ms(20_000)).acquire().await.unwrap();
    let (name, id) = (guard.name().clone(), guard.lease_id().clone());
    b.force_release(name, &id).await.unwrap();
    let error = guard.detach_for(ms(300)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    let guard = a.lock("n").acquire().await.unwrap();
    let error = guard.detach_for(ms(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting);
}

async fn an_ended_lease_cannot_be_adopted(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(150)).acquire().await.unwrap();
    let lease = guard.detach().unwrap();
    tokio::time::sleep(ms(200)).await;
    let error = b.adopt(&lease).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    let _other = b.lock("n").acquire().await.unwrap();
    assert_eq!(a.adopt(&lease).await.unwrap_err().kind(), ErrorKind::Lost);
}

async fn a_lease_is_adopted_once(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let lock = a.lock("n").ttl(ms(5_000)).meta("job", "7");
    let lease = lock.acquire().await.unwrap().detach().unwrap();
    let guard = a.adopt(&lease).await.unwrap();
    let error = b.adopt(&lease).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("another holder"), "{error}");
    assert_ne!(guard.lease_id(), lease.id());
    assert_eq!(guard.fence(), lease.fence());
    let holder = b.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(&holder.lease, guard.lease_id());
    assert_eq!(holder.meta["job"], "7", "what was written about it goes on");
    let has_fence = async || {
        let holder = b.lock("n").holder().await.unwrap().unwrap();
        holder.fence == Some(lease.fence())
    };
    assert!(soon(has_fence).await);
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn a_detached_lease_is_renewed_in_place(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let lock = a.lock("n").ttl(ms(1_000)).meta("job", "7");
    let lease = lock.acquire().await.unwrap().detach().unwrap();
    // The second time as well: the lease is still the same one.
    for _ in 0..2 {
        b.renew(&lease, ms(20_000)).await.unwrap();
        // A node of a Redlock that was not needed for the majority may renew it later.
        let is_renewed = async || {
            let holder = a.lock("n").holder().await.unwrap().unwrap();
            assert_eq!(&holder.lease, lease.id());
            assert_eq!(holder.meta["job"], "7");
            holder.remaining.unwrap() > ms(10_000)
        };
        assert!(soon(is_renewed).await);
    }
    tokio::time::sleep(ms(1_100)).await;
    let holder = a.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(holder.meta["job"], "7", "lives as long as the lease");
    let released = b.force_release("n", lease.id()).await.unwrap();
    assert_eq!(released, Released::WasHeld);
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn an_ended_lease_cannot_be_renewed(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").ttl(ms(150)).acquire().await.unwrap();
    let lease = guard.detach().unwrap();
    tokio::time::sleep(ms(200)).await;
    let error = b.renew(&lease, ms(5_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("no longer has it"), "{error}");
    // Nothing was created, and another's is not touched.
    let other = b.lock("n").ttl(ms(5_000)).try_acquire().await.unwrap();
    let other = other.expect("the lock is free");
    let error = a.renew(&lease, ms(20_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("another holder"), "{error}");
    let holder = a.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(&holder.lease, other.lease_id());
    assert!(holder.remaining.unwrap() <= ms(5_000), "{holder:?}");
}

async fn a_renewal_refuses_a_ttl_that_is_none(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").ttl(ms(5_000)).acquire().await.unwrap();
    let lease = guard.detach().unwrap();
    for ttl in [ms(0), ms(99), ms(86_400_001)] {
        let error = a.renew(&lease, ttl).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSetting, "{ttl:?}");
    }
    assert!(a.lock("n").is_locked().await.unwrap());
}

async fn a_chain_cannot_be_detached_from_below(stage: Stage) {
    let owner = stage.client().await.owner();
    let outer = owner.lock("n").acquire().await.unwrap();
    let inner = owner.lock("n").acquire().await.unwrap();
    assert_eq!(inner.detach().unwrap_err().kind(), ErrorKind::Mismatch);
    assert!(outer.is_valid());
    let _given_away = outer.detach().unwrap();
}

async fn force_release_needs_the_right_lease(stage: Stage) {
    let (a, admin) = (stage.client().await, stage.client().await);
    let old = a.lock("n").acquire().await.unwrap();
    let old_id = old.lease_id().clone();
    old.release().await.unwrap();
    let guard = a.lock("n").acquire().await.unwrap();
    let refused = admin.force_release("n", &old_id).await.unwrap();
    assert_eq!(refused, Released::AlreadyGone);
    assert!(guard.is_valid());
    let id = admin.lock("n").holder().await.unwrap().unwrap().lease;
    assert_eq!(
        admin.force_release("n", &id).await.unwrap(),
        Released::WasHeld
    );
    assert!(admin.lock("n").try_acquire().await.unwrap().is_some());
}

async fn shutdown_releases_everything(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let one = a.lock("one").acquire().await.unwrap();
    let two = a.lock("two").acquire().await.unwrap();
    let other = b.lock("other").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let a = a.clone();
        async move { a.lock("other").acquire().await }
    });
    tokio::time::sleep(ms(50)).await;
    let begun = Instant::now();
    assert_eq!(a.shutdown(ms(10_000)).await, vec![]);
    // Nothing was in the way, not even those who wait.
    assert!(begun.elapsed() < ms(9_000), "{:?}", begun.elapsed());
    assert_eq!(one.lost().await, LostReason::Shutdown);
    assert!(!two.is_valid());
    assert!(b.lock("one").try_acquire().await.unwrap().is_some());
    assert!(b.lock("two").try_acquire().await.unwrap().is_some());
    assert_eq!(
        waiting.await.unwrap().unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert!(other.is_valid());
    assert_eq!(one.release().await.unwrap(), Released::AlreadyGone);
}

async fn shutdown_takes_back_what_is_just_being_granted(stage: Stage) {
    for _ in 0..10 {
        let a = stage.client().await;
        let callers: Vec<_> = (0..8)
            .map(|number| {
                let lock = a.lock(format!("n{number}"));
                tokio::spawn(async move { lock.acquire().await.map(std::mem::forget) })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(a.shutdown(ms(2_000)).await, vec![]);
        for number in 0..8 {
            assert!(stage.is_clean(&format!("n{number}")).await);
        }
        for caller in callers {
            let _ = caller.await.unwrap();
        }
    }
}

async fn a_shut_down_client_refuses(stage: Stage) {
    let a = stage.client().await;
    a.shutdown(ms(1_000)).await;
    assert_eq!(
        a.lock("n").acquire().await.unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert_eq!(
        a.lock("n").try_acquire().await.unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert_eq!(
        a.lock("n").holder().await.unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert!(stage.is_clean("n").await);
}

async fn a_cancelled_acquire_leaves_the_lock_free(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    for round in 0_u64..50 {
        let limit = std::time::Duration::from_micros(round * 20);
        let lock = a.lock("n");
        let _ = tokio::time::timeout(limit, lock.acquire()).await;
        let free = soon(async || b.lock("n").try_acquire().await.unwrap().is_some()).await;
        assert!(free, "round {round}");
    }
}
