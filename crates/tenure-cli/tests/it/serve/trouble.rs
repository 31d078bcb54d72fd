use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_testkit::{RedisServer, eventually};

use super::events::follow;
use super::locks::{SOON, acquire, listed, release};
use super::{Answer, Service};

/// What waits for the store gives up after five seconds and a few more for finding out who holds what;
/// the rest is for slow machines.
const LIMIT: Duration = Duration::from_secs(15);

#[track_caller]
fn is_unavailable(answer: &Answer) {
    answer.is_problem(503, "unavailable");
    assert_eq!(answer.header("retry-after"), "1", "{answer:?}");
}

#[track_caller]
fn is_nobodys(answer: &Answer) -> Value {
    let problem = answer.is_problem(423, "busy");
    assert_eq!(answer.header("retry-after"), "1", "{answer:?}");
    assert!(problem.get("holder").is_none(), "{problem}");
    assert!(problem["waited_ms"].as_u64() > Some(0), "{problem}");
    problem
}

#[tenure_testkit::test]
fn while_the_store_is_away_everybody_is_told_so_in_time() {
    let server = RedisServer::start();
    let service = Service::on(&server, &["--allow-admin"]);
    let mut events = follow(&service, "", None);
    let lease = acquire(&service, "n", &json!({"ttl_ms": 120_000}));
    let id = lease["lease_id"].as_str().unwrap();
    listed(&service, "n");
    server.pause();
    let begun = Instant::now();
    thread::scope(|scope| {
        let asks: [Box<dyn Fn() -> Answer + Send>; 7] = [
            Box::new(|| service.post("/api/v1/locks/n", &json!({}))),
            Box::new(|| service.put("/api/v1/locks/n/lease", &json!({"lease_id": id}))),
            Box::new(|| service.get("/api/v1/locks/n")),
            Box::new(|| service.get("/api/v1/locks")),
            Box::new(|| service.delete(&format!("/api/v1/locks/n?lease_id={id}&force=true"))),
            Box::new(|| service.send("LOCK", "/api/v1/terraform/n", &[], "{\"ID\":\"1\"}")),
            Box::new(|| service.get("/readyz")),
        ];
        for ask in asks {
            scope.spawn(move || is_unavailable(&ask()));
        }
        scope.spawn(|| is_unavailable(&service.post("/api/v1/locks/m", &json!({"wait_ms": 500}))));
        // What needs no store is served all the same.
        scope.spawn(|| service.get("/livez").is(200).status);
        scope.spawn(|| service.get("/api/v1/stats").is(200).status);
        scope.spawn(|| service.get("/api/v1/about").is(200).status);
        scope.spawn(|| service.get("/metrics").is(200).status);
    });
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    let away = events.wait_for("store.away", |_| true);
    assert!(away.data["detail"].is_string());
    let mut late = follow(&service, "", None);
    late.wait_for("locks.snapshot", |data| data["away"].is_string());
    server.resume();
    events.wait_for("store.back", |_| true);
    assert!(eventually(SOON, || release(&service, "n", &lease).status == 204));
    let lease = acquire(&service, "n", &json!({"wait_ms": 10_000}));
    release(&service, "n", &lease).is(204);
}

#[tenure_testkit::test]
fn a_store_without_memory_is_not_ready() {
    let server = RedisServer::start();
    let service = Service::on(&server, &[]);
    service.get("/readyz").is(200);
    server.fill_memory();
    service.get("/readyz").is_problem(503, "unavailable");
    server.free_memory();
    service.get("/readyz").is(200);
}

#[tenure_testkit::test]
fn whoever_wanted_a_lock_of_a_silent_store_is_told_whether_it_may_have_it() {
    let server = RedisServer::start();
    let service = Service::on(&server, &["--max-wait", "300ms", "--keep-place", "60s"]);
    acquire(&service, "n", &json!({}));
    server.pause();
    thread::scope(|scope| {
        for (name, wait_ms) in [("free", 0), ("free", 200), ("n", 0), ("n", 200)] {
            let service = &service;
            scope.spawn(move || {
                let path = format!("/api/v1/locks/{name}");
                let answer = service.post(&path, &json!({"wait_ms": wait_ms}));
                is_unavailable(&answer);
                let detail = answer.json()["detail"].as_str().unwrap().to_owned();
                assert!(detail.contains("Redis does not respond"), "{detail}");
                let may_have_it = format!("lock `{name}` may have been acquired");
                assert!(detail.contains(&may_have_it), "{detail}");
            });
        }
    });
    // Who holds it is not known, but the place is kept.
    let kept = service.post("/api/v1/locks/n", &json!({"wait_ms": 60_000}));
    kept.is_problem(423, "busy");
    assert!(kept.json()["ticket"].is_string(), "{kept:?}");
    server.resume();
    let free = || service.get("/api/v1/locks/free").status == 404;
    assert!(eventually(SOON, free), "it was given back");
}

#[tenure_testkit::test]
fn a_store_that_died_and_came_back_is_used_again() {
    let server = RedisServer::start();
    let service = Service::on(&server, &[]);
    acquire(&service, "n", &json!({}));
    server.kill();
    is_unavailable(&service.post("/api/v1/locks/n", &json!({})));
    server.restart_empty();
    let taken = || {
        service
            .post("/api/v1/locks/n", &json!({"wait_ms": 5_000}))
            .status
            == 201
    };
    assert!(eventually(SOON, taken));
}

#[tenure_testkit::test]
fn a_place_outlives_a_store_that_is_away_when_the_ticket_is_due() {
    let server = RedisServer::start();
    let service = Service::on(&server, &["--max-wait", "2s", "--keep-place", "60s"]);
    let lease = acquire(&service, "n", &json!({"ttl_ms": 120_000}));
    let wait = |ticket: &Value| {
        service.post(
            "/api/v1/locks/n",
            &json!({"wait_ms": 60_000, "ticket": ticket}),
        )
    };
    let ticket = thread::scope(|scope| {
        let first = scope.spawn(|| wait(&Value::Null));
        let waiting = "tenure_waiting{lock=\"n\",kind=\"mutex\"} 1";
        let is_waiting = || service.get("/metrics").text.contains(waiting);
        assert!(eventually(SOON, is_waiting));
        server.pause();
        is_nobodys(&first.join().unwrap())["ticket"].clone()
    });
    server.resume();
    assert!(ticket.is_string());
    assert!(eventually(SOON, || release(&service, "n", &lease).status == 204));
    let mut answer = wait(&ticket);
    while answer.status == 423 {
        answer = wait(&answer.json()["ticket"]);
    }
    assert!(answer.is(201).json()["waited_ms"].as_u64() >= Some(2_000));
}

#[tenure_testkit::test]
fn a_stop_ends_streams_and_waits_at_once_and_keeps_leases() {
    let server = RedisServer::start();
    let service = Service::on(&server, &["--max-wait", "1s"]);
    let lease = acquire(&service, "n", &json!({"ttl_ms": 60_000}));
    let mut events = follow(&service, "?topics=locks,stats", None);
    events.wait_for("stats", |_| true);
    // One place is parked; one request waits within its own time, one with a ticket to come.
    let parked = service.post("/api/v1/locks/n", &json!({"wait_ms": 60_000}));
    parked.is_problem(423, "busy");
    let stopped = thread::scope(|scope| {
        let waits = [900, 60_000].map(|wait_ms| {
            let service = &service;
            let wanted = json!({"wait_ms": wait_ms});
            scope.spawn(move || service.post("/api/v1/locks/n", &wanted))
        });
        let waiting = || {
            service
                .get("/metrics")
                .text
                .contains("tenure_waiting{lock=\"n\",kind=\"mutex\"} 3")
        };
        assert!(
            eventually(SOON, waiting),
            "{}",
            service.get("/metrics").text
        );
        let begun = Instant::now();
        service.ask_to_stop();
        for wait in waits {
            let answer = wait.join().unwrap();
            // The first one's own time may have been over just before.
            if answer.status != 423 {
                answer.is_problem(503, "stopping");
            }
        }
        assert!(events.ends_within(SOON));
        service.process.wait_for_success(SOON);
        begun.elapsed()
    });
    assert!(stopped < Duration::from_secs(20), "{stopped:?}");
    // None of the waiters has it or blocks it.
    let other = Service::on(&server, &[]);
    assert_eq!(listed(&other, "n")["fence"], lease["fence"]);
    release(&other, "n", &lease).is(204);
    acquire(&other, "n", &json!({}));
}

/// Readers that never read: what is written for them waits in no memory of the service.
/// A sale starts for all buyers at once. A connection that does not fit gets no reply, and its own
/// kernel
/// tries again a second later.
#[tenure_testkit::test]
fn hundreds_may_come_at_the_same_moment() {
    let service = Service::start(&[]);
    let address = service.url.trim_start_matches("http://").parse().unwrap();
    service.process.pause();
    let came: io::Result<Vec<TcpStream>> = (0..400)
        .map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(900)))
        .collect();
    service.process.resume();
    assert!(came.is_ok(), "{came:?}");
    service.get("/livez").is(200);
}

#[tenure_testkit::test]
fn slow_readers_hold_no_memory() {
    let service = Service::start(&[]);
    let address = service.url.trim_start_matches("http://");
    let open = || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        .unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        stream
    };
    let unread: Vec<TcpStream> = (0..20).map(|_| open()).collect();
    let mut reader = follow(&service, "", None);
    let big = "x".repeat(4_000);
    let before = service.resident_kb();
    for round in 0..4 {
        let leases: Vec<_> = (0..200)
            .map(|number| {
                let name = format!("n{round}-{number}");
                let lease = acquire(&service, &name, &json!({"meta": {"big": big}}));
                (name, lease)
            })
            .collect();
        let (last, _) = leases.last().unwrap();
        reader.wait_for("lock.changed", |data| data["lock"]["name"] == last.as_str());
        for (name, lease) in &leases {
            release(&service, name, lease).is(204);
        }
        reader.wait_for("lock.gone", |data| data["name"] == last.as_str());
    }
    // They were sent 800 locks of 4 kB each, twenty times: 60 MB and more, besides what is kept anyway.
    let grown = service.resident_kb().saturating_sub(before);
    assert!(grown < 60_000, "grown by {grown} kB");
    drop(unread);
}
