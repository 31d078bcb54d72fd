//! Names, settings and URLs that are refused before anything is sent.

use std::time::Duration;

use tenure::{Advice, ErrorKind, Tenure};
use tenure_testkit::RedisServer;

use crate::stage::ms;
use crate::verdict::{check_error, check_refused, refused};

#[tenure_testkit::test]
async fn a_bad_name_is_refused_and_nothing_is_sent() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.reset_stats();
    let long = "n".repeat(513);
    for (name, cause) in [
        ("", "it is empty"),
        (long.as_str(), "513 bytes"),
        ("half}tag", "no hash tag"),
        ("{}", "no hash tag"),
        ("tenure:fence:{n}", "Tenure's own keys"),
    ] {
        let lock = tenure.lock(name);
        let error = refused(lock.acquire().await);
        check_error(&error, ErrorKind::InvalidName, &[cause]);
        assert_eq!(error.advice(), Advice::Fatal);
        assert!(error.to_string().len() < 300, "not the whole name: {error}");
        check_refused(lock.try_acquire().await, ErrorKind::InvalidName, &[cause]);
        check_refused(lock.holder().await, ErrorKind::InvalidName, &[cause]);
        let limited = lock.wait(ms(100)).acquire().await;
        check_refused(limited, ErrorKind::InvalidName, &[cause]);
    }
    assert_eq!(server.command_calls("evalsha"), 0);
    assert_eq!(server.client().command(&["DBSIZE"]).int(), 0);
}

#[tenure_testkit::test]
async fn a_bad_setting_is_refused_and_nothing_is_sent() {
    let server = RedisServer::start();
    let tenure = Tenure::connect(server.url()).await.unwrap();
    server.reset_stats();
    let lock = || tenure.lock("n");
    let limits = "from 100 ms to 24 h";
    for (lock, parts) in [
        (lock().ttl(Duration::ZERO), ["ttl", limits]),
        (lock().ttl(ms(99)), ["`99ms`", limits]),
        (lock().ttl(Duration::MAX), ["ttl", limits]),
        (lock().ttl(Duration::ZERO).no_renewal(), ["ttl", limits]),
        (
            lock().max_hold(Duration::ZERO),
            ["max_hold", "longer than zero"],
        ),
        (lock().meta("", "x"), ["metadata", "needs a name"]),
        (
            lock().meta("k", "v".repeat(5_000)),
            ["metadata", "4096 bytes"],
        ),
    ] {
        check_refused(lock.acquire().await, ErrorKind::InvalidSetting, &parts);
        check_refused(lock.try_acquire().await, ErrorKind::InvalidSetting, &parts);
    }
    assert_eq!(server.command_calls("evalsha"), 0);
    let builder = Tenure::builder(server.url()).ttl(Duration::ZERO);
    check_refused(
        builder.connect().await,
        ErrorKind::InvalidSetting,
        &[limits],
    );
}

#[tenure_testkit::test]
async fn a_bad_url_names_what_is_wrong() {
    for (url, cause) in [
        ("", "it is empty"),
        ("http://h", "the scheme `http`"),
        ("redis://h:port", "the port `***`"),
        ("redis://h/zero", "the database `zero`"),
        ("redis://h?colour=red", "the parameter `colour`"),
        ("redis-ring://h", "the scheme `redis-ring`"),
        ("redis://h?layout=java", "is not `native` or `redisson`"),
        ("unix://relative", "is not absolute"),
    ] {
        let error = refused(Tenure::connect(url).await);
        check_error(&error, ErrorKind::InvalidUrl, &[cause]);
        assert_eq!(error.advice(), Advice::Fatal);
    }
}

#[tenure_testkit::test]
async fn a_host_that_does_not_exist_is_unavailable_in_time() {
    let builder = Tenure::builder("redis://no-such-host.invalid/").unreachable_after(ms(500));
    let begun = std::time::Instant::now();
    let parts = ["no-such-host.invalid"];
    check_refused(builder.connect().await, ErrorKind::Unavailable, &parts);
    crate::verdict::check_within(begun, ms(5_000));
}

#[tenure_testkit::test]
async fn more_turns_than_allowed_are_refused() {
    for turns in [10_001, u32::MAX] {
        let builder = Tenure::builder("memory://").hand_off_turns(turns);
        let parts = ["hand_off_turns", &turns.to_string(), "10000"];
        let connected = builder.connect().await;
        check_refused(connected, ErrorKind::InvalidSetting, &parts);
    }
    let most = Tenure::builder("memory://").hand_off_turns(10_000);
    let tenure = most.hand_off_time(Duration::MAX).connect().await.unwrap();
    let guard = tenure.lock("n").acquire().await.unwrap();
    let waiting = [(); 3].map(|()| {
        let lock = tenure.lock("n");
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    });
    tokio::time::sleep(ms(50)).await;
    drop(guard);
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert!(tenure.stats().handed_off > 0);
}

#[tenure_testkit::test]
async fn a_response_timeout_out_of_range_is_refused() {
    let server = RedisServer::start();
    for timeout in [Duration::ZERO, ms(99), ms(5_001), Duration::MAX] {
        let builder = Tenure::builder(server.url()).response_timeout(timeout);
        let parts = ["response_timeout", "from 100 ms to 5 s"];
        check_refused(builder.connect().await, ErrorKind::InvalidSetting, &parts);
    }
}
