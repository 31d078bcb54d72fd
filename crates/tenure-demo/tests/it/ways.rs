//! The three ways side by side.

use tenure_demo::ways::{Closed, Counter, Way};
use tenure_testkit::RedisServer;

const UNITS: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn only_the_naive_way_sells_a_unit_twice_in_memory() {
    only_the_naive_way_sells_a_unit_twice("memory://ways-sell").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_naive_way_sells_a_unit_twice_on_redis() {
    let redis = RedisServer::start();
    only_the_naive_way_sells_a_unit_twice(&redis.url()).await;
    leaves_nothing(&redis);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_removed_in_any_state_in_memory() {
    an_item_is_removed_in_any_state("memory://ways-remove").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_removed_in_any_state_on_redis() {
    let redis = RedisServer::start();
    an_item_is_removed_in_any_state(&redis.url()).await;
    leaves_nothing(&redis);
}

#[track_caller]
fn leaves_nothing(redis: &RedisServer) {
    let keys = redis.client().command(&["KEYS", "tenure:sale:*"]);
    assert!(keys.array().is_empty(), "{keys:?}");
}

/// Two counters with clients of their own sell one item to the same few buyers.
async fn only_the_naive_way_sells_a_unit_twice(url: &str) {
    for way in Way::ALL {
        let open = || Counter::open(way, url, way.word());
        let counters = [open().await.unwrap(), open().await.unwrap()];
        counters[0].load(UNITS).await.unwrap();
        counters[1].load(UNITS).await.unwrap_err();
        if way == Way::Naive {
            assert!(sold_after_reading_the_same_stock(&counters).await > UNITS);
        } else {
            assert_eq!(sold_at_once(&counters).await, UNITS, "{way}");
            assert_eq!(counters[1].left().await.unwrap(), 0);
        }
        counters[1].remove().await.unwrap();
        counters[0].sell("late").await.unwrap_err();
    }
}

async fn sold_after_reading_the_same_stock(counters: &[Counter; 2]) -> u64 {
    let mut deals = Vec::new();
    for order in 0..=UNITS {
        let deal = counter_of(counters, order).begin().await.unwrap();
        deals.push(deal.expect("all units are left"));
    }
    let mut sold = 0;
    for deal in deals {
        sold += u64::from(matches!(
            deal.close("anna").await.unwrap(),
            Closed::Sold { .. }
        ));
    }
    sold
}

async fn sold_at_once(counters: &[Counter; 2]) -> u64 {
    let buyers = (0..UNITS * 4).map(|order| {
        let counter = counter_of(counters, order).clone();
        tokio::spawn(async move { counter.sell(&format!("b{}", order % 3)).await.unwrap() })
    });
    let mut sold = 0;
    for buyer in buyers.collect::<Vec<_>>() {
        sold += u64::from(buyer.await.unwrap());
    }
    sold
}

fn counter_of(counters: &[Counter; 2], order: u64) -> &Counter {
    &counters[usize::from(order.is_multiple_of(2))]
}

async fn an_item_is_removed_in_any_state(url: &str) {
    for way in Way::ALL {
        let counter = Counter::open(way, url, way.word()).await.unwrap();
        counter.remove().await.unwrap();
        counter.left().await.unwrap_err();
        counter.load(UNITS).await.unwrap();
        assert!(counter.sell("anna").await.unwrap());
        counter.remove().await.unwrap();
        // As if it had never been there.
        counter.load(UNITS).await.unwrap();
        assert_eq!(counter.left().await.unwrap(), UNITS);
        counter.remove().await.unwrap();
    }
    let gate = tenure_sale::gate::Gate::connect(url).await.unwrap();
    let (fence, item) = (tenure::Fence::new(1), Way::Script.word());
    assert!(gate.begin_load(item, 1, fence, 1).await.unwrap());
    let counter = Counter::by_script(gate, item);
    counter.remove().await.unwrap();
}
