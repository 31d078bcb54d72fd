use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};
use tenure_testkit::eventually;

use super::{SOON, acquire, listed, release};
use crate::serve::Service;
use crate::serve::events::follow;

const PATH: &str = "/api/v1/locks/n";

fn waiting(service: &Service) -> u64 {
    let shown = service.get(PATH);
    if shown.status == 404 {
        return 0;
    }
    shown.is(200).json()["waiting"].as_u64().unwrap()
}

#[track_caller]
fn expect_waiting(service: &Service, count: u64) {
    let is_so = eventually(SOON, || waiting(service) == count);
    assert!(is_so, "{} wait, not {count}", waiting(service));
}

#[tenure_testkit::test]
fn those_who_wait_get_it_in_the_order_they_came() {
    let service = Service::start(&[]);
    let lease = acquire(&service, "n", &json!({}));
    let (sender, got) = mpsc::channel();
    thread::scope(|scope| {
        for number in 1..=3 {
            let (service, sender) = (&service, sender.clone());
            scope.spawn(move || {
                let wanted = json!({"wait_ms": 20_000, "owner": number.to_string()});
                let lease = acquire(service, "n", &wanted);
                sender.send((number, lease["waited_ms"].as_u64())).unwrap();
                release(service, "n", &lease).is(204);
            });
            expect_waiting(service, number);
        }
        release(&service, "n", &lease).is(204);
    });
    let order: Vec<_> = got.try_iter().collect();
    assert!(
        order.iter().map(|(number, _)| *number).eq(1..=3),
        "{order:?}"
    );
    assert!(
        order.iter().all(|(_, waited)| *waited > Some(0)),
        "{order:?}"
    );
}

#[tenure_testkit::test]
fn those_who_wait_are_named_in_the_order_they_came() {
    let service = Service::start(&["--max-wait", "10s", "--keep-place", "60s"]);
    let mut events = follow(&service, "", None);
    let lease = acquire(&service, "n", &json!({}));
    let owners = |lock: &Value| lock["waiters"][0]["owners"].clone();
    let shown = || owners(&service.get(PATH).is(200).json());
    thread::scope(|scope| {
        let wait = |wanted: Value| {
            let service = &service;
            scope.spawn(move || {
                let lease = acquire(service, "n", &wanted);
                release(service, "n", &lease).is(204);
            });
        };
        wait(json!({"wait_ms": 9_000}));
        expect_waiting(&service, 1);
        assert_eq!(shown(), Value::Null, "it did not say who it is");
        // Within one request, and in one that would get a ticket.
        wait(json!({"wait_ms": 9_000, "owner": "zoe"}));
        expect_waiting(&service, 2);
        wait(json!({"wait_ms": 60_000, "owner": "adam"}));
        expect_waiting(&service, 3);
        let both = json!(["zoe", "adam"]);
        assert_eq!(shown(), both);
        assert_eq!(owners(&listed(&service, "n")), both);
        events.wait_for("lock.changed", |data| owners(&data["lock"]) == both);
        release(&service, "n", &lease).is(204);
    });
    let lease = acquire(&service, "n", &json!({"wait_ms": 9_000}));
    thread::scope(|scope| {
        let last = scope.spawn(|| acquire(&service, "n", &json!({"wait_ms": 9_000})));
        expect_waiting(&service, 1);
        assert_eq!(shown(), Value::Null, "the others wait no longer");
        release(&service, "n", &lease).is(204);
        last.join().unwrap();
    });
}

#[tenure_testkit::test]
fn a_ticket_keeps_the_place() {
    let service = Service::start(&["--max-wait", "300ms", "--keep-place", "60s"]);
    let lease = acquire(&service, "n", &json!({}));
    let wait = |ticket: &Value| service.post(PATH, &json!({"wait_ms": 60_000, "ticket": ticket}));
    let refused = |ticket: &Value| wait(ticket).is_problem(423, "busy");
    let first = refused(&Value::Null);
    assert_eq!(first["ticket"].as_str().unwrap().len(), 32);
    let second = refused(&Value::Null);
    // Both keep their place between requests.
    expect_waiting(&service, 2);
    release(&service, "n", &lease).is(204);
    // The second comes back first, and still is the second.
    let second = refused(&second["ticket"]);
    let granted = wait(&first["ticket"]).is(201).json();
    assert!(
        granted["waited_ms"].as_u64() >= Some(600),
        "since it came first: {granted}"
    );
    let again = wait(&first["ticket"]);
    again.is_problem(410, "ticket_gone");
    release(&service, "n", &granted).is(204);
    let granted = wait(&second["ticket"]).is(201).json();
    release(&service, "n", &granted).is(204);
    assert!(eventually(SOON, || service.get(PATH).status == 404));
}

#[tenure_testkit::test]
fn a_ticket_alone_goes_on_waiting_for_as_long_as_was_asked_for_at_first() {
    let service = Service::start(&["--max-wait", "300ms", "--keep-place", "60s"]);
    let lease = acquire(&service, "n", &json!({}));
    let refused = |wanted: &Value| service.post(PATH, wanted).is_problem(423, "busy");
    let first = refused(&json!({"wait_ms": 600_000}));
    let again = refused(&json!({"ticket": first["ticket"]}));
    assert!(again["waited_ms"].as_u64() >= Some(600), "{again}");
    release(&service, "n", &lease).is(204);
    let granted = service.post(PATH, &json!({"ticket": again["ticket"]}));
    let granted = granted.is(201).json();
    // And not for longer.
    let mut answer = refused(&json!({"wait_ms": 700}));
    while let Some(ticket) = answer.get("ticket") {
        answer = refused(&json!({"ticket": ticket}));
    }
    assert!(answer["waited_ms"].as_u64() >= Some(700), "{answer}");
    release(&service, "n", &granted).is(204);
}

#[tenure_testkit::test]
fn a_place_is_given_up_if_nobody_comes_back_in_time() {
    let service = Service::start(&["--max-wait", "100ms", "--keep-place", "200ms"]);
    let lease = acquire(&service, "n", &json!({}));
    let refused = service.post(PATH, &json!({"wait_ms": 60_000}));
    let ticket = refused.is_problem(423, "busy")["ticket"].clone();
    release(&service, "n", &lease).is(204);
    // It was given the lock, did not come, and has it no longer.
    assert!(eventually(SOON, || service.get(PATH).status == 404));
    let late = service.post(PATH, &json!({"wait_ms": 60_000, "ticket": ticket}));
    late.is_problem(410, "ticket_gone");
    let metrics = service.get("/metrics").text;
    let counted = "tenure_acquire_total{lock=\"n\",kind=\"mutex\",result=\"cancelled\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tenure_testkit::test]
fn a_ticket_is_for_one_lock() {
    let service = Service::start(&["--max-wait", "100ms", "--keep-place", "60s"]);
    acquire(&service, "n", &json!({}));
    let refused = service.post(PATH, &json!({"wait_ms": 60_000}));
    let ticket = refused.is_problem(423, "busy")["ticket"].clone();
    let wanted = json!({"wait_ms": 60_000, "ticket": ticket});
    service
        .post("/api/v1/locks/other", &wanted)
        .is_problem(410, "ticket_gone");
    // And is still good for that one; a short wait is the last.
    let wanted = json!({"wait_ms": 1, "ticket": ticket});
    let last = service.post(PATH, &wanted).is_problem(423, "busy");
    assert!(last.get("ticket").is_none(), "{last}");
}

#[tenure_testkit::test]
fn whoever_breaks_off_leaves_the_queue_and_no_lock_behind() {
    // Within one request, and in one that would get a ticket.
    for options in [&[][..], &["--max-wait", "10s"][..]] {
        let service = Service::start(options);
        let lease = acquire(&service, "n", &json!({}));
        let mut gone = TcpStream::connect(service.url.trim_start_matches("http://")).unwrap();
        let body = json!({"wait_ms": 20_000}).to_string();
        let head =
            "POST /api/v1/locks/n HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        write!(
            gone,
            "{head}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        expect_waiting(&service, 1);
        drop(gone);
        expect_waiting(&service, 0);
        release(&service, "n", &lease).is(204);
        assert!(eventually(SOON, || service.get(PATH).status == 404));
        let metrics = service.get("/metrics").text;
        assert!(metrics.contains("result=\"cancelled\"} 1"), "{metrics}");
    }
}

#[tenure_testkit::test]
fn no_more_wait_than_allowed() {
    let service = Service::start(&["--max-waits", "1"]);
    let lease = acquire(&service, "n", &json!({"wait_ms": 1_000}));
    thread::scope(|scope| {
        let first = scope.spawn(|| acquire(&service, "n", &json!({"wait_ms": 20_000})));
        expect_waiting(&service, 1);
        let refused = service.post(PATH, &json!({"wait_ms": 1}));
        refused.is_problem(429, "too_many");
        service.post(PATH, &json!({})).is_problem(423, "busy");
        release(&service, "n", &lease).is(204);
        first.join().unwrap();
    });
}
