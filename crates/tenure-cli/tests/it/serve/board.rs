use std::thread;

use serde_json::{Value, json};
use tenure_testkit::{ClientProcess, RedisServer, eventually};

use super::Service;
use super::events::follow;
use super::locks::{SOON, acquire, listed, release};
use crate::command::{run, tenure};

#[tenure_testkit::test]
fn locks_of_commands_are_seen_as_they_come_and_go() {
    let server = RedisServer::start();
    let service = Service::on(&server, &[]);
    let mut events = follow(&service, "", None);
    let of = |name: &'static str, event: &'static str| {
        move |data: &Value| data["name"] == name && data["event"] == event
    };
    let url = server.url();
    let running = ClientProcess::spawn(&tenure(&["run", "--url", &url, "of-run", "cat"]));
    let taken = events.wait_for("lock.event", of("of-run", "taken"));
    assert!(
        taken.data["who"].as_str().unwrap().contains("cat"),
        "{taken:?}"
    );
    assert!(listed(&service, "of-run")["held_ms"].is_number());
    running.close_stdin();
    events.wait_for("lock.event", of("of-run", "ended"));
    // Its process is gone, and still it is held.
    let lease = run(&mut tenure(&["acquire", "of-script", "--url", &url])).stdout;
    let taken = events.wait_for("lock.event", of("of-script", "taken"));
    let pid = std::process::id().to_string();
    assert!(
        taken.data["who"].as_str().unwrap().contains(&pid),
        "{taken:?}"
    );
    run(&mut tenure(&[
        "release",
        "--url",
        &url,
        "--lease",
        lease.trim(),
    ]))
    .ended_with(0);
    events.wait_for("lock.event", of("of-script", "ended"));
}

#[tenure_testkit::test]
fn what_was_seen_of_a_lock_is_remembered() {
    let service = Service::start(&[]);
    let mut events = follow(&service, "", None);
    for number in 1..=3 {
        let owner = format!("holder {number}");
        let lease = acquire(&service, "n", &json!({"owner": owner}));
        let is_it = |data: &Value| data["who"] == owner.as_str();
        events.wait_for("lock.event", |data| data["event"] == "taken" && is_it(data));
        release(&service, "n", &lease).is(204);
        events.wait_for("lock.event", |data| data["event"] == "ended" && is_it(data));
    }
    let history = service.get("/api/v1/locks/n/history").is(200).json();
    let holds = history["holds"].as_array().unwrap();
    let who: Vec<_> = holds
        .iter()
        .map(|hold| hold["who"].as_str().unwrap())
        .collect();
    assert_eq!(who, ["holder 1", "holder 2", "holder 3"]);
    assert!(
        holds.iter().all(|hold| hold["end"] == "released"),
        "{history}"
    );
    assert!(
        holds
            .windows(2)
            .all(|two| two[0]["fence"].as_u64() < two[1]["fence"].as_u64())
    );
    assert_eq!(history["events"].as_array().unwrap().len(), 6);
    let all = service.get("/api/v1/history").is(200).json();
    assert_eq!(all["events"], history["events"]);
    let nothing = service.get("/api/v1/locks/unknown/history").is(200).json();
    assert_eq!(
        (&nothing["holds"], &nothing["events"]),
        (&json!([]), &json!([]))
    );
}

/// Without watchers it polls seldom: what ends and starts between two polls is seen at once.
#[tenure_testkit::test]
fn the_history_never_shows_two_holders_at_once() {
    let service = Service::start(&[]);
    let holds = || -> Vec<Value> {
        let history = service.get("/api/v1/locks/n/history").is(200).json();
        history["holds"].as_array().unwrap().clone()
    };
    for number in 1..=3 {
        let lease = acquire(&service, "n", &json!({}));
        assert!(
            eventually(SOON, || holds().len() == number),
            "{:?}",
            holds()
        );
        release(&service, "n", &lease).is(204);
    }
    for two in holds().windows(2) {
        assert!(two[0]["to"].as_str() <= two[1]["from"].as_str(), "{two:?}");
    }
}

#[tenure_testkit::test]
fn other_keys_cost_nothing() {
    let server = RedisServer::start();
    let filled = server
        .client()
        .command(&["DEBUG", "POPULATE", "200000", "foreign"]);
    assert_eq!(filled.text(), "OK");
    let service = Service::on(&server, &[]);
    let mut events = follow(&service, "", None);
    acquire(&service, "ours", &json!({}));
    listed(&service, "ours");
    events.wait_for("lock.changed", |data| data["lock"]["name"] == "ours");
    for search in ["scan", "keys", "hscan", "sscan", "randomkey"] {
        assert_eq!(server.command_calls(search), 0, "{search}");
    }
}

/// A key of another program can expire at any time at all.
#[tenure_testkit::test]
fn a_lock_that_expires_after_the_year_9999_does_not_end_the_board() {
    let server = RedisServer::start();
    let service = Service::on(&server, &[]);
    server.run(&["SET", "far", "me", "PX", "9000000000000000"]);
    let mut events = follow(&service, "", None);
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| service.post("/api/v1/locks/far", &json!({"wait_ms": 20_000})));
        let far = events.wait_for("lock.changed", |data| data["lock"]["name"] == "far");
        assert_eq!(far.data["lock"]["expires_at"], "9999-12-31T23:59:59.000Z");
        let shown = service.get("/api/v1/locks/far").is(200).json();
        assert_eq!(shown["expires_at"], "9999-12-31T23:59:59.000Z");
        // The board goes on.
        acquire(&service, "later", &json!({}));
        events.wait_for("lock.changed", |data| data["lock"]["name"] == "later");
        let ready = service.get("/readyz").is(200).json();
        assert_eq!(ready, json!({"status": "ok"}));
        server.run(&["DEL", "far"]);
        waiting.join().unwrap();
    });
}
