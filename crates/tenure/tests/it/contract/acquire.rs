//! Taking and giving back.

use tenure::{ErrorKind, Released, Unordered};

use super::contract;
use crate::stage::{Stage, ms, soon};

contract! {
    a_held_lock_excludes_others,
    a_released_lock_is_free,
    release_says_that_it_was_held,
    release_of_a_deleted_lease_says_already_gone,
    release_never_touches_another_lease,
    within_names_the_holder_when_time_is_over,
    within_nothing_asks_once,
    a_lock_may_set_how_long_its_callers_wait,
    holder_looks_without_taking,
    bad_settings_are_refused_before_anything_is_sent,
    every_grant_has_a_lease_id_of_its_own,
    names_of_every_shape_work,
}

async fn a_held_lock_excludes_others(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").acquire().await.unwrap();
    assert!(guard.is_valid());
    assert!(b.lock("n").try_acquire().await.unwrap().is_none());
    assert!(
        a.lock("n").try_acquire().await.unwrap().is_none(),
        "no owner, no reentry"
    );
    assert!(b.lock("other").try_acquire().await.unwrap().is_some());
}

async fn a_released_lock_is_free(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let guard = a.lock("n").acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(b.lock("n").try_acquire().await.unwrap().is_some());
    assert!(soon(async || stage.is_clean("n").await).await);
}

async fn release_says_that_it_was_held(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
}

async fn release_of_a_deleted_lease_says_already_gone(stage: Stage) {
    let a = stage.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    stage.delete_lock("n").await;
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
}

async fn release_never_touches_another_lease(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let late = a.lock("n").acquire().await.unwrap();
    stage.delete_lock("n").await;
    let holder = b.lock("n").acquire().await.unwrap();
    assert_eq!(late.release().await.unwrap(), Released::AlreadyGone);
    assert_eq!(holder.release().await.unwrap(), Released::WasHeld);
}

async fn within_names_the_holder_when_time_is_over(stage: Stage) {
    let a = stage.builder().name("payroll").connect().await.unwrap();
    let b = stage.client().await;
    let guard = a.lock("n").acquire().await.unwrap();
    let error = b.lock("n").wait(ms(50)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(&error.holder().unwrap().lease, guard.lease_id());
    // A holder of some age is known by name.
    let error = b.lock("n").wait(ms(3_000)).acquire().await.unwrap_err();
    assert!(error.to_string().contains("payroll at "), "{error}");
    let pid = std::process::id();
    assert!(
        error.to_string().contains(&format!("process {pid}")),
        "{error}"
    );
}

async fn within_nothing_asks_once(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let free = a.lock("n").wait(ms(0)).acquire().await.unwrap();
    let error = b.lock("n").wait(ms(0)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(free);
}

async fn a_lock_may_set_how_long_its_callers_wait(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let _guard = a.lock("n").acquire().await.unwrap();
    let impatient = b.lock("n").wait(ms(50));
    assert_eq!(
        impatient.acquire().await.unwrap_err().kind(),
        ErrorKind::Busy
    );
    let result = impatient.with(async |_| ()).await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Busy);
}

async fn holder_looks_without_taking(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    assert!(b.lock("n").holder().await.unwrap().is_none());
    let guard = a
        .lock("n")
        .ttl(ms(5_000))
        .meta("job", "7")
        .acquire()
        .await
        .unwrap();
    let holder = b.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(&holder.lease, guard.lease_id());
    assert_eq!(holder.meta["job"], "7");
    assert!(holder.remaining.unwrap() <= ms(5_000));
    let glanced = b.lock("n").holder_brief().await.unwrap().unwrap();
    assert_eq!(
        (&glanced.lease, &glanced.meta),
        (&holder.lease, &holder.meta)
    );
    assert!(glanced.client.is_none());
    // Its client tells it soon.
    let has_fence = async || {
        let holder = b.lock("n").holder().await.unwrap().unwrap();
        holder.fence == Some(guard.fence())
    };
    assert!(soon(has_fence).await);
    assert!(b.lock("n").is_locked().await.unwrap());
    guard.release().await.unwrap();
    assert!(b.lock("n").holder_brief().await.unwrap().is_none());
    assert!(!b.lock("n").is_locked().await.unwrap());
}

async fn bad_settings_are_refused_before_anything_is_sent(stage: Stage) {
    let a = stage.client().await;
    let refused = async |lock: tenure::Lock<Unordered>, kind: ErrorKind| {
        assert_eq!(lock.acquire().await.unwrap_err().kind(), kind);
        assert_eq!(lock.try_acquire().await.unwrap_err().kind(), kind);
    };
    refused(a.lock(""), ErrorKind::InvalidName).await;
    refused(a.lock("x".repeat(513)), ErrorKind::InvalidName).await;
    refused(a.lock("a}b"), ErrorKind::InvalidName).await;
    refused(a.lock("n").ttl(ms(0)), ErrorKind::InvalidSetting).await;
    refused(a.lock("n").ttl(ms(99)), ErrorKind::InvalidSetting).await;
    refused(
        a.lock("n").ttl(ms(86_400_001)).no_renewal(),
        ErrorKind::InvalidSetting,
    )
    .await;
    refused(a.lock("n").max_hold(ms(0)), ErrorKind::InvalidSetting).await;
    refused(a.lock("n").meta("lease", "x"), ErrorKind::InvalidSetting).await;
    refused(
        a.lock("n").meta("big", "x".repeat(5_000)),
        ErrorKind::InvalidSetting,
    )
    .await;
    assert!(stage.is_clean("n").await);
}

async fn every_grant_has_a_lease_id_of_its_own(stage: Stage) {
    let a = stage.client().await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let guard = a.lock("n").acquire().await.unwrap();
        assert!(seen.insert(guard.lease_id().clone()));
        guard.release().await.unwrap();
    }
}

async fn names_of_every_shape_work(stage: Stage) {
    let (a, b) = (stage.client().await, stage.client().await);
    let longest = "n".repeat(512);
    for name in [
        "plain",
        "{tag}:x",
        "x{tag}y",
        "with spaces",
        "schön:名前",
        "a{b",
        &longest,
    ] {
        let guard = a.lock(name).acquire().await.unwrap();
        assert!(
            b.lock(name).try_acquire().await.unwrap().is_none(),
            "{name}"
        );
        guard.release().await.unwrap();
        assert!(
            b.lock(name).try_acquire().await.unwrap().is_some(),
            "{name}"
        );
    }
}
