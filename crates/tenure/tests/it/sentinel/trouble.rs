//! Sentinels and masters that cannot be reached, or want something else.

use std::time::Instant;

use tenure::redis::{Client, Command};
use tenure::{Advice, ErrorKind, Redlock, Tenure};
use tenure_testkit::{RedisServer, Sentinels};

use super::meanwhile;
use crate::stage::ms;
use crate::verdict::{check_error, check_usable, check_within, refused};

async fn connect(url: &str) -> tenure::Result<Tenure> {
    let builder = Tenure::builder(url).unreachable_after(ms(1_500));
    builder.connect().await
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_master_that_the_sentinels_do_not_know_is_named_with_those_they_do() {
    let sentinels = Sentinels::builder().steady().start();
    let begun = Instant::now();
    let error = refused(connect(&sentinels.url().replace("mymaster", "mymastr")).await);
    let first = format!("`{}` knows `mymaster`", sentinels.sentinels()[0].addr());
    let parts = ["the Sentinels do not know a master named `mymastr`", &first];
    check_error(&error, ErrorKind::InvalidUrl, &parts);
    check_within(begun, ms(1_500));
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn sentinels_that_cannot_be_reached_are_all_named() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    one.kill();
    two.kill();
    let begun = Instant::now();
    let url = format!("redis-sentinel://{},{}/mymaster", one.addr(), two.addr());
    let error = refused(connect(&url).await);
    let (first, second) = (one.addr().to_string(), two.addr().to_string());
    let parts = ["no Sentinel of", "connection refused", &first, &second];
    check_error(&error, ErrorKind::Unavailable, &parts);
    assert_eq!(error.advice(), Advice::Later);
    check_within(begun, ms(3_000));
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_server_that_is_no_sentinel_is_told_from_one() {
    let server = RedisServer::start();
    let error = refused(connect(&format!("redis-sentinel://{}/mymaster", server.addr())).await);
    check_error(&error, ErrorKind::Unavailable, &["not a Sentinel"]);
}

#[tenure_testkit::test]
async fn a_redlock_is_not_made_of_sentinels() {
    let urls = ["a", "b", "c"].map(|host| format!("redis-sentinel://:hunter2@{host}/mymaster"));
    let error = refused(Redlock::connect(urls).await);
    let parts = ["a node of a Redlock", "independent servers", "***@a"];
    check_error(&error, ErrorKind::InvalidSetting, &parts);
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn the_sentinels_own_password_is_asked_for() {
    let sentinels = Sentinels::builder()
        .password("data-secret")
        .sentinel_password("sentinel-secret")
        .steady()
        .start();
    let url = sentinels.url();
    check_usable(&connect(&url).await.unwrap(), "n").await;
    let wrong = url.replace("sentinel-secret", "guess");
    let none = url.split_once('?').unwrap().0;
    for url in [&wrong, none] {
        let begun = Instant::now();
        let error = refused(connect(url).await);
        check_error(&error, ErrorKind::Denied, &["`sentinel_password`"]);
        assert!(!format!("{error:?}").contains("guess"), "{error:?}");
        check_within(begun, ms(1_500));
    }
    let error = refused(connect(&url.replace("data-secret", "guess")).await);
    check_error(&error, ErrorKind::Denied, &["wrong user or password"]);
    assert!(!format!("{error:?}").contains("guess"), "{error:?}");
    let error = refused(connect(&url.replace(":data-secret@", "")).await);
    check_error(&error, ErrorKind::Denied, &["it requires a password"]);
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_user_of_the_sentinels_needs_few_rights() {
    let rules = "on >secret resetchannels &+switch-master +hello +sentinel|get-master-addr-by-name \
                 +subscribe";
    let sentinels = Sentinels::builder().sentinel_user("asker", rules);
    let sentinels = sentinels.steady().start();
    let url = format!(
        "{}?sentinel_username=asker&sentinel_password=secret",
        sentinels.url()
    );
    check_usable(&connect(&url).await.unwrap(), "n").await;
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn a_master_that_cannot_be_reached_is_named() {
    let sentinels = Sentinels::builder().steady().start();
    let master = sentinels.kill_master();
    let error = refused(connect(&sentinels.url()).await);
    let address = format!("redis://{}", master.addr());
    let parts = [address.as_str(), "connection refused"];
    check_error(&error, ErrorKind::Unavailable, &parts);
}

#[tenure_testkit::test(flavor = "multi_thread")]
async fn commands_beside_locks_go_to_the_master_too() {
    let sentinels = Sentinels::start();
    let redis = Client::connect(sentinels.url()).await.unwrap();
    let set = || Command::new("SET").arg("key").arg("value");
    redis.run(set()).await.unwrap();
    let new = meanwhile(|| sentinels.failover());
    redis.run(set()).await.unwrap();
    assert_eq!(redis.run_id().await.unwrap(), Some(new.info("run_id")));
}
