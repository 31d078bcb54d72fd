use std::time::{Duration, Instant};

use serde_json::json;

use super::Service;
use super::shop::{Grown, soon};

const JSON: (&str, &str) = ("content-type", "application/json");

#[tenure_testkit::test]
fn an_order_is_taken_once_and_found_again() {
    let service = Service::shop();
    service.stock("sku-7", 3);
    let first = service.order("sku-7", "anna", "click-1");
    let taken = first.is(202).json();
    assert_eq!(taken["order_id"], "sku-7.1.0");
    assert_eq!(
        taken["state"], "reserved",
        "in memory, accepted means committed"
    );
    assert_eq!(taken["replayed"], false);
    assert_eq!((&taken["left"], &taken["units"]), (&json!(2), &json!(1)));
    assert_eq!(first.header("location"), "/api/v1/orders/sku-7.1.0");

    let again = service.order("sku-7", "anna", "click-1").is(202).json();
    assert_eq!(
        (&again["order_id"], &again["replayed"]),
        (&json!("sku-7.1.0"), &json!(true))
    );
    assert_eq!(again.get("state"), None);
    let order = service.get(first.header("location")).is(200).json();
    assert_eq!(order["order_id"], "sku-7.1.0");
    assert_eq!(order["state"], "reserved");
    assert_eq!(order["request"], "click-1");

    for path in [
        "/api/v1/buyers/anna/orders",
        "/api/v1/users/anna/orders",
        "/api/v1/items/sku-7/orders",
        "/api/v1/items/sku-7/orders?state=reserved&limit=5",
    ] {
        let orders = service.get(path).is(200).json();
        assert_eq!(orders["orders"][0]["order_id"], "sku-7.1.0", "{path}");
    }
    let paid = service.get("/api/v1/items/sku-7/orders?state=paid");
    assert_eq!(paid.json()["orders"], json!([]));
    let by_request = "/api/v1/items/sku-7/orders/anna/click-1";
    assert_eq!(
        service.get(by_request).is(200).json()["order_id"],
        "sku-7.1.0"
    );
    let none = "/api/v1/items/sku-7/orders/anna/click-2";
    service.get(none).is_problem(404, "not_found");
}

#[tenure_testkit::test]
fn the_key_of_the_header_is_the_request() {
    let service = Service::shop();
    service.stock("sku-7", 3);
    let order = |key: &str, body: &str| {
        let headers = [JSON, ("idempotency-key", key)];
        service.send("POST", "/api/v1/orders", &headers, body)
    };
    let plain = r#"{"item": "sku-7", "buyer": "anna"}"#;
    let first = order("key-1", plain).is(202).json();
    assert_eq!(first["request"], "key-1");
    let again = order("\"key-1\"", plain).is(202).json();
    assert_eq!(
        again["order_id"], first["order_id"],
        "with quotes as without"
    );
    let both = r#"{"item": "sku-7", "buyer": "anna", "request": "key-1"}"#;
    assert_eq!(order("key-1", both).is(202).json()["replayed"], true);
    order("key-2", both).is_problem(422, "invalid");

    // Without both, each is a request of its own.
    let body = json!({"item": "sku-7", "buyer": "anna"});
    let one = service.post("/api/v1/orders", &body).is(202).json();
    let other = service.post("/api/v1/orders", &body).is(202).json();
    assert_ne!(one["order_id"], other["order_id"]);
    assert_ne!(one["request"], other["request"]);
}

#[tenure_testkit::test]
fn every_refusal_has_its_word() {
    let service = Service::shop();
    service.stock_on(
        "sku-7",
        &json!({"units": 3, "limit_per_buyer": 2, "units_per_order": 2}),
    );
    let order = |buyer: &str, request: &str, units: u64| {
        let body = json!({"item": "sku-7", "buyer": buyer, "request": request, "units": units});
        service.post("/api/v1/orders", &body)
    };
    order("anna", "1", 2).is(202);
    let reused = order("anna", "1", 1).is_problem(422, "request_reused");
    assert_eq!(reused["order_id"], "sku-7.1.0");
    order("anna", "2", 1).is_problem(409, "limit");
    order("ben", "1", 3).is_problem(409, "limit");
    let sold_out = order("ben", "2", 2).is_problem(409, "sold_out");
    assert_eq!(sold_out["left"], 1, "fewer than asked for");
    order("ben", "3", 1).is(202);
    order("carl", "1", 1).is_problem(409, "sold_out");
    service
        .order("none", "anna", "1")
        .is_problem(404, "no_item");

    service.stock_on(
        "soon",
        &json!({"units": 1, "starts_at": "2199-01-01T00:00:00Z"}),
    );
    let early = || service.order("soon", "anna", "1");
    // It is told once it was looked at.
    soon(|| early().is_problem(425, "not_started")["starts_at"] == "2199-01-01T00:00:00.000Z");
    let days = early().header("retry-after").parse::<u64>().unwrap() / 86_400;
    assert!(days > 60_000, "{days}");
    service.stock_on(
        "over",
        &json!({"units": 1, "ends_at": "2020-01-01T00:00:00Z"}),
    );
    service.order("over", "anna", "1").is_problem(410, "ended");
    service
        .post("/api/v1/items/sku-7/pause", &json!({}))
        .is(200);
    service
        .order("sku-7", "dora", "1")
        .is_problem(409, "paused");
}

#[tenure_testkit::test]
fn orders_that_cannot_be_are_refused() {
    let service = Service::shop();
    service.stock("sku-7", 3);
    for body in [
        json!({}),
        json!({"item": "sku-7"}),
        json!({"item": "sku-7", "buyer": ""}),
        json!({"item": "", "buyer": "anna"}),
        json!({"item": "sku-7", "buyer": "a\nb"}),
        json!({"item": "sku-7", "buyer": "anna", "request": ""}),
        json!({"item": "sku-7", "buyer": "anna", "request": "x".repeat(200)}),
        json!({"item": "sku-7", "buyer": "anna", "units": 0}),
        json!({"item": "sku-7", "buyer": "anna", "units": -1}),
        json!({"item": "sku-7", "buyer": "anna", "units": 2_000_000}),
        json!({"item": "sku-7", "buyer": "anna", "quantity": 2}),
        json!({"item": 7, "buyer": "anna"}),
    ] {
        service
            .post("/api/v1/orders", &body)
            .is_problem(422, "invalid");
    }
    let send = |headers: &[(&str, &str)], body: &str| {
        service.send("POST", "/api/v1/orders", headers, body)
    };
    send(&[JSON], "[").is_problem(400, "malformed");
    send(&[], "{}").is_problem(415, "media_type");
    send(&[JSON], &"x".repeat(100_000)).is_problem(413, "too_large");
    service
        .send("DELETE", "/api/v1/orders", &[], "")
        .is_problem(405, "method_not_allowed");

    service
        .get("/api/v1/orders/nonsense")
        .is_problem(404, "not_found");
    service
        .get("/api/v1/orders/sku-7.1.7")
        .is_problem(404, "not_found");
    service
        .get("/api/v1/orders/sku-7.1.7?wait_ms=soon")
        .is_problem(400, "malformed");
    // What never was is not waited for.
    let begun = Instant::now();
    service
        .get("/api/v1/orders/sku-7.1.7?wait_ms=30000")
        .is_problem(404, "not_found");
    assert!(begun.elapsed() < Duration::from_secs(20));
    for verb in ["cancel", "pay"] {
        let path = format!("/api/v1/orders/sku-7.1.7/{verb}");
        service.post(&path, &json!({})).is_problem(404, "not_found");
    }
    service
        .get("/api/v1/orders/sku-7.1.7/events")
        .is_problem(404, "not_found");
    service
        .get("/api/v1/items/sku-7/orders?state=lovely")
        .is_problem(422, "invalid");
    service
        .get("/api/v1/buyers/%00/orders")
        .is_problem(422, "invalid");
}

#[tenure_testkit::test]
fn orders_are_paid_for_and_cancelled() {
    let service = Service::shop();
    service.stock("sku-7", 3);
    let change = |order: &str, verb: &str| {
        service.post(&format!("/api/v1/orders/{order}/{verb}"), &json!({}))
    };
    let paid = service.ordered("sku-7", "anna", "1");
    for _ in 0..2 {
        assert_eq!(change(&paid, "pay").is(200).json()["state"], "paid");
    }
    change(&paid, "cancel").is_problem(409, "conflict");
    let cancelled = service.ordered("sku-7", "ben", "1");
    for _ in 0..2 {
        assert_eq!(
            change(&cancelled, "cancel").is(200).json()["state"],
            "cancelled"
        );
    }
    soon(|| service.get("/api/v1/items/sku-7").json()["gate"]["left"] == 2);
    // Money that comes too late buys the unit again.
    assert_eq!(change(&cancelled, "pay").is(200).json()["state"], "paid");

    // And nothing if there is none: that is to be refunded.
    let late = service.ordered("sku-7", "carl", "1");
    change(&late, "cancel").is(200);
    soon(|| service.order("sku-7", "dora", "1").status == 202);
    assert_eq!(
        change(&late, "pay").is(200).json()["state"],
        "paid-unfulfilled"
    );
}

#[tenure_testkit::test]
fn an_order_that_is_not_paid_for_expires() {
    let service = Service::shop();
    service.stock_on("sku-7", &json!({"units": 1, "pay_within_ms": 50}));
    let order = service.ordered("sku-7", "anna", "1");
    soon(|| service.state_of(&order) == "expired");
    soon(|| service.order("sku-7", "ben", "1").status == 202);
}

#[tenure_testkit::test]
fn an_order_that_may_be_paid_for_in_a_hundred_years_is_shown() {
    const YEARS_MS: u64 = 100 * 365 * 24 * 60 * 60 * 1_000;
    let service = Service::shop();
    service.stock_on("sku-7", &json!({"units": 1, "pay_within_ms": YEARS_MS}));
    let order = service.ordered("sku-7", "anna", "1");
    let shown = service
        .get(&format!("/api/v1/orders/{order}"))
        .is(200)
        .json();
    let pay_by = shown["pay_by"].as_str().unwrap();
    assert!(pay_by.starts_with("21"), "{pay_by}");
}

#[tenure_testkit::test]
fn a_queued_order_is_waited_for() {
    let shop = Grown::up();
    let seller = shop.instance(&["--no-consumer"]);
    seller.stock("sku-7", 3);
    let taken = seller.order("sku-7", "anna", "1").is(202).json();
    assert_eq!(taken["state"], "queued");
    assert!(taken["poll_after_ms"].as_u64().unwrap() > 0);
    let order = taken["order_id"].as_str().unwrap().to_owned();
    let queued = seller.get(&format!("/api/v1/orders/{order}?wait_ms=50"));
    assert_eq!(queued.is(200).json()["state"], "queued", "nobody consumes");

    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| seller.state_of(&order));
        let _consumer = shop.instance(&[]);
        waiting.join().unwrap()
    });
    assert_eq!(waiting, "reserved");
}

#[tenure_testkit::test]
fn an_item_of_any_name_is_found_where_it_is_said_to_be() {
    let service = Service::shop();
    service.stock("süß/7 ?", 3);
    let taken = service.order("süß/7 ?", "anna", "1");
    let order = service.get(taken.is(202).header("location")).is(200).json();
    assert_eq!(order["item"], "süß/7 ?");
}

#[tenure_testkit::test]
fn waits_and_streams_and_rates_have_limits() {
    let arguments = ["--allow-admin", "--max-waits", "0", "--max-streams", "0"];
    let service = Service::start(&arguments);
    service.stock("sku-7", 3);
    let order = service.ordered("sku-7", "anna", "1");
    let waited = service.get(&format!("/api/v1/orders/{order}?wait_ms=10"));
    waited.is_problem(429, "too_many");
    service
        .get(&format!("/api/v1/orders/{order}/events"))
        .is_problem(429, "too_many");
    let live = service.get("/api/v1/items/sku-7/live");
    live.is_problem(429, "too_many");
    assert_eq!(live.header("retry-after"), "1");

    let slow = Service::start(&["--demo", "--rate", "1"]);
    let refused = (0..10).map(|_| slow.order("1001", "anna", "1"));
    let refused = refused
        .into_iter()
        .find(|answer| answer.status != 202)
        .unwrap();
    refused.is_problem(429, "too_many");
}
