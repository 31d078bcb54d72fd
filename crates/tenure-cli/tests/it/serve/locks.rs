/// Bad requests, each with its answer.
mod bad;
/// Waiting: places, tickets, breaking off.
mod waiting;

use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::{RedisServer, eventually};

use super::{Answer, Service};
use crate::command::{run, tenure};

/// Far longer than anything takes.
pub const SOON: Duration = Duration::from_secs(20);

/// Takes a lock, which must be free.
#[track_caller]
pub fn acquire(service: &Service, name: &str, wanted: &Value) -> Value {
    let answer = service.post(&format!("/api/v1/locks/{name}"), wanted);
    answer.is(201).json()
}

pub fn release(service: &Service, name: &str, lease: &Value) -> Answer {
    let id = lease["lease_id"].as_str().unwrap();
    service.delete(&format!("/api/v1/locks/{name}/lease?lease_id={id}"))
}

/// Waits until the lock is listed, and tells how.
#[track_caller]
pub fn listed(service: &Service, name: &str) -> Value {
    let mut found = Value::Null;
    let is_listed = eventually(SOON, || {
        let listed = service.get("/api/v1/locks").is(200).json();
        let locks = listed["locks"].as_array().unwrap();
        found = locks
            .iter()
            .find(|lock| lock["name"] == name)
            .cloned()
            .into();
        !found.is_null()
    });
    assert!(is_listed, "`{name}` is not listed");
    found
}

#[tenure_testkit::test]
fn a_lock_is_taken_renewed_and_released() {
    let service = Service::start(&[]);
    let first = acquire(&service, "n", &json!({"ttl_ms": 10_000}));
    assert_eq!(
        (&first["name"], &first["ttl_ms"]),
        (&json!("n"), &json!(10_000))
    );
    let path = "/api/v1/locks/n/lease";
    let renewal = json!({"lease_id": first["lease_id"], "ttl_ms": 60_000});
    let renewed = service.put(path, &renewal).is(200).json();
    assert_eq!(
        (&renewed["fence"], &renewed["ttl_ms"]),
        (&first["fence"], &json!(60_000))
    );
    assert!(renewed["expires_at"].as_str() > first["expires_at"].as_str());
    let again = service.put(path, &json!({"lease_id": first["lease_id"]}));
    assert_eq!(again.is(200).json()["ttl_ms"], 10_000, "its original ttl");
    assert_eq!(again.json().get("waited_ms"), None, "there was no wait");
    let id = first["lease_id"].as_str().unwrap();
    let by_query = format!("{path}?lease_id={id}");
    let again = service.put(&by_query, &json!({"ttl_ms": 20_000}));
    assert_eq!(again.is(200).json()["ttl_ms"], 20_000);
    service.send("PUT", &by_query, &[], "").is(200);
    let of_another = format!("{path}?lease_id=another");
    service.put(&of_another, &renewal).is(200);
    release(&service, "n", &first).is(204);
    release(&service, "n", &first).is_problem(410, "lease_gone");
    service.put(path, &renewal).is_problem(410, "lease_gone");
    let second = acquire(&service, "n", &json!({}));
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
    let changed = release(&service, "n", &first).is_problem(409, "lease_changed");
    assert_eq!(changed["holder"]["fence"], second["fence"]);
    service.put(path, &renewal).is_problem(409, "lease_changed");
    release(&service, "n", &second).is(204);
}

#[tenure_testkit::test]
fn readers_hold_a_lock_together_and_a_writer_waits_for_all() {
    let server = RedisServer::start();
    let (one, other) = (Service::on(&server, &[]), Service::on(&server, &[]));
    let shared = json!({"mode": "shared", "ttl_ms": 20_000});
    let readers = [
        acquire(&one, "n", &shared),
        acquire(&one, "n", &shared),
        acquire(&other, "n", &shared),
    ];
    assert_eq!(readers[0]["fence"], readers[2]["fence"], "of one phase");
    assert_ne!(readers[0]["lease_id"], readers[1]["lease_id"]);
    other
        .post("/api/v1/locks/n", &json!({}))
        .is_problem(423, "busy");
    // At any instance.
    for service in [&one, &other] {
        let renewal = json!({"lease_id": readers[0]["lease_id"], "ttl_ms": 20_000});
        service.put("/api/v1/locks/n/lease", &renewal).is(200);
    }
    for reader in &readers {
        one.post("/api/v1/locks/n", &json!({"mode": "exclusive"}))
            .is_problem(423, "busy");
        release(&other, "n", reader).is(204);
    }
    let writer = acquire(&one, "n", &json!({}));
    assert!(writer["fence"].as_u64() > readers[0]["fence"].as_u64());
    one.post("/api/v1/locks/n", &shared).is_problem(423, "busy");
    release(&one, "n", &writer).is(204);
    let named = json!({"mode": "shared", "owner": "nightly"});
    one.post("/api/v1/locks/n", &named)
        .is_problem(422, "invalid");
    one.post("/api/v1/locks/n", &json!({"mode": "both"}))
        .is_problem(422, "invalid");
}

#[tenure_testkit::test]
fn a_busy_lock_names_its_holder_and_keeps_its_id() {
    let service = Service::start(&[]);
    let wanted = json!({"owner": "nightly-report", "meta": {"job": "7"}});
    let lease = acquire(&service, "n", &wanted);
    let refused = service.post("/api/v1/locks/n", &json!({}));
    let busy = refused.is_problem(423, "busy");
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    let holder = &busy["holder"];
    assert_eq!(
        (&holder["who"], &holder["fence"]),
        (&json!("nightly-report"), &lease["fence"])
    );
    assert_eq!(
        holder["meta"],
        json!({"owner": "nightly-report", "job": "7"})
    );
    assert!(
        busy["detail"].as_str().unwrap().contains("nightly-report"),
        "{busy}"
    );
    let id = lease["lease_id"].as_str().unwrap();
    for text in [
        refused.text,
        service.get("/api/v1/locks/n").is(200).text.clone(),
        listed(&service, "n").to_string(),
        service.get("/api/v1/locks/n/history").is(200).text.clone(),
    ] {
        assert!(!text.contains(id), "the id allows ending the lease: {text}");
    }
    let waited = service.post("/api/v1/locks/n", &json!({"wait_ms": 50}));
    let waited = waited.is_problem(423, "busy");
    assert!(waited["waited_ms"].as_u64().unwrap() >= 50, "{waited}");
    assert!(
        waited.get("ticket").is_none(),
        "no ticket after the whole wait"
    );
}

#[tenure_testkit::test]
fn a_lock_ends_by_itself() {
    let service = Service::start(&[]);
    let lease = acquire(&service, "n", &json!({"ttl_ms": 200}));
    let free = || service.get("/api/v1/locks/n").status == 404;
    assert!(eventually(SOON, free));
    let counted = "tenure_lost_total{lock=\"n\",reason=\"expired\"} 1";
    let is_lost = || service.get("/metrics").text.contains(counted);
    assert!(
        eventually(SOON, is_lost),
        "{}",
        service.get("/metrics").text
    );
    release(&service, "n", &lease).is_problem(410, "lease_gone");
    assert!(is_lost(), "once is enough");
}

#[tenure_testkit::test]
fn names_of_all_kinds_can_be_used() {
    let service = Service::start(&[]);
    let names = [
        "a/b",
        "100%",
        "ünï ☃",
        "with space",
        "a?b#c&d=e",
        "..",
        "order:{1}",
        "+",
        "%2F",
        "\u{1}",
    ];
    for name in names {
        let encoded: Vec<_> = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let encoded = encoded.concat();
        let lease = acquire(&service, &encoded, &json!({}));
        assert_eq!(lease["name"], name);
        let shown = service.get(&format!("/api/v1/locks/{encoded}"));
        assert_eq!(shown.is(200).json()["name"], name);
        let history = service.get(&format!("/api/v1/locks/{encoded}/history"));
        assert_eq!(history.is(200).json()["name"], name);
        release(&service, &encoded, &lease).is(204);
        service
            .get(&format!("/api/v1/locks/{encoded}"))
            .is_problem(404, "not_found");
    }
}

#[tenure_testkit::test]
fn locks_of_sales_cannot_be_acquired() {
    let service = Service::start(&[]);
    for purpose in ["rebuild", "move", "anything"] {
        let name = format!("sale:%7Bsku-7%7D:{purpose}");
        for wanted in [
            json!({}),
            json!({"wait_ms": 50}),
            json!({"wait_ms": 60_000}),
        ] {
            let refused = service.post(&format!("/api/v1/locks/{name}"), &wanted);
            let problem = refused.is_problem(422, "invalid");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("are locks of sales"), "{detail}");
        }
        let path = format!("/api/v1/terraform/{name}");
        let refused = service.send("LOCK", &path, &[], "{\"ID\":\"1\"}");
        refused.is_problem(422, "invalid");
    }
}

/// How much a server has sent to its clients so far.
fn sent_by(server: &RedisServer) -> u64 {
    let info = server.client().command(&["INFO", "stats"]);
    let info = info.text();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    line.unwrap().trim().parse().unwrap()
}

#[tenure_testkit::test]
fn a_refusal_costs_the_same_however_many_leases_there_are() {
    let server = RedisServer::start();
    let service = Service::on(&server, &[]);
    for number in 0..300 {
        acquire(&service, &format!("n{number}"), &json!({"ttl_ms": 600_000}));
    }
    let lock = "/api/v1/locks/n7";
    let is_known = || service.get(lock).is(200).json()["holder"]["pid"].is_number();
    assert!(eventually(SOON, is_known));
    let before = sent_by(&server);
    for _ in 0..100 {
        let busy = service.post(lock, &json!({})).is_problem(423, "busy");
        assert!(busy["holder"]["held_ms"].is_number(), "{busy}");
        service.get(lock).is(200);
    }
    let sent = sent_by(&server) - before;
    // All leases are told in some 30 kB, which the service reads each other second by itself.
    assert!(sent < 2_000_000, "{sent} bytes for 200 answers");
}

#[tenure_testkit::test]
fn locks_are_listed_page_by_page() {
    let service = Service::start(&[]);
    for name in ["order:3", "order:1", "other", "order:2"] {
        acquire(
            &service,
            name,
            &json!({"owner": format!("Owner of {name}")}),
        );
    }
    let list = |query: &str| service.get(&format!("/api/v1/locks{query}")).is(200).json();
    assert!(eventually(SOON, || list("")["total"] == 4), "{}", list(""));
    let names = |listed: &Value| -> Vec<String> {
        let locks = listed["locks"].as_array().unwrap().iter();
        locks
            .map(|lock| lock["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = list("?prefix=order:&limit=2");
    assert_eq!(names(&first), ["order:1", "order:2"]);
    assert_eq!(
        (&first["total"], &first["next_cursor"]),
        (&json!(3), &json!("order:2"))
    );
    let second = list("?prefix=order:&limit=2&cursor=order:2");
    assert_eq!(names(&second), ["order:3"]);
    assert_eq!(second["next_cursor"], Value::Null);
    assert_eq!(names(&list("?q=OF%20OTH")), ["other"]);
    assert_eq!(list("?state=held")["total"], 4);
    assert_eq!(list("?state=waiting")["total"], 0);
    let lock = &list("?q=other")["locks"][0];
    assert!(
        lock["held_ms"].is_number() && lock["holder"]["pid"].is_number(),
        "{lock}"
    );
}

#[tenure_testkit::test]
fn instances_serve_each_others_leases_and_survive_each_other() {
    let server = RedisServer::start();
    let (one, other) = (Service::on(&server, &[]), Service::on(&server, &[]));
    let lease = acquire(&one, "shared", &json!({"owner": "me", "ttl_ms": 60_000}));
    let seen = listed(&other, "shared");
    assert_eq!(
        (&seen["who"], &seen["fence"]),
        (&json!("me"), &lease["fence"])
    );
    let renewal = json!({"lease_id": lease["lease_id"], "ttl_ms": 90_000});
    let renewed = other
        .put("/api/v1/locks/shared/lease", &renewal)
        .is(200)
        .json();
    assert_eq!(renewed["fence"], lease["fence"]);
    let ls = || run(&mut tenure(&["ls", "--json", "--url", &server.url()])).stdout;
    assert!(ls().contains("\"who\":\"me\""), "{}", ls());
    // The instance that granted it is gone; the lease is neither released nor forgotten.
    one.stop();
    assert_eq!(listed(&other, "shared")["who"], "me");
    release(&other, "shared", &lease).is(204);
    assert!(!ls().contains("shared"), "{}", ls());
}

#[tenure_testkit::test]
fn a_lease_of_an_instance_that_stopped_is_still_listed() {
    let server = RedisServer::start();
    let one = Service::on(&server, &[]);
    acquire(
        &one,
        "left-behind",
        &json!({"owner": "me", "ttl_ms": 60_000}),
    );
    one.stop();
    let other = Service::on(&server, &[]);
    assert_eq!(listed(&other, "left-behind")["who"], "me");
}

#[tenure_testkit::test]
fn an_administrator_ends_a_lease() {
    let service = Service::start(&["--allow-admin"]);
    let lease = acquire(&service, "n", &json!({"owner": "me"}));
    let id = lease["lease_id"].as_str().unwrap();
    assert_eq!(
        listed(&service, "n")["lease_id"],
        id,
        "administrators see it"
    );
    let end = |id: &str| service.delete(&format!("/api/v1/locks/n?lease_id={id}&force=true"));
    // Another lease of the same client: its number cannot be guessed.
    let parts: Vec<&str> = id.split(':').collect();
    let stale = format!("{}:{}:7:{}", parts[0], parts[1], parts[3]);
    let changed = end(&stale).is_problem(409, "lease_changed");
    assert_eq!(changed["now"]["lease_id"], id);
    end(id).is(204);
    end(id).is_problem(409, "lease_changed");
    service.get("/api/v1/locks/n").is_problem(404, "not_found");
    let audit = || {
        service
            .process
            .stderr()
            .contains("force-released `n` held by me")
    };
    assert!(eventually(SOON, audit), "{}", service.process.stderr());
    let metrics = service.get("/metrics").text;
    assert!(
        metrics.contains("tenure_force_release_total 1"),
        "{metrics}"
    );
    let history = service.get("/api/v1/locks/n/history").json();
    assert_eq!(history["holds"][0]["end"], "forced", "{history}");
}
