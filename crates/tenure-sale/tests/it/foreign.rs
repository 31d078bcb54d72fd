//! A stock that another program wrote to, and a server that is gone.

use std::error::Error as _;

use tenure::Fence;
use tenure_sale::{ErrorKind, Stock, Take};
use tenure_testkit::RedisServer;

#[tenure_testkit::test]
async fn keys_that_are_no_stock_are_errors_and_stay_as_they_are() {
    let server = RedisServer::start();
    let mut redis = server.client();
    let stock = Stock::open(server.url(), "i").await.unwrap();
    redis.command(&["SET", "tenure:sale:{i}:left", "many"]);
    assert!(stock.take_one(Fence::new(1)).await.is_err());
    let error = stock.left().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.to_string().contains("`many`"), "{error}");

    redis.command(&["SET", "tenure:sale:{i}:left", "5"]);
    redis.command(&["SET", "tenure:sale:{i}:fence", "-1"]);
    assert!(stock.take_one(Fence::new(1)).await.is_err());
    assert_eq!(redis.command(&["GET", "tenure:sale:{i}:left"]).text(), "5");
    assert_eq!(
        redis.command(&["GET", "tenure:sale:{i}:fence"]).text(),
        "-1"
    );
}

#[tenure_testkit::test]
async fn a_fence_that_lua_cannot_keep_is_refused() {
    let server = RedisServer::start();
    let stock = Stock::open(server.url(), "i").await.unwrap();
    stock.load(5).await.unwrap();
    let error = stock.take_one(Fence::new(u64::MAX)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert_eq!(stock.left().await.unwrap(), 5);
}

#[tenure_testkit::test]
async fn the_script_is_known_again_after_a_flush() {
    let server = RedisServer::start();
    let stock = Stock::open(server.url(), "i").await.unwrap();
    stock.load(5).await.unwrap();
    server.script_flush();
    let taken = stock.take_one(Fence::new(1)).await.unwrap();
    assert_eq!(taken, Take::Taken { left: 4 });
}

#[tenure_testkit::test]
async fn a_full_server_sells_nothing_and_says_so() {
    let server = RedisServer::start();
    let stock = Stock::open(server.url(), "i").await.unwrap();
    stock.load(5).await.unwrap();
    server.fill_memory();
    let error = stock.take_one(Fence::new(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    let source = error.source().unwrap().downcast_ref::<tenure::Error>();
    assert_eq!(source.unwrap().kind(), tenure::ErrorKind::OutOfMemory);
    server.free_memory();
    assert_eq!(stock.left().await.unwrap(), 5);
}

#[tenure_testkit::test]
async fn wrong_urls_are_told_without_their_password() {
    for url in [
        "http://:secret@h/",
        "memory://a?pass=secret",
        "redis://:secret@h:x/",
    ] {
        let error = Stock::open(url, "i").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
