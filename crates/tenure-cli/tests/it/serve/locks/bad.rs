use serde_json::{Value, json};
use tenure_testkit::RedisServer;

use super::{acquire, release};
use crate::serve::{Answer, Service};

/// Fails unless it is a problem of this status and code, with these words.
#[track_caller]
fn says(answer: &Answer, status: u16, code: &str, words: &str) {
    let problem = answer.is_problem(status, code);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(words), "{detail}");
}

#[tenure_testkit::test]
fn what_is_not_allowed_is_refused_and_named() {
    let service = Service::start(&[]);
    let long = "x".repeat(5_000);
    for (body, status, code, named) in [
        (json!({"ttl_ms": 99}), 422, "invalid", "ttl_ms `99`"),
        (json!({"ttl_ms": 0}), 422, "invalid", "ttl_ms `0`"),
        (json!({"ttl_ms": 86_400_001}), 422, "invalid", "24 h"),
        (json!({"ttl_ms": -1}), 422, "invalid", "ttl_ms"),
        (json!({"ttl_ms": "long"}), 422, "invalid", "ttl_ms"),
        (json!({"ttl": 100}), 422, "invalid", "unknown field `ttl`"),
        (json!({"owner": long}), 422, "invalid", "4096 bytes"),
        (json!({"meta": {"lease": "x"}}), 422, "invalid", "metadata"),
        (json!({"ticket": "none"}), 410, "ticket_gone", "ticket"),
        (json!("n"), 422, "invalid", ""),
    ] {
        let refused = service.post("/api/v1/locks/n", &body);
        let problem = refused.is_problem(status, code);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(named), "{body}: {detail}");
    }
    for name in ["%7Bx%7D%7D%7D", "half%7Dtag", &"n".repeat(513)] {
        let path = format!("/api/v1/locks/{name}");
        let refused = service.post(&path, &json!({}));
        if name.starts_with("%7B") {
            // It has a tag, so it is a name.
            refused.is(201);
            continue;
        }
        refused.is_problem(422, "invalid");
        service.get(&path).is_problem(422, "invalid");
    }
    says(
        &service.get("/api/v1/locks/%FF"),
        400,
        "malformed",
        "cannot read the path: Invalid UTF-8",
    );
}

#[tenure_testkit::test]
fn what_can_be_no_lock_is_not_counted() {
    let service = Service::start(&[]);
    for name in ["half%7Dtag", &"n".repeat(513)] {
        let path = format!("/api/v1/locks/{name}");
        for body in [json!({}), json!({"wait_ms": 10})] {
            service.post(&path, &body).is_problem(422, "invalid");
        }
    }
    acquire(&service, &"m".repeat(500), &json!({}));
    let metrics = service.get("/metrics").text;
    let of_locks = || metrics.lines().filter(|line| line.contains("lock=\""));
    assert!(of_locks().count() > 0, "{metrics}");
    let label = format!("lock=\"{}\"", "m".repeat(64));
    for line in of_locks() {
        assert!(line.contains(&label), "{line}");
    }
}

#[tenure_testkit::test]
fn a_lease_that_is_asked_for_under_another_name_is_not_lost() {
    let service = Service::start(&[]);
    let lease = acquire(&service, "n", &json!({}));
    release(&service, "other", &lease).is_problem(410, "lease_gone");
    let renewal = json!({"lease_id": lease["lease_id"]});
    let renewed = service.put("/api/v1/locks/other/lease", &renewal);
    renewed.is_problem(410, "lease_gone");
    let metrics = service.get("/metrics").text;
    assert!(!metrics.contains("tenure_lost_total{"), "{metrics}");
    let held = "tenure_held{lock=\"n\",kind=\"mutex\"} 1";
    assert!(metrics.contains(held), "{metrics}");
    release(&service, "n", &lease).is(204);
}

#[tenure_testkit::test]
fn a_key_that_is_no_lock_is_said_to_be_none() {
    let server = RedisServer::start();
    server.client().command(&["SADD", "n", "something else"]);
    let service = Service::on(&server, &[]);
    let path = "/api/v1/locks/n";
    service.post(path, &json!({})).is_problem(409, "not_a_lock");
    service.get(path).is_problem(409, "not_a_lock");
    let info = json!({"ID": "9b2c"});
    let refused = service.post("/api/v1/terraform/n", &info);
    refused.is_problem(409, "not_a_lock");
}

#[tenure_testkit::test]
fn bodies_that_cannot_be_read_are_refused() {
    let service = Service::start(&["--max-body", "1000"]);
    let json_type = [("content-type", "application/json")];
    let path = "/api/v1/locks/n";
    let send = |headers: &[(&str, &str)], body: &str| service.send("POST", path, headers, body);
    send(&json_type, "{").is_problem(400, "malformed");
    send(&json_type, &" ".repeat(2_000)).is_problem(413, "too_large");
    send(&[("content-type", "text/plain")], "{}").is_problem(415, "media_type");
    service
        .send("PATCH", path, &json_type, "{}")
        .is_problem(405, "method_not_allowed");
    let terraform = "/api/v1/terraform/n";
    service
        .send("LOCK", terraform, &[], &" ".repeat(2_000))
        .is_problem(413, "too_large");
    service
        .send("SEARCH", terraform, &[], "")
        .is_problem(405, "method_not_allowed");
    send(&[], "").is(201);
}

#[tenure_testkit::test]
fn leases_and_queries_that_are_none_are_refused() {
    let service = Service::start(&[]);
    let path = "/api/v1/locks/n/lease";
    let of_nobody = "tenure:3f2a9c1e7b1d8c2e9d3f444455556666:1:30000";
    for id in [
        "",
        "mine",
        "tenure:x:1:1",
        "tenure:3f2a9c1e7b1d8c2e9d3f444455556666:1:1",
    ] {
        service
            .put(path, &json!({"lease_id": id}))
            .is_problem(422, "invalid");
        service
            .delete(&format!("{path}?lease_id={id}"))
            .is_problem(422, "invalid");
    }
    service.put(path, &json!({})).is_problem(422, "invalid");
    service
        .put(path, &json!({"lease_id": of_nobody}))
        .is_problem(410, "lease_gone");
    service
        .delete(&format!("{path}?lease_id={of_nobody}"))
        .is_problem(410, "lease_gone");
    service.delete(path).is_problem(400, "malformed");
    let lease = acquire(&service, "n", &json!({}));
    let too_short = json!({"lease_id": lease["lease_id"], "ttl_ms": 1});
    says(&service.put(path, &too_short), 422, "invalid", "ttl_ms `1`");
    release(&service, "n", &lease).is(204);
    for query in ["?state=lost", "?limit=x", "?limit=-1", "?nonsense=1"] {
        let refused = service.get(&format!("/api/v1/locks{query}"));
        says(&refused, 400, "malformed", "cannot read the query: ");
        assert!(!refused.text.contains("Failed to"), "{refused:?}");
    }
    service
        .get("/api/v1/stats?window=1y")
        .is_problem(400, "malformed");
}

#[tenure_testkit::test]
fn only_administrators_end_leases_of_others_and_only_if_they_mean_it() {
    let service = Service::start(&[]);
    let lease = acquire(&service, "n", &json!({}));
    let path = format!(
        "/api/v1/locks/n?lease_id={}",
        lease["lease_id"].as_str().unwrap()
    );
    service
        .delete(&format!("{path}&force=true"))
        .is_problem(403, "forbidden");
    release(&service, "n", &lease).is(204);
    let service = Service::start(&["--allow-admin"]);
    service.delete(&path).is_problem(422, "invalid");
    service
        .delete(&format!("{path}&force=perhaps"))
        .is_problem(400, "malformed");
    service
        .delete("/api/v1/locks/n?force=true")
        .is_problem(400, "malformed");
}

/// Nonsense requests: whatever the response, it is not an internal error.
#[tenure_testkit::test]
fn nonsense_never_breaks_the_service() {
    let service = Service::start(&["--allow-admin", "--max-wait", "10ms"]);
    let mut random = Random(7);
    for _ in 0..400 {
        let method = random.one_of(&["GET", "POST", "PUT", "DELETE", "LOCK", "UNLOCK", "PATCH"]);
        let path = random.path();
        let kind = random.one_of(&["application/json", "text/plain", "", "application/json;x"]);
        let body = random.body();
        let headers = [("content-type", kind)];
        let headers = if kind.is_empty() {
            &[][..]
        } else {
            &headers[..]
        };
        let answer = service.send(method, &path, headers, &body);
        assert!(
            answer.status < 500,
            "{method} {path} {kind} {body}: {answer:?}"
        );
    }
    assert!(service.process.is_running());
    assert_eq!(service.get("/readyz").is(200).json()["status"], "ok");
}

/// The same at every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.next(these.len())]
    }

    fn path(&mut self) -> String {
        let end = ["", "/lease", "/history", "/x", "//", "/%00", "/%"];
        let area = [
            "locks/a",
            "locks/%00",
            "locks/%7D",
            "locks/..",
            "locks/",
            "terraform/a",
            "about",
            "stats",
            "history",
        ];
        let query = [
            "",
            "?",
            "?lease_id=x",
            "?lease_id=%00&force=true",
            "?limit=99999999999999999999",
            "?cursor=%FF",
            "?window=5m&window=5m",
            "?q=%F0%9F%92%A9",
            "?state=held&state=held",
        ];
        format!(
            "/api/v1/{}{}{}",
            self.one_of(&area),
            self.one_of(&end),
            self.one_of(&query)
        )
    }

    fn body(&mut self) -> String {
        let values = [
            json!(null),
            json!(-1),
            json!(1e300),
            json!(u64::MAX),
            json!("x"),
            json!(["a"]),
            json!({"a": {}}),
            json!(true),
            json!(""),
            json!("\u{0}"),
        ];
        let fields = [
            "ttl_ms", "wait_ms", "owner", "meta", "ticket", "lease_id", "ID", "Who", "more",
        ];
        let mut body = serde_json::Map::new();
        for _ in 0..self.next(4) {
            let field = self.one_of(&fields);
            let value: &Value = &values[self.next(values.len())];
            body.insert(field.to_owned(), value.clone());
        }
        let text = Value::Object(body).to_string();
        match self.next(6) {
            0 => text[..text.len() / 2].to_owned(),
            1 => format!("{text}{text}"),
            2 => String::new(),
            _ => text,
        }
    }
}
