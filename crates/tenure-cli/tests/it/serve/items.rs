use serde_json::json;

use super::Service;
use super::shop::{Grown, soon};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

#[tenure_testkit::test]
fn an_item_from_draft_to_closed() {
    let service = Service::shop();
    let body = json!({"item": "sku-7", "units": 5, "limit_per_buyer": 2, "pay_within_ms": 60_000,
        "starts_at": "2020-01-02T03:04:05Z"});
    let created = service.post("/api/v1/items", &body);
    assert_eq!(created.is(201).header("location"), "/api/v1/items/sku-7");
    let item = created.json();
    assert_eq!(item["state"], "draft");
    assert_eq!(item["total"], 5);
    assert_eq!(item["limit_per_buyer"], 2);
    assert_eq!(item["pay_within_ms"], 60_000);
    assert_eq!(item["starts_at"], "2020-01-02T03:04:05.000Z");
    service
        .order("sku-7", "anna", "1")
        .is_problem(404, "no_item");

    for (verb, state) in [("open", "open"), ("pause", "paused"), ("open", "open")] {
        let path = format!("/api/v1/items/sku-7/{verb}");
        let item = service.post(&path, &json!({})).is(200).json();
        assert_eq!(item["state"], state);
    }
    let change = r#"{"limit_per_buyer": null, "units_per_order": 3, "starts_at": null}"#;
    let changed = service.send("PATCH", "/api/v1/items/sku-7", &JSON, change);
    assert_eq!(changed.is(200).json()["limit_per_buyer"], json!(null));
    assert_eq!(changed.json()["units_per_order"], 3);
    assert_eq!(
        changed.json()["pay_within_ms"],
        60_000,
        "what is left out stays"
    );
    service
        .post("/api/v1/items/sku-7/rebuild", &json!({}))
        .is(200);
    let item = service.get("/api/v1/items/sku-7").is(200).json();
    assert_eq!(item["gate"]["left"], 5);
    assert_eq!(item["epoch"], 2, "it was opened and rebuilt");

    service
        .post("/api/v1/items/sku-7/close", &json!({}))
        .is(200);
    service.order("sku-7", "anna", "1").is_problem(410, "ended");
    let items = service.get("/api/v1/items").is(200).json();
    assert_eq!(items["items"][0]["state"], "closed");
    assert_eq!(items["items"][0]["gate"]["left"], 5);
}

#[tenure_testkit::test]
fn the_stock_is_set_and_adjusted_once() {
    let service = Service::shop();
    service.stock("sku-7", 5);
    let set = |body: &str| service.send("PUT", "/api/v1/items/sku-7/stock", &JSON, body);
    assert_eq!(set(r#"{"total": 7}"#).is(200).json()["total"], 7);
    set(r#"{"total": 9, "expected": 5}"#).is_problem(409, "conflict");
    assert_eq!(
        set(r#"{"total": 6, "expected": 7}"#).is(200).json()["total"],
        6
    );

    let adjust = "/api/v1/items/sku-7/stock/adjust";
    let body = json!({"delta": 4, "reason": "second delivery", "reference": "delivery-2"});
    for _ in 0..2 {
        let item = service.post(adjust, &body).is(200).json();
        assert_eq!(
            (&item["total"], &item["reference"]),
            (&json!(10), &json!("delivery-2"))
        );
    }
    let key = [JSON[0], ("idempotency-key", "broken-1")];
    for _ in 0..2 {
        let item = service.send("POST", adjust, &key, r#"{"delta": -3}"#);
        assert_eq!(item.is(200).json()["total"], 7);
    }
    let other = json!({"delta": 5, "reference": "delivery-2"});
    service.post(adjust, &other).is_problem(409, "conflict");
    service
        .post(adjust, &json!({"delta": -8}))
        .is_problem(409, "conflict");
    let made = service.post(adjust, &json!({"delta": 1})).is(200).json();
    assert!(made["reference"].as_str().unwrap().len() > 16, "{made}");
    assert_eq!(service.get("/api/v1/items/sku-7").json()["gate"]["left"], 8);
}

#[tenure_testkit::test]
fn an_item_may_be_spread() {
    let shop = Grown::up();
    let service = shop.instance(&[]);
    service.stock_on("hot", &json!({"units": 7, "spread": 3}));
    let item = service.get("/api/v1/items/hot").is(200).json();
    assert_eq!(item["spread"], 3);
    assert_eq!(item["gate"]["shelves"].as_array().unwrap().len(), 3);
    for n in 0..7 {
        let answer = service.order("hot", "anna", &n.to_string()).is(202).json();
        assert_eq!(answer["left"], json!(null));
    }
    let refused = service.order("hot", "ben", "1");
    refused.is_problem(409, "sold_out");
    assert_eq!(refused.json()["left"], 0);
    let settled = || {
        let verdict = service.get("/api/v1/items/hot/verify").is(200).json();
        verdict["holds"] == true && verdict["report"]["sold"] == 7
    };
    soon(settled);
}

#[tenure_testkit::test]
fn an_item_may_be_unlimited() {
    let service = Service::shop();
    service.stock_on("voucher", &json!({"units": null}));
    let answer = service.order("voucher", "anna", "1").is(202).json();
    assert_eq!(answer["left"], json!(null));
    let item = service.get("/api/v1/items/voucher").json();
    assert_eq!(
        (&item["unlimited"], &item["total"]),
        (&json!(true), &json!(null))
    );
    let adjust = "/api/v1/items/voucher/stock/adjust";
    service
        .post(adjust, &json!({"delta": 1}))
        .is_problem(422, "invalid");
}

#[tenure_testkit::test]
fn items_that_cannot_be_are_refused() {
    let service = Service::shop();
    service.stock("sku-7", 5);
    let create = |body: &str| service.send("POST", "/api/v1/items", &JSON, body);
    create(r#"{"item": "sku-7", "units": 1}"#).is_problem(409, "conflict");
    for body in [
        r#"{"units": 1}"#,
        r#"{"item": null, "units": 1}"#,
        r#"{"item": "a"}"#,
        r#"{"item": "", "units": 1}"#,
        r#"{"item": "a{b", "units": 1}"#,
        r#"{"item": "a", "units": -1}"#,
        r#"{"item": "a", "units": 1.5}"#,
        r#"{"item": "a", "units": 18446744073709551615}"#,
        r#"{"item": "a", "units": 1, "limit": 2}"#,
        r#"{"item": "a", "units": 1, "starts_at": "soon"}"#,
        r#"{"item": "a", "units": 1, "starts_at": "2030-01-02T00:00:00Z", "ends_at": "2030-01-01T00:00:00Z"}"#,
        r#"{"item": "a", "units": 1, "units_per_order": 0}"#,
        r#"{"item": "a", "units": 1, "spread": 0}"#,
        r#"{"item": "a", "units": 1, "spread": 65}"#,
    ] {
        create(body).is_problem(422, "invalid");
    }
    create("{").is_problem(400, "malformed");
    service
        .send("POST", "/api/v1/items", &[], "item=a")
        .is_problem(415, "media_type");
    for path in [
        "",
        "/stats",
        "/orders",
        "/live",
        "/reconcile",
        "/verify",
        "/dlq",
    ] {
        let path = format!("/api/v1/items/none{path}");
        service.get(&path).is_problem(404, "no_item");
    }
    for verb in ["open", "pause", "close", "rebuild"] {
        let path = format!("/api/v1/items/none/{verb}");
        service.post(&path, &json!({})).is_problem(404, "no_item");
    }
    let change = |body: &str| service.send("PATCH", "/api/v1/items/sku-7", &JSON, body);
    change(r#"{"units": 7}"#).is_problem(422, "invalid");
    change(r#"{"spread": 2}"#).is_problem(422, "invalid");
    change(r#"{"units_per_order": 0}"#).is_problem(422, "invalid");
    service
        .send("PUT", "/api/v1/items/sku-7/stock", &JSON, "{}")
        .is_problem(422, "invalid");
    let adjust = "/api/v1/items/sku-7/stock/adjust";
    let bad = json!({"delta": 1, "reason": "a\u{1}b"});
    service.post(adjust, &bad).is_problem(422, "invalid");
    let bad = json!({"delta": 1, "reference": "\u{0}"});
    service.post(adjust, &bad).is_problem(422, "invalid");
    // Drafts cannot be closed: they were never on sale.
    create(r#"{"item": "draft", "units": 1}"#).is(201);
    service
        .post("/api/v1/items/draft/close", &json!({}))
        .is_problem(409, "conflict");
}

#[tenure_testkit::test]
fn without_administration_items_are_only_looked_at() {
    let service = Service::start(&["--demo"]);
    for (method, path) in [
        ("POST", "/api/v1/items"),
        ("PATCH", "/api/v1/items/1001"),
        ("POST", "/api/v1/items/1001/open"),
        ("POST", "/api/v1/items/1001/pause"),
        ("POST", "/api/v1/items/1001/close"),
        ("POST", "/api/v1/items/1001/rebuild"),
        ("PUT", "/api/v1/items/1001/stock"),
        ("POST", "/api/v1/items/1001/stock/adjust"),
        ("POST", "/api/v1/items/1001/reconcile"),
        ("POST", "/api/v1/dlq/1001.1.0/requeue"),
        ("POST", "/api/v1/dlq/1001.1.0/discard"),
    ] {
        service
            .send(method, path, &JSON, "{}")
            .is_problem(403, "forbidden");
    }
    service.get("/api/v1/items/1001").is(200);
    let order = service.ordered("1001", "anna", "1");
    service
        .post(&format!("/api/v1/orders/{order}/pay"), &json!({}))
        .is(200);
}

#[tenure_testkit::test]
fn without_a_ledger_there_are_no_sales() {
    let redis = tenure_testkit::RedisServer::start();
    let mut command = crate::command::tenure(&["serve", "--allow-admin", "--demo"]);
    let service = Service::of(command.args(["--url", &redis.url()]));
    for (method, path) in [
        ("GET", "/api/v1/items"),
        ("POST", "/api/v1/items"),
        ("GET", "/api/v1/items/1001/live"),
        ("POST", "/api/v1/orders"),
        ("GET", "/api/v1/orders/1001.1.0"),
        ("GET", "/api/v1/orders/1001.1.0/events"),
        ("GET", "/api/v1/buyers/anna/orders"),
        ("GET", "/api/v1/users/anna/orders"),
        ("POST", "/api/v1/dlq/1001.1.0/requeue"),
        ("GET", "/order/v1/submitOrder"),
        ("POST", "/order/v1/submitOrder"),
    ] {
        service
            .send(method, path, &[], "")
            .is_problem(501, "no_sales");
    }
    service.get("/order/v1/submitOrder/v0").is(200);
}

#[tenure_testkit::test]
fn an_item_is_looked_after() {
    let shop = Grown::up();
    let service = shop.instance(&[]);
    service.stock("sku-7", 5);
    let order = service.ordered("sku-7", "anna", "1");
    assert_eq!(service.state_of(&order), "reserved");
    let stats = service.get("/api/v1/items/sku-7/stats").is(200).json();
    assert_eq!(stats["gate"]["left"], 4);
    assert_eq!(
        stats["orders"][0],
        json!({"state": "reserved", "orders": 1, "units": 1})
    );
    let settled = || {
        let report = service.get("/api/v1/items/sku-7/reconcile").is(200).json();
        report["settled"] == true && report["clean"] == true
    };
    soon(settled);

    // Another program writes to the gate.
    shop.redis
        .client()
        .command(&["HSET", "tenure:sale:{sku-7}:gate", "left", "2"]);
    let report = service.get("/api/v1/items/sku-7/reconcile").is(200).json();
    assert_eq!(
        (&report["clean"], &report["drift"]),
        (&json!(false), &json!(2)),
        "{report}"
    );
    let verdict = service.get("/api/v1/items/sku-7/verify").is(200).json();
    assert_eq!(verdict["holds"], false, "{verdict}");
    let path = "/api/v1/items/sku-7/reconcile";
    let unrepaired = service.post(path, &json!({})).is(200).json();
    assert_eq!(unrepaired["repaired"], false);
    let repaired = service
        .post(&format!("{path}?repair=true"), &json!({}))
        .is(200)
        .json();
    assert_eq!(
        (&repaired["repaired"], &repaired["clean"]),
        (&json!(true), &json!(true))
    );
    let verdict = service.get("/api/v1/items/sku-7/verify").is(200).json();
    assert_eq!(verdict["holds"], true, "{verdict}");
}
