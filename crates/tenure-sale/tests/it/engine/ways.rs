//! The three ways side by side.

use tenure_sale::ways::{Counter, Way};

use super::stage::Stage;

on! { [memory_sqlite, redis_sqlite]:
    only_the_naive_way_sells_a_unit_twice,
}

const UNITS: u64 = 20;

async fn only_the_naive_way_sells_a_unit_twice(stage: Stage) {
    for way in Way::ALL {
        let url = stage.gate_url().replace("memory://", "memory://ways");
        let counter = Counter::open(way, &url, way.word(), UNITS).await.unwrap();
        let buyers = (0..UNITS * 4).map(|buyer| {
            let counter = counter.clone();
            tokio::spawn(async move { counter.sell(&format!("b{buyer}")).await.unwrap() })
        });
        let mut sold = 0;
        for buyer in buyers.collect::<Vec<_>>() {
            sold += u64::from(buyer.await.unwrap());
        }
        assert_eq!(counter.orders(), sold);
        if way == Way::Naive {
            assert!(counter.oversold() > 0, "{sold} sold");
        } else {
            assert_eq!((sold, counter.oversold()), (UNITS, 0), "{way}");
            assert_eq!(counter.left().await.unwrap(), 0);
        }
        counter.close().await.unwrap();
    }
    if let Some(redis) = &stage.redis {
        let keys = redis.client().command(&["KEYS", "tenure:sale:*"]);
        assert!(keys.array().is_empty(), "{keys:?}");
    }
}
