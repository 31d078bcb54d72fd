use serde_json::Value;

use super::Service;
use super::listening::{Heard, Listening};
use super::locks::{acquire, release};

/// Follows locks, with the id of the last event that was had.
pub fn follow(service: &Service, query: &str, last: Option<&str>) -> Listening {
    Listening::after(service, &format!("/api/v1/events{query}"), last)
}

#[tenure_testkit::test]
fn a_lock_is_followed_from_its_taking_to_its_end() {
    let service = Service::start(&[]);
    let mut events = follow(&service, "", None);
    let snapshot = events.wait_for("locks.snapshot", |_| true);
    assert_eq!(snapshot.data["locks"], serde_json::json!([]));
    assert_eq!((snapshot.id, &snapshot.data["away"]), (None, &Value::Null));
    let lease = acquire(
        &service,
        "n",
        &serde_json::json!({"owner": "me", "ttl_ms": 3_000}),
    );
    let of_n = |data: &Value| data["lock"]["name"] == "n" && data["lock"]["held"] == true;
    let changed = events.wait_for("lock.changed", of_n);
    assert_eq!(changed.data["lock"]["who"], "me");
    let taken = events.wait_for("lock.event", |data| data["event"] == "taken");
    assert_eq!(taken.data["fence"], lease["fence"]);
    assert_eq!(
        taken.data["lease_id"],
        Value::Null,
        "ids are for administrators"
    );
    let path = "/api/v1/locks/n/lease";
    let renewal = serde_json::json!({"lease_id": lease["lease_id"], "ttl_ms": 60_000});
    service.put(path, &renewal).is(200);
    events.wait_for("lock.event", |data| data["event"] == "renewed");
    release(&service, "n", &lease).is(204);
    events.wait_for("lock.gone", |data| data["name"] == "n");
    events.wait_for("lock.event", |data| data["event"] == "ended");
}

#[tenure_testkit::test]
fn only_what_was_asked_for_is_followed() {
    let service = Service::start(&[]);
    let mut events = follow(&service, "?topics=locks,stats&prefix=order:", None);
    events.wait_for("stats", |data| {
        data["held"].is_number() && data["store_ms"].is_number()
    });
    acquire(&service, "other", &serde_json::json!({}));
    acquire(&service, "order:1", &serde_json::json!({}));
    events.wait_for("lock.changed", |data| data["lock"]["name"] == "order:1");
    let named =
        |event: &Heard| event.data["lock"]["name"] == "other" || event.data["name"] == "other";
    assert!(!events.seen.iter().any(named), "{:#?}", events.seen);
    let unknown = service.get("/api/v1/events?topics=weather");
    let unknown = unknown.is_problem(422, "invalid")["detail"].to_string();
    for topic in ["locks", "stats", "playground", "sales"] {
        assert!(unknown.contains(&format!("`{topic}`")), "{unknown}");
    }
    service
        .get("/api/v1/events?topic=locks")
        .is_problem(400, "malformed");
}

#[tenure_testkit::test]
fn a_reader_that_comes_back_goes_on_where_it_was() {
    let service = Service::start(&[]);
    let mut events = follow(&service, "", None);
    acquire(&service, "one", &serde_json::json!({}));
    let last = events.wait_for("lock.event", |data| data["name"] == "one");
    acquire(&service, "two", &serde_json::json!({}));
    events.wait_for("lock.event", |data| data["name"] == "two");
    let mut again = follow(&service, "", last.id.as_deref());
    again.wait_for("lock.event", |data| data["name"] == "two");
    assert!(
        again.seen.iter().all(|it| it.id.is_some()),
        "a snapshot: {:#?}",
        again.seen
    );
    // Of another process, or too old: everything anew.
    for unknown in ["00000000-1", "nonsense", "1"] {
        let mut anew = follow(&service, "", Some(unknown));
        let snapshot = anew.wait_for("locks.snapshot", |_| true);
        assert_eq!(snapshot.data["locks"].as_array().unwrap().len(), 2);
    }
}

#[tenure_testkit::test]
fn there_are_no_more_streams_than_allowed() {
    let service = Service::start(&["--max-streams", "1"]);
    let mut one = follow(&service, "", None);
    one.wait_for("locks.snapshot", |_| true);
    let refused = service.get("/api/v1/events");
    refused.is_problem(429, "too_many");
    assert_eq!(refused.header("retry-after"), "1");
}
