//! What an order costs the server.

use tenure_sale::ledger::What;
use tenure_sale::{ItemState, Terms};
use tenure_testkit::RedisServer;

use super::stage::{Stage, load, ms};

const ORDERS: u64 = 5000;
const BYTES_MAX: u64 = 250;

/// Buyers of ten letters, request ids as long as a number or as a UUID: until it is acknowledged an
/// order takes 250 bytes at most, and nothing once the item is closed and its answers' time is over.
#[tenure_testkit::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_takes_little_room_and_in_the_end_none() {
    for (kind, id) in [
        ("number", "1700000000000000"),
        ("uuid", "7e6d6fdc-4fcb-4f2e-9f0a-"),
    ] {
        let server = RedisServer::start();
        let stage = Stage::at(server.url()).await;
        let terms = Terms {
            limit_per_buyer: Some(2),
            answers_kept: ms(100),
            ..Terms::default()
        };
        stage.load(load(1, Some(ORDERS), terms)).await;
        let keys = || {
            let mut redis = server.client();
            let size = |key: &str| {
                let key = stage.key(key);
                let size = redis.command(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]);
                match size {
                    tenure_testkit::Reply::Nil => 0,
                    size => u64::try_from(size.int()).unwrap(),
                }
            };
            ["gate", "buyers", "answers", "orders", "dead"].map(size)
        };
        let (used, empty) = (used(&server), keys());
        for n in 0..ORDERS {
            let id = match kind {
                "uuid" => format!("{id}{n:012}"),
                _ => format!("{}", id.parse::<u64>().unwrap() + n),
            };
            stage
                .order(&format!("user{:06}", n * 7919 % 1_000_000), &id)
                .await;
        }
        let more = keys().iter().sum::<u64>() - empty.iter().sum::<u64>();
        println!("{kind}: {:?}", keys().map(|bytes| bytes / ORDERS));
        println!(
            "{kind}: {} bytes per order, {} used",
            more / ORDERS,
            (self::used(&server) - used) / ORDERS
        );
        assert!(more / ORDERS <= BYTES_MAX, "{} bytes", more / ORDERS);

        loop {
            let read = stage.read(500).await;
            if read.is_empty() {
                break;
            }
            let ids: Vec<_> = read.into_iter().map(|entry| entry.id).collect();
            stage.gate.acknowledge(&stage.item, &ids).await.unwrap();
        }
        stage.tell(1, What::State(ItemState::Closed)).await;
        // The server deletes what has expired a little later.
        let mut tries = 0;
        while keys()[1] + keys()[2] > 0 && tries < 100 {
            tokio::time::sleep(ms(50)).await;
            tries += 1;
        }
        let [gate, buyers, answers, orders, dead] = keys();
        assert_eq!((buyers, answers, dead), (0, 0, 0));
        assert!(gate + orders < 10_000, "{gate} and {orders}");
        assert!(stage.gate.forget(&stage.item).await.unwrap());
        assert_eq!(keys(), [0; 5]);
    }
}

fn used(server: &RedisServer) -> u64 {
    server.stat("used_memory")
}
