use std::time::Duration;

use serde_json::json;

use super::Service;
use super::listening::Listening;
use super::shop::{Grown, soon};

const LIMIT: Duration = Duration::from_secs(30);

#[tenure_testkit::test]
fn the_stock_is_watched_as_it_goes() {
    let shop = Grown::up();
    let service = shop.instance(&[]);
    service.stock("sku-7", 50);
    let live = Listening::to(&service, "/api/v1/items/sku-7/live");
    let first = live.next();
    assert_eq!(
        (first.event.as_str(), &first.data["left"]),
        ("item", &json!(50))
    );
    assert_eq!(first.data["item"], "sku-7");
    for buyer in 0..50 {
        service.ordered("sku-7", &format!("buyer-{buyer}"), "1");
    }
    let sold = live.until(|heard| heard.data["sold"] == 50);
    assert_eq!(
        (&sold.data["left"], &sold.data["queued"]),
        (&json!(0), &json!(0))
    );
    assert!(sold.id.is_some(), "{sold:?}");
    service
        .post("/api/v1/items/sku-7/pause", &json!({}))
        .is(200);
    live.until(|heard| heard.data["state"] == "paused");
}

#[tenure_testkit::test]
fn events_of_an_item_are_few_however_much_is_sold() {
    let service = Service::shop();
    service.stock("sku-7", 1_000);
    let live = Listening::to(&service, "/api/v1/items/sku-7/live");
    let begun = std::time::Instant::now();
    for order in 0..300 {
        service.ordered("sku-7", "anna", &order.to_string());
    }
    let mut count = 0;
    loop {
        let heard = live.next();
        count += 1;
        if heard.data["sold"] == 300 {
            break;
        }
    }
    // Ten a second, one at the beginning, and one for good measure.
    let allowed = begun.elapsed().as_secs() * 10 + 10 + 2;
    assert!(count <= allowed, "{count} events, {allowed} allowed");
}

#[tenure_testkit::test]
fn an_order_is_watched_until_its_end() {
    let shop = Grown::up();
    let seller = shop.instance(&["--no-consumer"]);
    seller.stock("sku-7", 3);
    let order = seller.ordered("sku-7", "anna", "1");
    let states = Listening::to(&seller, &format!("/api/v1/orders/{order}/events"));
    let first = states.next();
    assert_eq!(first.event, "order");
    assert_eq!(first.data["state"], "queued");
    let _consumer = shop.instance(&[]);
    assert_eq!(states.next().data["state"], "reserved");
    seller
        .post(&format!("/api/v1/orders/{order}/pay"), &json!({}))
        .is(200);
    assert_eq!(states.next().data["state"], "paid");
    assert!(states.rest().is_empty(), "the stream ends");
    // What is over is told once.
    let over = Listening::to(&seller, &format!("/api/v1/orders/{order}/events"));
    assert_eq!(over.rest().len(), 1);
}

#[tenure_testkit::test]
fn streams_end_with_the_service() {
    let service = Service::shop();
    service.stock("sku-7", 3);
    let order = service.ordered("sku-7", "anna", "1");
    let live = Listening::to(&service, "/api/v1/items/sku-7/live");
    let states = Listening::to(&service, &format!("/api/v1/orders/{order}/events"));
    live.next();
    states.next();
    let pid = nix::unistd::Pid::from_raw(service.process.pid().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    service.process.wait_for_success(LIMIT);
    live.rest();
    states.rest();
}

#[tenure_testkit::test]
fn what_is_sold_is_counted() {
    let shop = Grown::up();
    let service = shop.instance(&[]);
    service.stock("sku-7", 2);
    for buyer in ["anna", "ben", "carl"] {
        service.order("sku-7", buyer, "1");
    }
    service
        .order("none", "anna", "1")
        .is_problem(404, "no_item");
    let lines = [
        r#"tenure_sale_requests_total{item="sku-7",outcome="accepted"} 2"#,
        r#"tenure_sale_requests_total{item="sku-7",outcome="sold_out"} 1"#,
        r#"tenure_sale_requests_total{item="_other",outcome="no_item"} 1"#,
        "tenure_sale_submit_seconds_count 4",
        r#"tenure_sale_units_left{item="sku-7"} 0"#,
        r#"tenure_sale_queue_length{item="sku-7"} 0"#,
        r#"tenure_sale_dead_letters{item="sku-7"} 0"#,
        r#"tenure_sale_drift{item="sku-7"} 0"#,
        "tenure_sale_committed_total 2",
        "tenure_sale_rejected_total 0",
    ];
    let mut text = String::new();
    soon(|| {
        text = service.get("/metrics").is(200).text.clone();
        lines.iter().all(|line| text.lines().any(|it| it == *line))
    });
    // Another program writes to the gate: units are missing.
    shop.redis
        .client()
        .command(&["HSET", "tenure:sale:{sku-7}:gate", "left", "1"]);
    let drift = r#"tenure_sale_drift{item="sku-7"} -1"#;
    soon(|| service.get("/metrics").text.contains(drift));
}

#[tenure_testkit::test]
fn items_beyond_the_first_ones_have_no_name_of_their_own() {
    let service = Service::shop();
    for item in 0..205 {
        service.stock(&format!("sku-{item}"), 1);
        service.ordered(&format!("sku-{item}"), "anna", "1");
    }
    let text = service.get("/metrics").text;
    let counted = |line: &&str| line.starts_with("tenure_sale_requests_total");
    assert!(text.lines().filter(counted).count() <= 201, "{text}");
    assert!(
        text.contains(r#"item="_other",outcome="accepted""#),
        "{text}"
    );
}
