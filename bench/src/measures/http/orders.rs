//! Orders: accepted a second by one instance and by two, with and without bringing them into the ledger.

use std::sync::atomic::{AtomicU64, Ordering};

use tenure_testkit::PostgresServer;
use tokio::runtime::Runtime;

use super::handler::Handler;
use super::service::Service;
use super::wire::{Wire, request};
use super::{Asked, Asker, Scene, Slice, offer, saturate};
use crate::rounds::{Entry, interleave};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

/// More than can be sold in a slice.
const UNITS: u64 = 1_000_000_000;
/// Each slice sells an item of its own.
static ITEMS: AtomicU64 = AtomicU64::new(0);
static BUYERS: AtomicU64 = AtomicU64::new(0);

struct Buyer {
    item: String,
    buyer: String,
    orders: u64,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let postgres = PostgresServer::start();
    let (ledger, url) = (postgres.create_database(), setting.url());
    let start = |more: &[&str]| {
        let places = ["--url", &url, "--ledger", &ledger];
        Service::start(&[&places[..], more].concat())
    };
    let handler = Handler::start();
    let (one, two) = (start(&["--no-consumer"]), start(&["--no-consumer"]));
    let slices = [
        ("handler", vec![handler.asked()], None),
        ("one", vec![one.asked()], Some(&one)),
        ("two", vec![one.asked(), two.asked()], Some(&one)),
    ];
    let entries = slices.into_iter().map(|(label, asked, at)| {
        let runtime = &runtime;
        Entry::new(label, move || sell(runtime, setting, &asked, at, None))
    });
    let results = interleave("http_orders", setting.rounds, entries.collect());
    let rate = |label: &str| results.samples(label, |slice: &Slice| slice.per_second);
    let reference = || ("axum handler", rate("handler"));
    let row = |what: &str, label: &str, target| {
        let (name, samples) = reference();
        let ours = (&rate(label), Unit::PerSecond);
        Row::ratio(what, ours, (name, &samples), target)
    };
    let half = rate("one").median() / 2.0;
    let at_half = Entry::new("half", || {
        sell(&runtime, setting, &[one.asked()], Some(&one), Some(half))
    });
    let calm = interleave("http_orders, half the rate", setting.rounds, vec![at_half]);
    let calm = calm.samples("half", |slice| slice.p99_millis);
    let p99 = results.samples("one", |slice| slice.p99_millis);
    let cpu = |label: &str| results.samples(label, |slice| slice.cpu.asked);
    let of_redis = results.samples("one", |slice| slice.cpu.redis);
    drop((one, two));
    let mut rows = vec![
        row(
            "HTTP, accepted orders/s, 256 connections",
            "one",
            Target::AtLeast(0.6),
        ),
        row("the same, two instances", "two", Target::None),
        Row::figure(
            "the same, one instance, p99 of an answer",
            (&p99, Unit::Millis),
            Target::None,
        ),
        Row::ratio(
            "the same, one instance, CPU time of the service for an order",
            (&cpu("one"), Unit::Micros),
            ("axum handler", &cpu("handler")),
            Target::None,
        ),
        Row::figure(
            "the same, one instance, CPU time of Redis for an order",
            (&of_redis, Unit::Micros),
            Target::None,
        ),
        Row::figure(
            "the same at half that rate, p99 from when an order was due",
            (&calm, Unit::Millis),
            Target::None,
        ),
    ];
    rows.push(consumed(&runtime, setting, &handler, &start(&[])));
    rows
}

/// While the same process brings the orders into the ledger.
fn consumed(runtime: &Runtime, setting: &Setting, handler: &Handler, one: &Service) -> Row {
    let entries = vec![
        Entry::new("handler", || {
            sell(runtime, setting, &[handler.asked()], None, None)
        }),
        Entry::new("one", || {
            sell(runtime, setting, &[one.asked()], Some(one), None)
        }),
    ];
    let results = interleave("http_orders, consumed", setting.rounds, entries);
    let rate = |label: &str| results.samples(label, |slice: &Slice| slice.per_second);
    Row::ratio(
        "HTTP, accepted orders/s while the instance brings them into PostgreSQL",
        (&rate("one"), Unit::PerSecond),
        ("axum handler", &rate("handler")),
        Target::None,
    )
}

/// Sells an item that is brought on sale at `at`, if that is given.
fn sell(
    runtime: &Runtime,
    setting: &Setting,
    asked: &[Asked],
    at: Option<&Service>,
    rate: Option<f64>,
) -> Slice {
    let item = format!("bench-http-{}", ITEMS.fetch_add(1, Ordering::Relaxed));
    if let Some(service) = at {
        let body = format!(
            r#"{{"item": "{item}", "units": {UNITS}, "open": true, "backlog_max": {UNITS}}}"#
        );
        let created = service.ask(runtime, "POST", "/api/v1/items", &body);
        assert_eq!(created.status, 201, "{}", created.body);
    }
    let buyer = |_| Buyer::of(&item);
    let redis = setting.server.pid();
    let scene = Scene {
        runtime,
        asked,
        redis,
    };
    let slice = match rate {
        Some(_) => offer(&scene, rate, buyer),
        None => saturate(&scene, buyer),
    };
    if let Some(service) = at {
        let closed = format!("/api/v1/items/{item}/close");
        let closed = service.ask(runtime, "POST", &closed, "");
        assert_eq!(closed.status, 200, "{}", closed.body);
        let keys = ["answers", "buyers", "orders"];
        for key in keys.map(|key| format!("tenure:sale:{{{item}}}:{key}")) {
            // So that the server does not grow from slice to slice.
            setting.server.client().command(&["UNLINK", &key]);
        }
    }
    slice
}

impl Buyer {
    fn of(item: &str) -> Self {
        Self {
            item: item.to_owned(),
            buyer: format!("buyer-{}", BUYERS.fetch_add(1, Ordering::Relaxed)),
            orders: 0,
        }
    }
}

impl Asker for Buyer {
    async fn ask(&mut self, wire: &mut Wire) {
        self.orders += 1;
        let Self {
            item,
            buyer,
            orders,
        } = self;
        let body = format!(r#"{{"item":"{item}","buyer":"{buyer}","request":"click-{orders}"}}"#);
        let answer = wire.ask(&request("POST", "/api/v1/orders", &body)).await;
        assert_eq!(answer.status, 202, "{}", answer.body);
    }
}
