//! Sentinels and servers that speak TLS, with each other and with clients.

use std::time::Instant;

use tenure::{ErrorKind, Released, Standing, Tenure};
use tenure_testkit::{RedisServer, Sentinels, TlsFiles};

use super::{FAILOVER_LIMIT, TTL, client, meanwhile, value_at};
use crate::stage::ms;
use crate::verdict::{check_error, check_usable, check_within, refused};

/// One deployment for all that belongs together: it takes seconds to start. It demands passwords of
/// all and certificates of clients.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_lock_is_taken_waited_for_and_kept_across_a_failover() {
    let sentinels = Sentinels::builder()
        .with_tls()
        .auth_clients(true)
        .password("data-secret")
        .sentinel_password("sentinel-secret")
        .start();
    let (holder, other) = (client(&sentinels).await, client(&sentinels).await);
    check_usable(&holder, "first").await;

    let guard = holder.lock("n").ttl(TTL).acquire().await.unwrap();
    let lock = other.lock("n");
    let waiting = tokio::spawn(async move { lock.wait(FAILOVER_LIMIT * 3).acquire().await });
    assert!(sentinels.wait_for_sync(FAILOVER_LIMIT));
    let master = meanwhile(|| sentinels.failover());
    guard.ensure(TTL * 9 / 10).await.unwrap();
    assert_eq!(guard.standing(), Standing::Held);
    let found = value_at(master, "n");
    assert_eq!(found.as_deref(), Some(guard.lease_id().as_str()));

    let fence = guard.fence();
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fence() > fence);
    assert_eq!(next.release().await.unwrap(), Released::WasHeld);

    check_what_is_refused(&sentinels).await;
}

/// Each with what to do about it, and soon: trying again would not help.
async fn check_what_is_refused(sentinels: &Sentinels) {
    let url = sentinels.url();
    let strangers = RedisServer::builder().with_tls().start();
    let (ours, theirs) = (sentinels.tls_files(), strangers.tls_files());
    let ca = |files: &TlsFiles| files.ca.display().to_string();
    let other_authority = url.replace(&ca(ours), &ca(&theirs));
    let (before, after) = url.split_once("&cert=").unwrap();
    let (_, password) = after.split_once("&sentinel_password").unwrap();
    let no_certificate = format!("{before}&sentinel_password{password}");
    let wrong_password = url.replace("sentinel-secret", "guess");
    for (url, parts, not) in [
        (other_authority, ["is not trusted", "`ca`"], "_password"),
        (
            no_certificate,
            ["requires a client certificate", "`cert`"],
            "_password",
        ),
        (
            wrong_password,
            ["wrong user or password", "sentinel_password"],
            "certificate",
        ),
    ] {
        let begun = Instant::now();
        let error = refused(Tenure::connect(&url).await);
        check_error(&error, ErrorKind::Denied, &parts);
        assert!(!error.to_string().contains(not), "{error}");
        check_within(begun, ms(5_000));
        let shown = format!("{error:?}");
        for secret in ["data-secret", "sentinel-secret", "guess"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

/// A user of the sentinels' own, with what it needs and no more.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_user_of_the_sentinels_is_greeted_inside_tls() {
    let rules = "on >secret resetchannels &* -@all +@connection +sentinel|get-master-addr-by-name \
                 +sentinel|master +sentinel|masters +subscribe +unsubscribe +info";
    let sentinels = Sentinels::builder()
        .with_tls()
        .replicas(1)
        .sentinel_user("asker", rules)
        .steady()
        .start();
    let named = "&sentinel_username=asker&sentinel_password=secret";
    let url = format!("{}{named}", sentinels.url());
    let tenure = Tenure::connect(&url).await.unwrap();
    check_usable(&tenure, "n").await;
}
