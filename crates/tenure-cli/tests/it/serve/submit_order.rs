use std::collections::BTreeSet;
use std::thread;

use serde_json::json;
use tenure_testkit::RedisServer;

use super::shop::{Grown, soon};
use super::{Answer, Service};
use crate::command::tenure;

const PATH: &str = "/order/v1/submitOrder";
const JSON: (&str, &str) = ("content-type", "application/json");

fn port_of(service: &Service) -> u64 {
    let port = service.url.rsplit_once(':').unwrap().1;
    port.parse().unwrap()
}

#[tenure_testkit::test]
fn the_item_of_the_notes_is_sold_with_what_is_left_and_by_whom() {
    let service = Service::start(&["--demo"]);
    let port = port_of(&service);
    let sold = service.get(PATH).is(200).json();
    assert_eq!(
        sold["message"],
        format!("sold one, 4999 left, served by port {port}")
    );
    assert_eq!(
        (&sold["left"], &sold["port"]),
        (&json!(4_999), &json!(port))
    );
    assert_eq!(sold["order_id"], "1001.1.0");
    // A body is not needed, and neither is its kind.
    let posted = service.send("POST", PATH, &[], "");
    assert_eq!(posted.is(200).json()["left"], 4_998);
    let named = r#"{"buyer": "anna", "request": "click-1"}"#;
    let first = service.send("POST", PATH, &[JSON], named).is(200).json();
    let again = service.get(&format!("{PATH}?buyer=anna&request=click-1"));
    assert_eq!(again.is(200).json()["order_id"], first["order_id"]);
    for _ in 0..2 {
        let key = [("idempotency-key", "click-2")];
        let keyed = service.send("GET", PATH, &key, "").is(200).json();
        assert_eq!(keyed["order_id"], "1001.1.3", "one key, one order");
        let keyed = service.get(&format!("{PATH}?request=click-2"));
        assert_eq!(keyed.is(200).json()["order_id"], "1001.1.3");
    }
    let item = service.get("/api/v1/items/1001").json();
    assert_eq!((&item["sold"], &item["total"]), (&json!(4), &json!(5_000)));
}

#[tenure_testkit::test]
fn another_item_is_sold_out_and_says_so() {
    let service = Service::shop();
    service.stock("sku-7", 1);
    let path = format!("{PATH}?item=sku-7");
    assert_eq!(service.get(&path).is(200).json()["left"], 0);
    let sold_out = service.get(&path).is_problem(409, "sold_out");
    assert_eq!(
        (&sold_out["left"], &sold_out["port"]),
        (&json!(0), &json!(port_of(&service)))
    );
    let body = r#"{"item": "sku-7"}"#;
    let posted = service.send("POST", PATH, &[JSON], body);
    let message = posted.is_problem(409, "sold_out")["message"].clone();
    assert_eq!(
        message,
        format!("sold out, served by port {}", port_of(&service))
    );
    for wrong in ["item=", "units=0", "buyer=%00"] {
        let answer = service.get(&format!("{PATH}?{wrong}"));
        assert_eq!(answer.is_problem(422, "invalid")["port"], port_of(&service));
    }
}

#[tenure_testkit::test]
fn without_the_item_of_the_notes_it_is_told_how_to_get_it() {
    let embedded = Service::start(&[]);
    let problem = embedded.get(PATH).is_problem(404, "no_item");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("/api/v1/items") && detail.contains("--demo"),
        "{detail}"
    );
    let shop = Grown::up();
    let service = shop.instance(&[]);
    let problem = service.get(PATH).is_problem(404, "no_item");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("`tenure sale item create 1001 --stock 5000 --open`"),
        "{detail}"
    );
    assert_eq!(problem["port"], port_of(&service));
}

#[tenure_testkit::test]
fn a_service_that_only_shows_sells_nothing_by_get_either() {
    let service = Service::start(&["--read-only"]);
    for path in [PATH, "/order/v1/submitOrder/v0"] {
        service.get(path).is_problem(403, "forbidden");
        service
            .send("POST", path, &[], "")
            .is_problem(403, "forbidden");
    }
}

#[tenure_testkit::test]
fn the_demo_item_is_not_filled_up_again() {
    let shop = Grown::up();
    let first = shop.instance(&["--demo"]);
    assert_eq!(first.get(PATH).is(202).json()["left"], 4_999);
    let second = shop.instance(&["--demo"]);
    assert_eq!(second.get(PATH).is(202).json()["left"], 4_998);
}

/// Sends many orders at once, to all of these in turn.
fn rush(services: &[&Service], path: &str, orders: usize) -> Vec<Answer> {
    thread::scope(|scope| {
        let sellers: Vec<_> = (0..20)
            .map(|thread| {
                let service = services[thread % services.len()];
                scope.spawn(move || -> Vec<Answer> {
                    (0..orders / 20).map(|_| service.get(path)).collect()
                })
            })
            .collect();
        sellers
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    })
}

fn demo_on(redis: &RedisServer) -> Service {
    let mut command = tenure(&["serve", "--demo", "--url"]);
    Service::of(command.arg(redis.url()))
}

#[tenure_testkit::test]
fn without_a_lock_several_buyers_get_the_same_unit() {
    let redis = RedisServer::start();
    let services = [demo_on(&redis), demo_on(&redis)];
    let services = [&services[0], &services[1]];
    let answers = rush(&services, "/order/v1/submitOrder/v0", 200);
    assert!(answers.iter().all(|answer| answer.status == 200));
    let left = |answer: &Answer| answer.json()["left"].as_i64().unwrap();
    let units: BTreeSet<i64> = answers.iter().map(left).collect();
    assert!(units.len() < answers.len(), "each unit was sold once");
    let ports: BTreeSet<String> = answers
        .iter()
        .map(|it| it.json()["port"].to_string())
        .collect();
    assert_eq!(ports.len(), 2);

    // The sale itself, in between, gives no unit twice: see `instances`.
    let embedded = Service::start(&["--demo"]);
    let answers = rush(&[&embedded], "/order/v1/submitOrder/v0", 200);
    let units: BTreeSet<i64> = answers.iter().map(left).collect();
    assert!(units.len() < answers.len(), "each unit was sold once");
}

#[tenure_testkit::test]
fn the_locks_of_the_notes_refuse_and_sell_no_unit_twice_as_long_as_nothing_goes_wrong() {
    let redis = RedisServer::start();
    let service = demo_on(&redis);
    for step in ["v1", "v2", "v3", "v4"] {
        let answers = rush(&[&service], &format!("/order/v1/submitOrder/{step}"), 100);
        let sold: Vec<&Answer> = answers.iter().filter(|it| it.status == 200).collect();
        let units: BTreeSet<i64> = sold
            .iter()
            .map(|it| it.json()["left"].as_i64().unwrap())
            .collect();
        assert_eq!(units.len(), sold.len(), "{step} sold a unit twice");
        for locked in answers.iter().filter(|it| it.status != 200) {
            let problem = locked.is_problem(423, "busy");
            assert_eq!(locked.header("retry-after"), "1");
            assert!(
                problem["left"].is_i64() && problem["port"].is_u64(),
                "{problem}"
            );
        }
        assert!(sold.len() < answers.len(), "nobody met the lock of {step}");
    }
}

#[tenure_testkit::test]
fn another_instance_leaves_stock_and_locks_of_the_notes_as_they_are() {
    let redis = RedisServer::start();
    let order =
        |service: &Service, step: &str| service.get(&format!("/order/v1/submitOrder/{step}"));
    let first = demo_on(&redis);
    assert_eq!(order(&first, "v0").is(200).json()["left"], 4_999);
    order(&first, "v1?trouble=exception").is_problem(503, "unavailable");
    let second = demo_on(&redis);
    assert_eq!(order(&second, "v0").is(200).json()["left"], 4_998);
    order(&second, "v1").is_problem(423, "busy");
}

#[tenure_testkit::test]
fn each_lock_of_the_notes_has_its_flaw() {
    let service = Service::start(&["--demo"]);
    let order =
        |step: &str, trouble: &str| service.get(&format!("/order/v1/submitOrder/{step}{trouble}"));
    // An exception, and the lock stays held forever.
    let broken = order("v1", "?trouble=exception");
    broken.is_problem(503, "unavailable");
    assert_eq!(broken.header("retry-after"), "1");
    order("v1", "").is_problem(423, "busy");
    // It is released by `finally`; but who dies does not come that far.
    order("v2", "?trouble=exception").is_problem(503, "unavailable");
    order("v2", "").is(200);
    order("v2", "?trouble=crash").is_problem(503, "unavailable");
    order("v2", "").is_problem(423, "busy");
    // Dies between the two commands.
    order("v3", "?trouble=crash").is_problem(503, "unavailable");
    // In one command the lock ends by itself.
    order("v4", "?trouble=crash").is_problem(503, "unavailable");
    order("v4", "").is_problem(423, "busy");
    soon(|| order("v4", "").status == 200);
    order("v3", "").is_problem(423, "busy");
    // And a slow one sells what others have sold meanwhile.
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let mut answer = order("v4", "?trouble=slow");
            while answer.status == 423 {
                answer = order("v4", "?trouble=slow");
            }
            answer.is(200).json()["left"].as_i64().unwrap()
        });
        let mut sold = BTreeSet::new();
        while !slow.is_finished() {
            let answer = order("v4", "");
            if answer.status == 200 {
                sold.insert(answer.json()["left"].as_i64().unwrap());
            }
        }
        assert!(sold.contains(&slow.join().unwrap()), "{sold:?}");
    });
    order("v5", "").is_problem(404, "not_found");
    order("v0", "?trouble=much").is_problem(400, "malformed");
    // The sale knows nothing of it.
    assert_eq!(service.get(PATH).json()["left"], 4_999);
}

#[tenure_testkit::test]
fn the_locks_of_the_notes_are_for_the_demo_only() {
    let service = Service::start(&[]);
    let problem = service
        .get("/order/v1/submitOrder/v1")
        .is_problem(404, "not_found");
    assert!(
        problem["detail"].as_str().unwrap().contains("--demo"),
        "{problem}"
    );
}
