//! Passwords never reach a text.

use std::fmt::Debug;

use tenure::redis::Client;
use tenure::{Error, Tenure};
use tenure_testkit::RedisServer;

use crate::stage::ms;

const SECRET: &str = "hunter2";

#[track_caller]
fn check_silent(what: &str, value: &impl Debug) {
    let said = format!("{value:?} {value:#?}");
    assert!(!said.contains(SECRET), "{what} says `{said}`");
}

#[track_caller]
fn check_error_silent(what: &str, error: &Error) {
    check_silent(what, error);
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        assert!(!error.to_string().contains(SECRET), "{what}: {error}");
        cause = error.source();
    }
}

/// An unescaped password tears the URL apart, and each part of it may be quoted.
#[tenure_testkit::test]
async fn no_part_of_a_torn_password_is_quoted() {
    for url in [
        "redis://u:x/hunter2@h",
        "redis://u:hunter2/x@h",
        "redis://u:x?hunter2@h",
        "redis://u:x?a=b&hunter2@h",
        "redis://u:x#hunter2@h",
        "rediss://u:x#hunter2@h",
        "redis://u:hunter2#x@h",
        "redis://u:hunter2?x@h",
        "redis://:x@hunter2/y@h",
        "redis://u:hun,hunter2:5@h:port",
        "hunter2@h:port",
        "redis://u:x/`hunter2`@h",
        "unix://u:hunter2@h",
        "memory://u:hunter2@h",
        "redis://h?pass=hunter2&colour=red",
        "redis://h?password=hunter2",
        "redis://h/zero?pass=x#hunter2@",
    ] {
        let Err(error) = Tenure::connect(url).await else {
            panic!("`{url}` should be refused");
        };
        check_error_silent(url, &error);
    }
}

#[tenure_testkit::test]
async fn nothing_that_can_be_printed_holds_the_password() {
    let server = RedisServer::builder().password(SECRET).start();
    let url = server.url();
    let builder = Tenure::builder(&url).name("service");
    check_silent("the builder", &builder);
    let tenure = builder.connect().await.unwrap();
    check_silent("the client", &tenure);
    let lock = tenure.lock("n");
    check_silent("the lock", &lock);
    let guard = lock.acquire().await.unwrap();
    check_silent("the guard", &guard);
    check_silent("the owner", &tenure.owner());
    check_silent("the holder", &lock.holder().await.unwrap());
    check_silent("the stats", &tenure.stats());
    check_silent("the records", &tenure.clients().await.unwrap());
    let redis = Client::connect(&url).await.unwrap();
    check_silent("the redis client", &redis);
    check_silent("its connection", &redis.dedicated().await.unwrap());
    let blocking = std::thread::spawn(move || {
        let tenure = tenure::blocking::Tenure::connect(url).unwrap();
        format!("{tenure:?}")
    });
    check_silent("the blocking client", &blocking.join().unwrap());
}

#[tenure_testkit::test]
async fn no_error_of_a_connection_holds_the_password() {
    let server = RedisServer::builder().password("other").start();
    let url = format!("redis://u:{SECRET}@{}", server.addr());
    let denied = Tenure::connect(&url).await.unwrap_err();
    check_error_silent("a wrong password", &denied);
    let missing = url.clone() + "/99";
    let missing = Tenure::connect(missing).await.unwrap_err();
    check_error_silent("a missing database", &missing);
    server.kill();
    let builder = Tenure::builder(&url).unreachable_after(ms(300));
    check_error_silent("nobody there", &builder.connect().await.unwrap_err());
    let file = format!("rediss://u:{SECRET}@h/?ca=/nowhere.pem");
    check_error_silent("no such file", &Tenure::connect(file).await.unwrap_err());
}
