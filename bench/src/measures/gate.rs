//! The gate of a sale: accepted orders per second beside the least that sells from Redis at all, and
//! what an order costs the server in memory.
//!
//! The least is the script of the notes: is there any left? one fewer, and an entry in a stream. No
//! window, no limit, no memory of who asked, no defence against a server that was replaced. It is
//! sent once for each order over one connection, as the gate's calls are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tenure::Fence;
use tenure_sale::gate::{Gate, Load};
use tenure_sale::{ItemState, Outcome, Request, Terms};
use tenure_testkit::Cluster;
use tokio::runtime::Runtime;

use crate::floor::{Nagle, connect};
use crate::rounds::{Entry, interleave};
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

/// Buyers that ask at once, each again as soon as it is answered; and what is aimed at.
const BUYERS: [(usize, &str, f64); 3] = [
    (1, "gate, accepted orders/s, 1 buyer at a time", 0.5),
    (64, "gate, accepted orders/s, 64 buyers at once", 1.5),
    (1_024, "gate, accepted orders/s, 1024 buyers at once", 2.5),
];
const SLICE: Duration = Duration::from_millis(500);
/// More than can be sold in a slice.
const UNITS: u64 = 1_000_000_000;
/// Orders whose memory is measured.
const REMEMBERED: u64 = 20_000;

const BARE: &str = "\
local left = redis.call('GET', KEYS[1]) \
if not left then return -1 end \
if tonumber(left) < 1 then return 0 end \
redis.call('DECR', KEYS[1]) \
redis.call('XADD', KEYS[2], '*', 'b', ARGV[1], 'r', ARGV[2]) \
return 1";

/// Each slice sells an item of its own.
static ITEMS: AtomicU64 = AtomicU64::new(0);

pub fn measure(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let gate = runtime.block_on(Gate::connect(setting.url()));
    let gate = gate.expect("the gate can be reached");
    let bare = runtime.block_on(Bare::connect(&setting.url()));
    let mut rows = Vec::new();
    for (buyers, what, aim) in BUYERS {
        let entries = vec![
            Entry::new("gate", || gate_rate(&runtime, setting, &gate, buyers)),
            Entry::new("bare", || bare_rate(&runtime, setting, &bare, buyers)),
        ];
        let results = interleave(what, setting.rounds, entries);
        let named = |label: &str| results.samples(label, |rate| *rate);
        rows.push(Row::ratio(
            what,
            (&named("gate"), Unit::PerSecond),
            ("bare script", &named("bare")),
            Target::AtLeast(aim),
        ));
    }
    let short = |number: u64| format!("{number:016}");
    let uuid = |number: u64| format!("0b9f1c52-7a1e-4c55-9d30-{number:012}");
    let what = "gate, server memory per order before its acknowledgement";
    let target = Target::AtMost(250.0);
    let used = memory(&runtime, setting, &gate, short);
    rows.push(Row::figure(what, (&used, Unit::Bytes), target));
    let used = memory(&runtime, setting, &gate, uuid);
    let what = "the same, with UUIDs of 36 bytes as ids of requests instead of 16 bytes";
    rows.push(Row::figure(what, (&used, Unit::Bytes), target));
    rows
}

/// One item on a cluster of three nodes: on one of them, and spread over all.
pub fn hot(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let cluster = Cluster::builder().masters(3).replicas(0).start();
    let gate = runtime.block_on(Gate::connect(cluster.url()));
    let gate = gate.expect("the gate can be reached");
    let what = "gate, accepted orders/s of one item on a Cluster of 3, spread 3, 1024 buyers";
    let rate = |spread| {
        let item = fresh_item();
        runtime.block_on(load(&gate, &item, None, spread));
        let rate = sold_rate(&runtime, &gate, &item, 1_024);
        for server in cluster.servers() {
            server.client().command(&["FLUSHALL"]);
        }
        rate
    };
    let entries = vec![
        Entry::new("spread", || rate(3)),
        Entry::new("plain", || rate(1)),
    ];
    let results = interleave(what, setting.rounds, entries);
    let named = |label: &str| results.samples(label, |rate| *rate);
    vec![Row::ratio(
        what,
        (&named("spread"), Unit::PerSecond),
        ("spread 1", &named("plain")),
        Target::None,
    )]
}

fn gate_rate(runtime: &Runtime, setting: &Setting, gate: &Gate, buyers: usize) -> f64 {
    let item = fresh_item();
    runtime.block_on(load(gate, &item, None, 1));
    let rate = sold_rate(runtime, gate, &item, buyers);
    forget(setting, &item);
    rate
}

/// Orders per second of one item that is loaded.
fn sold_rate(runtime: &Runtime, gate: &Gate, item: &str, buyers: usize) -> f64 {
    let sold = Arc::new(AtomicU64::new(0));
    rate_of(runtime, buyers, |buyer, end| {
        let (gate, item, sold) = (gate.clone(), item.to_owned(), sold.clone());
        async move {
            let buyer = format!("buyer-{buyer}");
            let mut count = 0;
            while Instant::now() < end {
                let number = sold.fetch_add(1, Ordering::Relaxed);
                let request = Request::new(&item, &buyer, format!("request-{number}"));
                let answer = gate.ask(&request.expect("good names")).await;
                let outcome = answer.expect("the gate answers").outcome;
                assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
                count += 1;
            }
            count
        }
    })
}

fn bare_rate(runtime: &Runtime, setting: &Setting, bare: &Bare, buyers: usize) -> f64 {
    let item = fresh_item();
    let keys = [
        format!("bare:{{{item}}}:left"),
        format!("bare:{{{item}}}:orders"),
    ];
    setting
        .server
        .client()
        .command(&["SET", &keys[0], &UNITS.to_string()]);
    let sold = Arc::new(AtomicU64::new(0));
    let rate = rate_of(runtime, buyers, |buyer, end| {
        let (bare, keys, sold) = (bare.clone(), keys.clone(), sold.clone());
        async move {
            let buyer = format!("buyer-{buyer}");
            let mut count = 0;
            while Instant::now() < end {
                let number = sold.fetch_add(1, Ordering::Relaxed);
                bare.sell(&keys, &buyer, &format!("request-{number}")).await;
                count += 1;
            }
            count
        }
    });
    setting
        .server
        .client()
        .command(&["DEL", &keys[0], &keys[1]]);
    rate
}

/// Orders per second of so many buyers at once.
fn rate_of<F>(runtime: &Runtime, buyers: usize, buy: impl Fn(usize, Instant) -> F) -> f64
where
    F: Future<Output = u64> + Send + 'static,
{
    let begun = Instant::now();
    let end = begun + SLICE;
    let tasks: Vec<_> = (0..buyers)
        .map(|buyer| runtime.spawn(buy(buyer, end)))
        .collect();
    let counts = tasks
        .into_iter()
        .map(|task| runtime.block_on(task).expect("no buyer panics"));
    let sold: u64 = counts.sum();
    sold as f64 / begun.elapsed().as_secs_f64()
}

/// What an accepted order takes of the server's memory until it is acknowledged, with a limit for
/// each buyer, and each order by another buyer with a name of 10 bytes.
fn memory(
    runtime: &Runtime,
    setting: &Setting,
    gate: &Gate,
    request_id: impl Fn(u64) -> String,
) -> Samples {
    let item = fresh_item();
    runtime.block_on(load(gate, &item, Some(5), 1));
    let before = used_memory(setting);
    runtime.block_on(async {
        for number in 0..REMEMBERED {
            let request = Request::new(&item, format!("b{number:09}"), request_id(number));
            let answer = gate.ask(&request.expect("good names")).await;
            assert!(answer.expect("the gate answers").outcome.order().is_some());
        }
    });
    let used = (used_memory(setting) - before) as f64 / REMEMBERED as f64;
    forget(setting, &item);
    Samples::new([used])
}

fn used_memory(setting: &Setting) -> u64 {
    let info = setting.server.client().command(&["INFO", "memory"]);
    let info = info.text().to_owned();
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    used.and_then(|used| used.trim().parse().ok())
        .expect("a server says what it uses")
}

async fn load(gate: &Gate, item: &str, limit_per_buyer: Option<u64>, spread: u64) {
    let terms = Terms {
        limit_per_buyer,
        backlog_max: UNITS,
        ..Terms::default()
    };
    let (epoch, fence) = (1, Fence::new(1));
    let load = Load {
        epoch,
        fence,
        state: ItemState::Open,
        left: Some(UNITS),
        change: 0,
        spread,
        terms,
    };
    let begun = gate.begin_load(item, epoch, fence, spread).await;
    assert!(begun.expect("the gate answers"));
    let finished = gate.finish_load(item, &load).await;
    assert!(finished.expect("the gate answers"));
}

fn forget(setting: &Setting, item: &str) {
    let keys = ["gate", "buyers", "answers", "orders", "dead"];
    let keys = keys.map(|key| format!("tenure:sale:{{{item}}}:{key}"));
    for key in keys {
        setting.server.client().command(&["DEL", &key]);
    }
}

fn fresh_item() -> String {
    format!("bench-{}", ITEMS.fetch_add(1, Ordering::Relaxed))
}

#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    hash: Arc<str>,
}

impl Bare {
    async fn connect(url: &str) -> Self {
        let mut connection = connect(url, Nagle::Off).await;
        let hash: String = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(BARE)
            .query_async(&mut connection)
            .await
            .expect("the server takes scripts");
        let hash = hash.into();
        Self { connection, hash }
    }

    async fn sell(&self, keys: &[String; 2], buyer: &str, request: &str) {
        let mut connection = self.connection.clone();
        let sold: i64 = redis::cmd("EVALSHA")
            .arg(&*self.hash)
            .arg(2)
            .arg(keys)
            .arg(buyer)
            .arg(request)
            .query_async(&mut connection)
            .await
            .expect("the bare script runs");
        assert_eq!(sold, 1, "the bare script did not sell");
    }
}
