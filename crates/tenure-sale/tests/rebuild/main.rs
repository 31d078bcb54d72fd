//! How long a rebuild takes whose ledger has many orders:
//!
//! ```text
//! ORDERS=1000000 cargo test --release -p tenure-sale --features failpoints --test rebuild
//! ```
//!
//! The gate refuses orders meanwhile. Each line has twice the orders of the one before; the time per order
//! must not grow. The planner has no statistics of the table, as just after a sale. Without `ORDERS` it
//! checks with few orders that such a rebuild is right, and says nothing about time.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test program: it fails by panicking and talks by printing"
)]

use std::time::{Duration, Instant};

use tenure_sale::{NewItem, Outcome, Request, Sale, Terms};
use tenure_testkit::{Fsync, PostgresServer, RedisServer};

const ORDERS_DEFAULT: u64 = 2_000;
const ITEM: &str = "i";

fn main() {
    // Test runners ask for the tests in a binary; to them this one has none.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let orders = std::env::var("ORDERS").ok().filter(|text| !text.is_empty());
    let orders = orders.map_or(ORDERS_DEFAULT, |text| text.parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for part in [4, 2, 1] {
        let orders = orders / part;
        let took = runtime.block_on(rebuilt(orders));
        let each = took.as_secs_f64() * 1e6 / f64::from(u32::try_from(orders).unwrap());
        println!("{orders:>10} orders: {took:.2?}, {each:.1} us for each");
    }
}

/// Puts orders into a ledger behind the sale's back, and has the gate rebuilt.
async fn rebuilt(orders: u64) -> Duration {
    let redis = RedisServer::builder().aof(Fsync::Everysec).start();
    let postgres = PostgresServer::start();
    let sale = Sale::open(redis.url(), postgres.url()).await.unwrap();
    let terms = Terms {
        limit_per_buyer: Some(2),
        ..Terms::default()
    };
    let item = NewItem::new(ITEM, orders + 1).unwrap().terms(terms);
    sale.create(&item).await.unwrap();
    sale.open_item(ITEM).await.unwrap();
    let epoch = sale.item(ITEM).await.unwrap().unwrap().epoch;
    postgres.run_sql(&format!(
        "ALTER TABLE sale_orders SET (autovacuum_enabled = false); \
         INSERT INTO sale_orders (item, epoch, number, buyer, request, units, state, accepted_at, \
         committed_at) SELECT '{ITEM}', {epoch}, n, 'buyer-' || n, 'request', 1, 'reserved', \
         extract(epoch FROM now())::bigint * 1000, 1 FROM generate_series(0, {orders} - 1) AS n; \
         UPDATE sale_items SET sold = {orders} WHERE name = '{ITEM}'"
    ));
    let begun = Instant::now();
    sale.rebuild(ITEM).await.unwrap();
    let took = begun.elapsed();

    let ask = async |buyer: &str, id: &str| {
        let request = Request::new(ITEM, buyer, id).unwrap();
        sale.submit(&request).await.unwrap().outcome
    };
    let last = format!("buyer-{}", orders - 1);
    assert!(matches!(ask(&last, "request").await, Outcome::Replayed(_)));
    assert!(matches!(ask(&last, "more").await, Outcome::Accepted(_)));
    assert_eq!(ask(&last, "too many").await, Outcome::LimitReached);
    assert_eq!(ask("another", "late").await, Outcome::SoldOut);
    took
}
