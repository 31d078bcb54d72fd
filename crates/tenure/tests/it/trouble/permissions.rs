//! Passwords, commands, keys and channels that the server refuses.

use std::time::Instant;

use tenure::redis::{Client, Command};
use tenure::{Advice, ErrorKind, LostReason, Released, Standing, Tenure};
use tenure_testkit::RedisServer;
use tokio::runtime::Handle;

use crate::stage::{ms, soon};
use crate::verdict::{
    check_error, check_nothing_left, check_refused, check_usable, check_within, refused,
};

/// A server and the URL of a user with these rules.
fn restricted(rules: &str) -> (RedisServer, String) {
    let rules = format!("on >pw {rules}");
    let server = RedisServer::builder().user("worker", &rules).start();
    let url = format!("redis://worker:pw@{}", server.addr());
    (server, url)
}

#[tenure_testkit::test]
async fn a_wrong_password_is_denied_at_once() {
    let server = RedisServer::builder().password("right").start();
    let begun = Instant::now();
    for url in [
        format!("redis://:wrong@{}", server.addr()),
        format!("redis://nobody:right@{}", server.addr()),
    ] {
        let error = refused(Tenure::connect(url).await);
        check_error(&error, ErrorKind::Denied, &["wrong user or password"]);
        assert_eq!(error.advice(), Advice::Fatal);
    }
    check_within(begun, ms(2_000));
}

#[tenure_testkit::test]
async fn a_missing_password_is_denied_with_the_way_to_write_it() {
    let server = RedisServer::builder().password("right").start();
    let begun = Instant::now();
    check_refused(
        Tenure::connect(format!("redis://{}", server.addr())).await,
        ErrorKind::Denied,
        &["requires a password", "redis://:password@host"],
    );
    check_within(begun, ms(2_000));
}

/// The password changes while a client is connected; its next connection is refused.
#[tenure_testkit::test]
async fn a_password_changed_meanwhile_is_denied() {
    let server = RedisServer::builder().password("right").start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.set_config("requirepass", "other");
    server.kill_clients(tenure_testkit::ClientKind::Normal);
    let begun = Instant::now();
    let error = refused(tenure.lock("n").acquire().await);
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    check_within(begun, ms(3_000));
    server.set_config("requirepass", "right");
    // A refusal is believed for a moment, so that callers do not storm the server.
    tokio::time::sleep(ms(100)).await;
    check_usable(&tenure, "n").await;
}

#[tenure_testkit::test]
async fn scripts_that_are_forbidden_are_named() {
    let (server, url) = restricted("~* &* +@all -evalsha -eval");
    let tenure = Tenure::connect(url).await.unwrap();
    let begun = Instant::now();
    let error = refused(tenure.lock("n").acquire().await);
    check_error(
        &error,
        ErrorKind::Denied,
        &["evalsha", "grant this user the permission"],
    );
    assert_eq!(error.advice(), Advice::Fatal);
    check_refused(
        tenure.lock("n").try_acquire().await,
        ErrorKind::Denied,
        &["evalsha"],
    );
    check_refused(
        tenure.lock("n").holder().await,
        ErrorKind::Denied,
        &["evalsha"],
    );
    check_within(begun, ms(2_000));
    check_nothing_left(&server, "n");
}

/// Where loading scripts is forbidden, they are sent with their text.
#[tenure_testkit::test]
async fn a_user_that_may_not_load_scripts_can_still_lock() {
    let (_server, url) = restricted("~* &* +@all -script");
    check_usable(&Tenure::connect(url).await.unwrap(), "n").await;
}

/// What a user needs, and nothing else: commands that only describe the server may be forbidden.
#[tenure_testkit::test]
async fn a_user_that_may_not_ask_about_the_server_can_still_lock() {
    let (_server, url) = restricted("~* &* +@all -info -client -@dangerous");
    check_usable(&Tenure::connect(url).await.unwrap(), "n").await;
}

#[tenure_testkit::test]
async fn a_command_that_is_forbidden_inside_a_script_is_denied() {
    for command in ["set", "xadd", "pexpire", "time"] {
        let (server, url) = restricted(&format!("~* &* +@all -{command}"));
        let tenure = Tenure::connect(url).await.unwrap();
        let begun = Instant::now();
        let error = refused(tenure.lock("n").acquire().await);
        check_error(
            &error,
            ErrorKind::Denied,
            &["grant this user the permission"],
        );
        check_refused(tenure.lock("n").try_acquire().await, ErrorKind::Denied, &[]);
        check_within(begun, ms(2_000));
        check_nothing_left(&server, "n");
    }
}

/// A lock that is taken again and again is asked for by a transaction. Who may not use one, or not
/// what is in it, asks by script.
#[tenure_testkit::test]
async fn a_transaction_that_is_forbidden_keeps_nobody_from_locking() {
    for command in ["multi", "exec"] {
        let (server, url) = restricted(&format!("~* &* +@all -{command}"));
        let here = Tenure::builder(&url).runtime(Handle::current());
        for tenure in [Tenure::connect(&url).await, here.connect().await] {
            let tenure = tenure.unwrap();
            for round in 0..4 {
                let guard = tenure.lock("n").wait(ms(10_000)).acquire().await;
                let guard = guard.unwrap_or_else(|error| panic!("-{command} {round}: {error}"));
                assert_eq!(guard.release().await.unwrap(), Released::WasHeld);
            }
            check_nothing_left(&server, "n");
        }
    }
}

/// The right is taken away while the lock is held: the release says so, and does not hang.
#[tenure_testkit::test]
async fn a_release_that_is_forbidden_is_an_error() {
    for command in ["del", "get", "evalsha"] {
        let (server, url) = restricted("~* &* +@all");
        let tenure = Tenure::connect(url).await.unwrap();
        let guard = tenure.lock("n").acquire().await.unwrap();
        let taken_away = format!("-{command}");
        let mut redis = server.client();
        redis.command(&["ACL", "SETUSER", "worker", &taken_away]);
        let begun = Instant::now();
        check_refused(
            guard.release().await,
            ErrorKind::Denied,
            &["grant this user the permission"],
        );
        check_within(begun, ms(2_000));
    }
}

/// A lost right is not a lost lock, until the deadline.
#[tenure_testkit::test]
async fn a_renewal_that_is_forbidden_makes_the_lease_suspect() {
    let (server, url) = restricted("~* &* +@all");
    let tenure = Tenure::connect(url).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(900)).acquire().await.unwrap();
    server
        .client()
        .command(&["ACL", "SETUSER", "worker", "-get"]);
    assert!(soon(async || guard.standing() != Standing::Held).await);
    assert_eq!(guard.standing(), Standing::Suspect);
    check_refused(
        tenure.lock("n").holder().await,
        ErrorKind::Denied,
        &["permission"],
    );
    assert_eq!(guard.lost().await, LostReason::Expired);
}

#[tenure_testkit::test]
async fn keys_that_are_forbidden_are_denied() {
    // The second user may use the lock's own key, and none of its related keys.
    for rules in ["~other:* &* +@all", "~n &* +@all"] {
        let (server, url) = restricted(rules);
        let tenure = Tenure::connect(url).await.unwrap();
        let error = refused(tenure.lock("n").acquire().await);
        check_error(
            &error,
            ErrorKind::Denied,
            &["key", "grant this user the permission"],
        );
        check_nothing_left(&server, "n");
    }
}

/// No right to write the client's record: locking does not depend on it.
#[tenure_testkit::test]
async fn a_user_that_may_not_write_records_can_still_lock() {
    let (_server, url) = restricted("~n ~tenure:*:{n} &* +@all");
    let tenure = Tenure::connect(url).await.unwrap();
    let guard = tenure.lock("n").ttl(ms(2_000)).acquire().await.unwrap();
    // Longer than it would last unrenewed.
    tokio::time::sleep(ms(2_500)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

/// A channel costs only speed; hazards/waiting.rs has the waiters.
#[tenure_testkit::test]
async fn a_channel_that_is_forbidden_fails_nothing() {
    let (server, url) = restricted("~* resetchannels +@all");
    let tenure = Tenure::connect(&url).await.unwrap();
    let guard = tenure.lock("n").acquire().await.unwrap();
    let begun = Instant::now();
    let limited = tenure.lock("n").wait(ms(400)).acquire().await;
    check_refused(limited, ErrorKind::Busy, &["held by"]);
    check_within(begun, ms(2_000));
    guard.release().await.unwrap();
    check_nothing_left(&server, "n");
    let redis = Client::connect(url).await.unwrap();
    check_refused(
        redis.run(Command::new("PUBLISH").arg("c").arg("m")).await,
        ErrorKind::Denied,
        &["channel"],
    );
}
