use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::json;

use super::Service;
use super::listening::Listening;
use crate::command::{run, tenure};

const TOKEN: &str = "a-token-of-32-letters-0123456789";

fn with_token(arguments: &[&str]) -> Service {
    let mut command = tenure(&["serve", "--ledger", "sqlite::memory:"]);
    Service::of(command.args(arguments).env("TENURE_TOKEN", TOKEN))
}

#[tenure_testkit::test]
fn a_service_that_was_just_started_is_alive_and_ready() {
    let service = Service::start(&[]);
    assert_eq!(service.get("/livez").is(200).json()["status"], "ok");
    assert_eq!(service.get("/readyz").is(200).json()["status"], "ok");
    service.get("/nothing").is_problem(404, "not_found");
    let refused = service.send("POST", "/livez", &[], "");
    refused.is_problem(405, "method_not_allowed");
    assert_eq!(refused.header("allow"), "GET,HEAD");
}

#[tenure_testkit::test]
fn without_the_token_nothing_is_told() {
    let service = with_token(&[]);
    let locks = "/api/v1/locks";
    let refused = service.get(locks);
    refused.is_problem(401, "unauthorized");
    assert!(refused.header("www-authenticate").starts_with("Bearer"));
    for wrong in ["", "wrong", "a-token-of-32-letters-012345678", "Basic abc"] {
        let bearer = format!("Bearer {wrong}");
        let refused = service.send("GET", locks, &[("authorization", &bearer)], "");
        refused.is_problem(401, "unauthorized");
        assert!(!refused.text.contains(TOKEN));
    }
    service.get("/metrics").is_problem(401, "unauthorized");
    service
        .get("/order/v1/submitOrder")
        .is_problem(401, "unauthorized");
    let bearer = format!("bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    service.send("GET", locks, &headers, "").is(200);
    service.send("GET", "/metrics", &headers, "").is(200);
    // Supervisors and browsers come first without one.
    service.get("/livez").is(200);
    service.get("/readyz").is(200);
    service.get("/").is(200);
}

#[tenure_testkit::test]
fn the_token_is_shown_nowhere() {
    let service = with_token(&[]);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str())];
    for path in ["/", "/api/v1/about", "/metrics", "/openapi.json"] {
        let answer = service.send("GET", path, &headers, "");
        assert!(!answer.text.contains(TOKEN), "{path}");
    }
    assert!(!service.process.stderr().contains(TOKEN));
}

#[tenure_testkit::test]
fn a_page_of_another_site_is_refused() {
    let service = Service::start(&[]);
    let lock = "/api/v1/locks/a";
    let host = service.url.trim_start_matches("http://").to_owned();
    let own = format!("http://{host}");
    for headers in [
        [("sec-fetch-site", "cross-site"), ("accept", "*/*")],
        [("sec-fetch-site", "same-site"), ("accept", "*/*")],
        [("origin", "http://evil.example"), ("accept", "*/*")],
        [("origin", "null"), ("accept", "*/*")],
        [("sec-fetch-site", "cross-site"), ("origin", &own)],
    ] {
        let refused = service.send("POST", lock, &headers, "");
        refused.is_problem(403, "foreign_origin");
        // A GET with an effect of its own, which a picture of another site could have sent.
        let refused = service.send("GET", "/order/v1/submitOrder", &headers, "");
        refused.is_problem(403, "foreign_origin");
    }
    for headers in [
        [("sec-fetch-site", "same-origin"), ("origin", own.as_str())],
        [("sec-fetch-site", "none"), ("accept", "*/*")],
        [("origin", own.as_str()), ("accept", "*/*")],
    ] {
        let answer = service.send("GET", "/api/v1/locks", &headers, "");
        answer.is(200);
    }
}

#[tenure_testkit::test]
fn a_page_of_another_site_cannot_order_by_a_picture() {
    let service = Service::start(&["--demo"]);
    let order = |page: &str| {
        let headers = [("referer", page)];
        service.send("GET", "/order/v1/submitOrder", &headers, "")
    };
    for page in [
        "http://evil.example/",
        "about:blank",
        "",
        "http://127.0.0.1/",
    ] {
        order(page).is_problem(403, "foreign_origin");
    }
    assert_eq!(service.get("/api/v1/items/1001").json()["sold"], 0);
    order(&format!("{}/notes.html", service.url)).is(200);
    // Reading changes nothing: links may lead here.
    let headers = [("referer", "http://evil.example/")];
    service.send("GET", "/api/v1/locks", &headers, "").is(200);
}

#[tenure_testkit::test]
fn a_foreign_name_is_refused_where_there_is_no_token() {
    let service = Service::start(&["--host-name", "Tenure.Test"]);
    let called = |name: &str| service.send("GET", "/readyz", &[("host", name)], "");
    for name in [
        "localhost",
        "localhost:80",
        "127.0.0.1:9",
        "[::1]:80",
        "tenure.test:80",
    ] {
        called(name).is(200);
    }
    for name in ["evil.example", "evil.example:80", "localhost.evil.example"] {
        let problem = called(name).is_problem(403, "foreign_origin");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("--host-name"), "{detail}");
    }
    let service = with_token(&[]);
    let answer = service.send("GET", "/readyz", &[("host", "tenure.example")], "");
    answer.is(200);
}

#[tenure_testkit::test]
fn every_answer_tells_browsers_to_keep_to_themselves() {
    let service = Service::start(&[]);
    for path in ["/", "/livez", "/api/v1/locks", "/nothing"] {
        let answer = service.get(path);
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "", "{path}");
    }
    assert_eq!(
        service.get("/api/v1/locks").header("cache-control"),
        "no-store"
    );
}

#[tenure_testkit::test]
fn a_service_that_only_shows_changes_nothing() {
    let service = Service::start(&["--read-only"]);
    service.get("/api/v1/locks").is(200);
    let refused = service.post("/api/v1/locks/a", &json!({}));
    refused.is_problem(403, "forbidden");
    // It is a GET, and sells.
    service
        .get("/order/v1/submitOrder")
        .is_problem(403, "forbidden");
}

#[tenure_testkit::test]
fn bodies_have_a_limit_and_a_kind() {
    let service = Service::start(&["--max-body", "100"]);
    let lock = "/api/v1/locks/a";
    let json = [("content-type", "application/json")];
    let long = format!("{{\"owner\": \"{}\"}}", "x".repeat(100));
    let refused = service.send("POST", lock, &json, &long);
    refused.is_problem(413, "too_large");
    let refused = service.send("POST", lock, &[("content-type", "text/plain")], "{}");
    refused.is_problem(415, "media_type");
    let refused = service.send("POST", lock, &json, "{");
    refused.is_problem(400, "malformed");
    let refused = service.send("POST", lock, &json, "[]");
    refused.is_problem(422, "invalid");
}

#[tenure_testkit::test]
fn who_sends_too_much_is_told_when_to_come_back() {
    let service = Service::start(&["--rate", "1"]);
    let answers: Vec<_> = (0..10).map(|_| service.get("/openapi.json")).collect();
    let refused = answers.iter().find(|answer| answer.status == 429);
    let refused = refused.expect("ten requests in a moment are more than one a second");
    refused.is_problem(429, "too_many");
    assert_eq!(refused.header("retry-after"), "1");
    // Too many requests must not make a supervisor think that it is dead.
    for _ in 0..5 {
        service.get("/livez").is(200);
        service.get("/readyz").is(200);
    }
}

#[tenure_testkit::test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let service = Service::start(&[]);
    let address = service.url.trim_start_matches("http://");
    let mut dawdler = TcpStream::connect(address).unwrap();
    let head = "POST /api/v1/locks/a HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    dawdler.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    dawdler
        .set_read_timeout(Some(super::START_WITHIN * 3))
        .unwrap();
    dawdler.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}

#[tenure_testkit::test]
fn streams_have_a_limit() {
    let service = Service::start(&["--max-streams", "1"]);
    let events = "/api/v1/events";
    let open = Listening::to(&service, events);
    open.next();
    service.get(events).is_problem(429, "too_many");
    assert_eq!(service.get("/api/v1/locks").status, 200);
    drop(open);
}

#[tenure_testkit::test]
fn other_machines_are_let_in_with_a_token_only() {
    let ended = run(&mut tenure(&["serve", "--listen", "0.0.0.0:0"]));
    ended.ended_with(64);
    ended.complains("refusing to listen on `0.0.0.0:0` without a token");
    let ended = run(tenure(&["serve"]).env("TENURE_TOKEN", "short"));
    ended.ended_with(78);
    ended.complains("openssl rand -hex 32");
    ended.keeps("short\n");
    let ended = run(&mut tenure(&["serve", "--token-file", "/nonexistent"]));
    ended.ended_with(78);
    let mut open = tenure(&["serve", "--ledger", "sqlite::memory:", "--without-token"]);
    let process = tenure_testkit::ClientProcess::spawn(open.args(["--listen", "0.0.0.0:0"]));
    let line = process.expect_line(super::START_WITHIN);
    assert!(line.contains("serving at http://0.0.0.0:"), "{line}");
}

#[tenure_testkit::test]
fn a_port_that_is_taken_is_said() {
    let service = Service::start(&[]);
    let port = service.url.rsplit(':').next().unwrap();
    let ended = run(&mut tenure(&[
        "serve",
        "--ledger",
        "sqlite::memory:",
        "--listen",
        port,
    ]));
    ended.ended_with(69);
    ended.complains(&format!("cannot listen on `127.0.0.1:{port}`"));
    ended.complains("--listen");
}

#[tenure_testkit::test]
fn a_path_in_front_is_in_front_of_everything() {
    let service = Service::start(&["--base-path", "/tenure/"]);
    assert!(service.url.ends_with("/tenure"), "{}", service.url);
    service.get("/livez").is(200);
    service.get("/").is(200);
    service.get("/api/v1/locks").is(200);
    let secured = with_token(&["--base-path", "/tenure"]);
    secured.get("/api/v1/locks").is_problem(401, "unauthorized");
}

#[tenure_testkit::test]
fn it_stops_in_time_although_a_client_dawdles() {
    let service = Service::start(&[]);
    let address = service.url.trim_start_matches("http://");
    let mut dawdler = TcpStream::connect(address).unwrap();
    dawdler.write_all(b"GET /livez HTTP/1.1\r\nhost: ").unwrap();
    let begun = Instant::now();
    service.stop();
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
