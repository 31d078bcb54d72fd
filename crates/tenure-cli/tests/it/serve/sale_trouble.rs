use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_testkit::{PostgresServer, Proxy, RedisServer};

use super::listening::Listening;
use super::shop::{Grown, soon};
use super::{Answer, Service};

const JSON: (&str, &str) = ("content-type", "application/json");

/// What needs the ledger, and must say that it is away.
const OF_THE_LEDGER: [(&str, &str); 7] = [
    ("GET", "/api/v1/items"),
    ("GET", "/api/v1/items/sku-7"),
    ("GET", "/api/v1/orders/sku-7.1.0"),
    ("GET", "/api/v1/orders/sku-7.1.0?wait_ms=100"),
    ("POST", "/api/v1/orders/sku-7.1.0/cancel"),
    ("POST", "/api/v1/orders/sku-7.1.0/pay"),
    ("GET", "/api/v1/buyers/anna/orders"),
];

fn all_say_unavailable(service: &Service, requests: &[(&str, &str)]) {
    thread::scope(|scope| {
        for (method, path) in requests {
            scope.spawn(move || {
                let begun = Instant::now();
                let answer = service.send(method, path, &[], "");
                answer.is_problem(503, "unavailable");
                assert_eq!(answer.header("retry-after"), "1", "{path}");
                assert!(begun.elapsed() < Duration::from_secs(50), "{path} hung");
            });
        }
    });
}

#[tenure_testkit::test]
fn orders_are_taken_while_the_ledger_is_stopped_and_confirmed_later() {
    sells_without(PostgresServer::kill, PostgresServer::restart);
}

#[tenure_testkit::test]
fn orders_are_taken_while_the_ledger_does_not_answer_and_confirmed_later() {
    sells_without(PostgresServer::pause, PostgresServer::resume);
}

fn sells_without(stop: impl Fn(&PostgresServer), go_on: impl Fn(&PostgresServer)) {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let service = Service::instance(&redis.url(), &postgres.url(), &[]);
    service.stock_on("sku-7", &json!({"units": 100, "backlog_max": 30}));
    service.ordered("sku-7", "zoe", "1");
    let live = Listening::to(&service, "/api/v1/items/sku-7/live");
    live.until(|heard| heard.data["sold"] == 1);
    stop(&postgres);
    let taken: Vec<String> = (0..30)
        .map(|number| service.ordered("sku-7", "anna", &number.to_string()))
        .collect();
    let refused = service.order("sku-7", "anna", "too much");
    refused.is_problem(503, "backlog");
    // Watchers see the state of the gate.
    live.until(|heard| heard.data["left"] == 69);
    all_say_unavailable(&service, &OF_THE_LEDGER);
    service.get("/readyz").is(200);
    service.get("/metrics").is(200);
    go_on(&postgres);
    for order in &taken {
        soon(|| {
            let answer = service.get(&format!("/api/v1/orders/{order}?wait_ms=5000"));
            answer.status == 200 && answer.json()["state"] == "reserved"
        });
    }
    live.until(|heard| heard.data["sold"] == 31);
}

#[tenure_testkit::test]
fn without_the_gate_nothing_is_sold_and_nobody_hangs() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.addr());
    let ledger = PostgresServer::shared().create_database();
    let service = Service::instance(&proxy.url(), &ledger, &["--demo"]);
    service.stock("sku-7", 100);
    service.ordered("sku-7", "anna", "1");
    for trouble in [
        Proxy::black_hole as fn(&Proxy),
        (|proxy| {
            proxy.refuse();
            proxy.reset_all();
        }) as fn(&Proxy),
    ] {
        trouble(&proxy);
        let order = json!({"item": "sku-7", "buyer": "ben", "request": "1"}).to_string();
        thread::scope(|scope| {
            scope.spawn(|| {
                let answer = service.send("POST", "/api/v1/orders", &[JSON], &order);
                let problem = answer.is_problem(503, "unavailable");
                assert_eq!(answer.header("retry-after"), "1");
                assert_eq!(problem["request"], "1", "to be asked for again");
            });
            scope.spawn(|| {
                let problem = service
                    .get("/order/v1/submitOrder")
                    .is_problem(503, "unavailable");
                assert!(problem["port"].is_u64(), "{problem}");
            });
            scope.spawn(|| {
                service
                    .get("/order/v1/submitOrder/v0")
                    .is_problem(503, "unavailable")
            });
            // What the ledger knows is still told.
            scope.spawn(|| {
                let item = service.get("/api/v1/items/sku-7").is(200).json();
                assert_eq!(item.get("gate"), None, "{item}");
            });
            all_say_unavailable(
                &service,
                &[
                    ("GET", "/api/v1/items/sku-7/stats"),
                    ("GET", "/api/v1/items/sku-7/dlq"),
                ],
            );
        });
        proxy.stop_dropping();
        proxy.heal();
        proxy.accept();
        soon(|| service.order("sku-7", "ben", "1").status == 202);
    }
    soon(|| {
        let verdict = service.get("/api/v1/items/sku-7/verify");
        let verdict = verdict.is(200).json();
        assert_eq!(verdict["holds"], true, "{verdict}");
        verdict["settled"] == true && verdict["sold"] == 2
    });
}

#[tenure_testkit::test]
fn a_gate_that_lost_everything_is_rebuilt_from_the_ledger() {
    let shop = Grown::up();
    let service = shop.instance(&[]);
    service.stock("sku-7", 10);
    let order = service.ordered("sku-7", "anna", "1");
    assert_eq!(service.state_of(&order), "reserved");
    shop.redis.client().command(&["FLUSHALL"]);
    soon(|| service.order("sku-7", "ben", "1").status == 202);
    let again = service.order("sku-7", "anna", "1").is(202).json();
    assert_eq!(
        (&again["order_id"], &again["replayed"]),
        (&json!(order), &json!(true))
    );
}

#[tenure_testkit::test]
fn a_dead_letter_is_requeued_or_discarded() {
    let shop = Grown::up();
    let service = shop.instance(&[]);
    service.stock("sku-7", 10);
    let mut client = shop.redis.client();
    client.command(&[
        "XADD",
        "tenure:sale:{sku-7}:orders",
        "1-*",
        "nonsense",
        "yes",
    ]);
    let letters = || {
        service
            .get("/api/v1/items/sku-7/dlq?limit=5")
            .is(200)
            .json()
    };
    soon(|| !letters()["dead_letters"].as_array().unwrap().is_empty());
    let letter = letters()["dead_letters"][0].clone();
    assert_eq!(letter["kind"], "unreadable");
    let order = letter["order_id"].as_str().unwrap();
    let decide = |verb: &str| service.post(&format!("/api/v1/dlq/{order}/{verb}"), &json!({}));
    decide("requeue").is_problem(409, "conflict");
    assert_eq!(decide("discard").is(200).json()["state"], "discarded");
    decide("discard").is_problem(404, "not_found");
    assert_eq!(letters()["dead_letters"], json!([]));
}

/// Values that stand where others are expected.
fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!(""),
        json!("\u{0}"),
        json!("{}"),
        json!("ß".repeat(300)),
        json!([]),
        json!({"a": [null]}),
        json!("sku-7"),
        json!("2026-11-27T20:00:00Z"),
    ]
}

/// A method, a path, and the fields of its body.
type Sent = (&'static str, &'static str, &'static [&'static str]);

const TERMS: &[&str] = &[
    "starts_at",
    "ends_at",
    "limit_per_buyer",
    "units_per_order",
    "pay_within_ms",
    "backlog_max",
    "answers_kept_ms",
];
const BODIES: [Sent; 7] = [
    (
        "POST",
        "/api/v1/orders",
        &["item", "buyer", "units", "request"],
    ),
    ("POST", "/api/v1/items", &["item", "units", "open"]),
    ("POST", "/api/v1/items", TERMS),
    ("PATCH", "/api/v1/items/sku-7", TERMS),
    ("PUT", "/api/v1/items/draft/stock", &["total", "expected"]),
    (
        "POST",
        "/api/v1/items/draft/stock/adjust",
        &["delta", "reason", "reference"],
    ),
    (
        "POST",
        "/order/v1/submitOrder",
        &["item", "buyer", "request", "units"],
    ),
];

#[tenure_testkit::test]
fn nothing_that_is_sent_breaks_the_service() {
    let shop = Grown::up();
    for service in [Service::shop(), shop.instance(&["--no-consumer"])] {
        service.stock("sku-7", 10);
        let draft = json!({"item": "draft", "units": 5});
        service.post("/api/v1/items", &draft).is(201);
        for sent in BODIES {
            send_odd_bodies(&service, sent);
        }
        let long = "x".repeat(600);
        for name in [
            "%00",
            "%ff",
            "..",
            "%2e%2e",
            "a%0ab",
            "%7Ba%7D",
            "%C3%9F%2F",
            &long,
        ] {
            ask_for(&service, name);
        }
        service.get("/livez").is(200);
    }
}

/// All fields as they should be but for one.
fn send_odd_bodies(service: &Service, (method, path, fields): Sent) {
    let fine = json!({"item": "sku-7", "buyer": "anna", "units": 1, "total": 5, "delta": 1});
    let is_fine = |field: &&&str| fine.get(field).is_some();
    for field in fields {
        for value in odd_values() {
            let mut body = json!({});
            for other in fields.iter().filter(is_fine) {
                body[other] = fine[other].clone();
            }
            body[field] = value;
            let answer = service.send(method, path, &[JSON], &body.to_string());
            is_no_fault(&answer, &body.to_string());
        }
    }
    for text in ["", "{", "[]", "null", "\"", "\u{0}", "{\"a\":}", "nan"] {
        let answer = service.send(method, path, &[JSON], text);
        is_no_fault(&answer, text);
    }
}

fn ask_for(service: &Service, name: &str) {
    for path in [
        format!("/api/v1/items/{name}"),
        format!("/api/v1/items/{name}/stats"),
        format!("/api/v1/items/{name}/orders/{name}/{name}"),
        format!("/api/v1/items/{name}/verify"),
        format!("/api/v1/items/{name}/live"),
        format!("/api/v1/orders/{name}"),
        format!("/api/v1/orders/{name}.1.1"),
        format!("/api/v1/orders/sku-7.{name}.1?wait_ms=1"),
        format!("/api/v1/orders/{name}/events"),
        format!("/api/v1/buyers/{name}/orders?limit={name}"),
        format!("/api/v1/buyers/{name}/orders?limit=99999999999999999999"),
        format!("/order/v1/submitOrder?item={name}&buyer={name}&units={name}"),
        format!("/order/v1/submitOrder/{name}"),
    ] {
        is_no_fault(&service.get(&path), &path);
    }
    for verb in ["open", "pause", "close", "rebuild", "reconcile?repair=true"] {
        let path = format!("/api/v1/items/{name}/{verb}");
        is_no_fault(&service.send("POST", &path, &[], ""), &path);
    }
}

#[track_caller]
fn is_no_fault(answer: &Answer, sent: &str) {
    assert!(answer.status < 500, "{answer:?} to {sent}");
}
