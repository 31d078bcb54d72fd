//! What a stock promises. Each case is written once and runs in memory and on a real Redis.

use tenure::{Fence, Tenure};
use tenure_sale::{ErrorKind, Stock, Take, UNITS_MAX};
use tenure_testkit::RedisServer;

/// Runs each case in both places: `everywhere! { case, case, ... }`.
macro_rules! everywhere {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(concat!("memory://", stringify!($case))).await;
            })*
        }

        mod redis {
            $(#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let server = tenure_testkit::RedisServer::start();
                super::$case(&server.url()).await;
            })*
        }
    };
}

everywhere! {
    a_unit_is_taken_once,
    an_item_never_loaded_is_not_sold_out,
    a_loaded_item_is_not_loaded_again,
    an_older_fence_is_refused,
    the_same_fence_may_take_again,
    a_fence_is_remembered_when_sold_out,
    stocks_of_one_item_are_one,
    items_are_apart,
    a_removed_item_is_not_loaded,
    too_many_units_are_refused,
    many_holders_sell_exactly_what_there_is,
}

async fn a_unit_is_taken_once(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    stock.load(2).await.unwrap();
    assert_eq!(stock.left().await.unwrap(), 2);
    assert_eq!(take(&stock, 1).await, Take::Taken { left: 1 });
    assert_eq!(take(&stock, 2).await, Take::Taken { left: 0 });
    assert_eq!(take(&stock, 3).await, Take::SoldOut);
    assert_eq!(stock.left().await.unwrap(), 0);
}

async fn an_item_never_loaded_is_not_sold_out(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    assert_eq!(take(&stock, 1).await, Take::NotLoaded);
    let error = stock.left().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotLoaded);
    assert!(
        error.to_string().contains("`i` was never loaded"),
        "{error}"
    );
    let error = stock.set(5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotLoaded);
    assert_eq!(
        take(&stock, 1).await,
        Take::NotLoaded,
        "`set` loads nothing"
    );
    stock.load(0).await.unwrap();
    assert_eq!(take(&stock, 1).await, Take::SoldOut);
}

async fn a_loaded_item_is_not_loaded_again(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    stock.load(5).await.unwrap();
    assert_eq!(take(&stock, 1).await, Take::Taken { left: 4 });
    let error = stock.load(5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyLoaded);
    assert_eq!(stock.left().await.unwrap(), 4);
    stock.set(7).await.unwrap();
    assert_eq!(stock.left().await.unwrap(), 7);
}

async fn an_older_fence_is_refused(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    stock.load(5).await.unwrap();
    // Beyond 2^31 and close to 2^53, where careless numbers break.
    let now = UNITS_MAX - 1;
    assert_eq!(take(&stock, now).await, Take::Taken { left: 4 });
    let seen = Fence::new(now);
    assert_eq!(take(&stock, now - 1).await, Take::Stale { seen });
    assert_eq!(stock.left().await.unwrap(), 4);
    assert_eq!(take(&stock, now + 1).await, Take::Taken { left: 3 });
}

async fn the_same_fence_may_take_again(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    stock.load(5).await.unwrap();
    assert_eq!(take(&stock, 8).await, Take::Taken { left: 4 });
    assert_eq!(take(&stock, 8).await, Take::Taken { left: 3 });
}

async fn a_fence_is_remembered_when_sold_out(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    stock.load(0).await.unwrap();
    assert_eq!(take(&stock, 8).await, Take::SoldOut);
    stock.set(5).await.unwrap();
    let seen = Fence::new(8);
    assert_eq!(take(&stock, 7).await, Take::Stale { seen });
}

async fn stocks_of_one_item_are_one(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    let other = Stock::open(url, "i").await.unwrap();
    stock.load(5).await.unwrap();
    assert_eq!(take(&other, 2).await, Take::Taken { left: 4 });
    let seen = Fence::new(2);
    assert_eq!(take(&stock, 1).await, Take::Stale { seen });
}

async fn items_are_apart(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    let other = Stock::open(url, "j").await.unwrap();
    stock.load(5).await.unwrap();
    assert_eq!(take(&other, 9).await, Take::NotLoaded);
    assert_eq!(take(&stock, 1).await, Take::Taken { left: 4 });
}

async fn a_removed_item_is_not_loaded(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    stock.load(5).await.unwrap();
    assert_eq!(take(&stock, 9).await, Take::Taken { left: 4 });
    stock.remove().await.unwrap();
    assert_eq!(take(&stock, 9).await, Take::NotLoaded);
    stock.load(1).await.unwrap();
    assert_eq!(take(&stock, 1).await, Take::Taken { left: 0 }, "fence gone");
}

async fn too_many_units_are_refused(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    let error = stock.load(UNITS_MAX + 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUnits);
    stock.load(UNITS_MAX).await.unwrap();
    let error = stock.set(u64::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUnits);
    let left = UNITS_MAX - 1;
    assert_eq!(take(&stock, 1).await, Take::Taken { left });
}

async fn many_holders_sell_exactly_what_there_is(url: &str) {
    let stock = Stock::open(url, "i").await.unwrap();
    stock.load(20).await.unwrap();
    let mut buyers = Vec::new();
    for _ in 0..4 {
        let tenure = Tenure::connect(url).await.unwrap();
        for _ in 0..10 {
            let (lock, stock) = (tenure.lock("order"), stock.clone());
            buyers.push(tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let take = stock.take_one(guard.fence()).await.unwrap();
                guard.release().await.unwrap();
                take
            }));
        }
    }
    let mut sold = 0;
    for buyer in buyers {
        match buyer.await.unwrap() {
            Take::Taken { .. } => sold += 1,
            Take::SoldOut => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((sold, stock.left().await.unwrap()), (20, 0));
}

#[tenure_testkit::test]
async fn a_connection_can_be_shared() {
    let server = RedisServer::start();
    let redis = tenure::redis::Client::connect(server.url()).await.unwrap();
    let stock = Stock::on(redis.clone(), "i").unwrap();
    stock.load(1).await.unwrap();
    assert_eq!(take(&stock, 1).await, Take::Taken { left: 0 });
    let error = Stock::on(redis, "{i}").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidItem);
}

#[tenure_testkit::test]
async fn a_memory_stock_without_a_name_is_alone() {
    let stock = Stock::open("memory://", "i").await.unwrap();
    let other = Stock::open("memory://", "i").await.unwrap();
    stock.load(1).await.unwrap();
    assert_eq!(take(&other, 1).await, Take::NotLoaded);
}

async fn take(stock: &Stock, fence: u64) -> Take {
    stock.take_one(Fence::new(fence)).await.unwrap()
}
