//! Nodes that speak TLS, with each other and with clients.

use std::time::{Duration, Instant};

use tenure::{ErrorKind, Released, Sharded, Tenure};
use tenure_testkit::{Cluster, RedisServer};

use super::{fresh_name, holder_at, other_master};
use crate::stage::{ms, soon};
use crate::verdict::{check_error, check_usable, check_within, refused};

const LIMIT: Duration = Duration::from_secs(20);

/// One cluster for all that belongs together: it takes seconds to start. It demands a password and
/// certificates of clients.
#[tenure_testkit::test(flavor = "multi_thread")]
async fn locks_are_taken_on_all_nodes_move_and_outlive_their_master() {
    let cluster = Cluster::builder()
        .with_tls()
        .auth_clients(true)
        .password("data-secret")
        .start();
    let connect = |sharded| {
        let builder = Tenure::builder(cluster.url()).sharded(sharded);
        builder.unreachable_after(LIMIT).connect()
    };
    let holder = connect(Sharded::Auto).await.unwrap();
    let other = connect(Sharded::Auto).await.unwrap();
    // Nodes send clients to each other: by the ports for TLS.
    for _ in 0..9 {
        check_usable(&holder, &fresh_name()).await;
    }
    check_usable(&connect(Sharded::Off).await.unwrap(), &fresh_name()).await;

    check_what_is_refused(&cluster).await;

    let name = fresh_name();
    let guard = holder.lock(&name).ttl(ms(12_000)).acquire().await.unwrap();
    let lock = other.lock(&name);
    let waiting = tokio::spawn(async move { lock.wait(LIMIT * 3).acquire().await });
    let slot = Cluster::slot_of(&name);
    cluster.migrate_slot(slot, other_master(&cluster, &name));
    assert!(is_renewed(&holder).await, "where its slot has moved");

    let dead = cluster.kill_master_of(slot);
    cluster.wait_for_failover(dead, LIMIT);
    assert!(is_renewed(&holder).await, "after a failover");
    assert!(guard.is_valid());
    let id = guard.lease_id().to_string();
    assert_eq!(holder_at(&cluster, &name), Some(id));
    assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
    let woken = tokio::time::timeout(LIMIT, waiting).await;
    drop(woken.expect("nobody was woken").unwrap().unwrap());
}

/// Each with what to do about it, and soon: trying again would not help.
async fn check_what_is_refused(cluster: &Cluster) {
    let url = cluster.url();
    let strangers = RedisServer::builder().with_tls().start();
    let (ours, theirs) = (cluster.tls_files(), strangers.tls_files());
    let (ours, theirs) = (ours.ca.display(), theirs.ca.display());
    let other_authority = url.replace(&ours.to_string(), &theirs.to_string());
    let no_certificate = url.split_once("&cert=").unwrap().0.to_owned();
    let wrong_password = url.replace("data-secret", "guess");
    for (url, parts) in [
        (other_authority, ["is not trusted", "`ca`"]),
        (no_certificate, ["requires a client certificate", "`cert`"]),
        (wrong_password, ["wrong user or password", "rediss://"]),
    ] {
        let begun = Instant::now();
        let error = refused(Tenure::connect(&url).await);
        check_error(&error, ErrorKind::Denied, &parts);
        check_within(begun, ms(5_000));
        let shown = format!("{error:?}");
        for secret in ["data-secret", "guess"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

/// Whether a renewal succeeds soon, that began from now on.
async fn is_renewed(tenure: &Tenure) -> bool {
    let before = tenure.stats().renewed;
    for _ in 0..6 {
        if soon(async || tenure.stats().renewed >= before + 2).await {
            return true;
        }
    }
    false
}
