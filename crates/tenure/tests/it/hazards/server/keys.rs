//! H25 to H27: which keys a lock name may have, and which names are allowed.

use tenure::{ErrorKind, LostReason, Released, Tenure};
use tenure_testkit::{RedisServer, eventually};

use crate::stage::ms;
use crate::verdict::{check_refused, check_usable};

#[tenure_testkit::test]
async fn h25_data_of_others_are_refused_and_not_touched() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    redis.command(&["RPUSH", "n", "theirs"]);
    check_refused(
        tenure.lock("n").acquire().await,
        ErrorKind::NotALock,
        &["`n`", "list", "not a lock"],
    );
    let found = redis.command(&["LRANGE", "n", "0", "-1"]);
    assert_eq!(found.array()[0].text(), "theirs");
    assert_eq!(redis.command(&["PTTL", "n"]).int(), -1);
}

/// Another program writes a list over a held lock: renewal and release must neither fail on it nor harm
/// it.
#[tenure_testkit::test]
async fn h25_a_lock_overwritten_by_a_list_is_lost_and_the_list_stays() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(600)).acquire().await.unwrap();
    let mut redis = server.client();
    redis.command(&["DEL", "n"]);
    redis.command(&["RPUSH", "n", "theirs"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyGone);
    assert_eq!(redis.command(&["LLEN", "n"]).int(), 1);
}

#[tenure_testkit::test]
async fn h25_a_fence_counter_that_is_none_is_refused() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    let mut redis = server.client();
    redis.command(&["RPUSH", "tenure:fences:{n}", "theirs"]);
    let refused = tenure.lock("n").try_acquire().await;
    check_refused(refused, ErrorKind::Protocol, &["`tenure:fences:{n}`"]);
    assert!(redis.command(&["GET", "n"]).is_nil(), "nothing was taken");
}

#[tenure_testkit::test]
async fn h26_the_longest_name_works_and_a_longer_one_is_never_sent() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    check_usable(&tenure, &"é".repeat(256)).await;
    server.reset_stats();
    for name in ["n".repeat(513), "n".repeat(64 * 1024 * 1024)] {
        let refused = tenure.lock(&name).try_acquire().await;
        check_refused(refused, ErrorKind::InvalidName, &["at most 512"]);
    }
    assert_eq!(server.command_calls("evalsha"), 0);
}

/// A server of a cluster refuses a script whose keys are in different slots.
#[tenure_testkit::test]
async fn h27_all_keys_of_a_lock_are_in_one_slot() {
    let server = RedisServer::builder()
        .config("cluster-enabled", "yes")
        .start();
    let mut redis = server.client();
    redis.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let is_ok = || {
        let info = server.client().command(&["CLUSTER", "INFO"]);
        info.text().contains("cluster_state:ok")
    };
    assert!(eventually(ms(10_000), is_ok));
    let tenure = Tenure::connect(server.url()).await.unwrap();
    for name in [
        "plain",
        "{tag}",
        "a{tag}b{other}",
        "{open",
        "a{}{b}c",
        "{{x}}",
    ] {
        let Ok(guard) = tenure.lock(name).meta("why", name).acquire().await else {
            // Not every such name is allowed, but no allowed one may be torn apart.
            check_refused(tenure::LockName::new(name), ErrorKind::InvalidName, &[]);
            continue;
        };
        let holder = tenure.lock(name).holder().await.unwrap().unwrap();
        assert_eq!(holder.meta["why"], name);
        assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    }
}
