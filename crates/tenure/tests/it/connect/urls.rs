//! Everything a URL can say about one server without TLS.

use tenure::{ErrorKind, Tenure};
use tenure_testkit::RedisServer;

use crate::verdict::{check_refused, check_usable};

async fn check_url(url: &str) {
    let tenure = Tenure::connect(url).await.unwrap();
    check_usable(&tenure, "n").await;
}

#[tenure_testkit::test]
async fn every_scheme_for_one_server_works() {
    let server = RedisServer::builder().unix_socket().start();
    let addr = server.addr();
    check_url(&format!("redis://{addr}")).await;
    check_url(&format!("redis://{addr}/")).await;
    check_url(&format!("redis://{addr}/0")).await;
    check_url(&format!("valkey://{addr}")).await;
    check_url(&format!("localhost:{}", server.port())).await;
    check_url(&addr.to_string()).await;
    check_url(&server.unix_url()).await;
    check_url(&format!("  redis://{addr}\n")).await;
}

#[tenure_testkit::test]
async fn a_password_is_given_in_the_url() {
    let server = RedisServer::builder()
        .password("hunter2")
        .unix_socket()
        .start();
    check_url(&server.url()).await;
    check_url(&server.unix_url()).await;
    check_url(&format!("redis://{}/?pass=hunter2", server.addr())).await;
    check_url(&format!("redis://default:hunter2@{}", server.addr())).await;
}

#[tenure_testkit::test]
async fn a_user_and_a_password_of_any_characters() {
    let server = RedisServer::builder()
        .user("alice", "on >p@ss:w/o?r#d% ~* &* +@all")
        .start();
    let encoded = "p%40ss%3Aw%2Fo%3Fr%23d%25";
    check_url(&format!("redis://alice:{encoded}@{}", server.addr())).await;
    check_url(&format!(
        "redis://{}?user=alice&pass={encoded}",
        server.addr()
    ))
    .await;
}

#[tenure_testkit::test]
async fn locks_of_two_databases_do_not_exclude_each_other() {
    let server = RedisServer::builder().unix_socket().start();
    let zero = Tenure::connect(server.url()).await.unwrap();
    let one = Tenure::connect(format!("{}1", server.url())).await.unwrap();
    let also_one = Tenure::connect(format!("{}?db=1", server.unix_url()))
        .await
        .unwrap();
    let guard = one.lock("n").acquire().await.unwrap();
    check_usable(&zero, "n").await;
    assert!(also_one.lock("n").try_acquire().await.unwrap().is_none());
    let mut redis = server.client();
    assert!(redis.command(&["GET", "n"]).is_nil());
    redis.command(&["SELECT", "1"]);
    assert_eq!(
        redis.command(&["GET", "n"]).text(),
        guard.lease_id().as_str()
    );
}

/// Channels know no databases. A waiter in one hears of the other, and is not confused by it.
#[tenure_testkit::test]
async fn waiters_in_two_databases_do_not_wake_each_other_wrongly() {
    let server = RedisServer::start();
    let zero = Tenure::connect(server.url()).await.unwrap();
    let one = Tenure::connect(format!("{}1", server.url())).await.unwrap();
    let held = one.lock("n").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { one.lock("n").acquire().await });
    for _ in 0..3 {
        check_usable(&zero, "n").await;
    }
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

#[tenure_testkit::test]
async fn a_database_that_does_not_exist_is_refused() {
    let server = RedisServer::start();
    check_refused(
        Tenure::connect(format!("{}16", server.url())).await,
        ErrorKind::InvalidUrl,
        &["no database with that number"],
    );
}
