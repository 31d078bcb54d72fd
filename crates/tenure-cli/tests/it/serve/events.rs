use std::io::{BufRead, BufReader};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Service;
use super::locks::{SOON, acquire, release};

/// A message of an event stream.
#[derive(Clone, Debug, Default)]
pub struct Event {
    pub name: String,
    pub data: Value,
    pub id: Option<String>,
}

/// A stream that is being read.
pub struct Events {
    events: Receiver<Event>,
    seen: Vec<Event>,
}

impl Events {
    /// Opens the stream, with the id of the last event that was had.
    pub fn open(service: &Service, query: &str, last: Option<&str>) -> Self {
        let url = format!("{}/api/v1/events{query}", service.url);
        let mut request = ureq::get(url);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.call().unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        let (sender, events) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(response.into_body().into_reader()).lines();
            let mut event = Event::default();
            for line in lines.map_while(Result::ok) {
                match line.split_once(": ") {
                    Some(("event", name)) => name.clone_into(&mut event.name),
                    Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                    Some(("id", id)) => event.id = Some(id.to_owned()),
                    _ if line.is_empty() && !event.name.is_empty() => {
                        // Nobody waits for more: then nobody misses it.
                        let _ = sender.send(std::mem::take(&mut event));
                    }
                    _ => {}
                }
            }
        });
        Self {
            events,
            seen: Vec::new(),
        }
    }

    /// Waits for an event of this name that is so.
    #[track_caller]
    pub fn wait_for(&mut self, event: &str, is_it: impl Fn(&Value) -> bool) -> Event {
        let end = Instant::now() + SOON;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(next) = self.events.recv_timeout(left) else {
                panic!("no such `{event}` among {:#?}", self.seen);
            };
            self.seen.push(next.clone());
            if next.name == event && is_it(&next.data) {
                return next;
            }
        }
    }

    /// Whether the stream has ended within this time.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return true,
                Err(mpsc::RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

#[test]
fn a_lock_is_followed_from_its_taking_to_its_end() {
    let service = Service::start(&[]);
    let mut events = Events::open(&service, "", None);
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

#[test]
fn only_what_was_asked_for_is_followed() {
    let service = Service::start(&[]);
    let mut events = Events::open(&service, "?topics=locks,stats&prefix=order:", None);
    events.wait_for("stats", |data| {
        data["held"].is_number() && data["store_ms"].is_number()
    });
    acquire(&service, "other", &serde_json::json!({}));
    acquire(&service, "order:1", &serde_json::json!({}));
    events.wait_for("lock.changed", |data| data["lock"]["name"] == "order:1");
    let named =
        |event: &Event| event.data["lock"]["name"] == "other" || event.data["name"] == "other";
    assert!(!events.seen.iter().any(named), "{:#?}", events.seen);
    service
        .get("/api/v1/events?topics=weather")
        .is_problem(422, "invalid");
    service
        .get("/api/v1/events?topic=locks")
        .is_problem(400, "malformed");
}

#[test]
fn a_reader_that_comes_back_goes_on_where_it_was() {
    let service = Service::start(&[]);
    let mut events = Events::open(&service, "", None);
    acquire(&service, "one", &serde_json::json!({}));
    let last = events.wait_for("lock.event", |data| data["name"] == "one");
    acquire(&service, "two", &serde_json::json!({}));
    events.wait_for("lock.event", |data| data["name"] == "two");
    let mut again = Events::open(&service, "", last.id.as_deref());
    again.wait_for("lock.event", |data| data["name"] == "two");
    assert!(
        again.seen.iter().all(|it| it.id.is_some()),
        "a snapshot: {:#?}",
        again.seen
    );
    // Of another process, or too old: everything anew.
    for unknown in ["00000000-1", "nonsense", "1"] {
        let mut anew = Events::open(&service, "", Some(unknown));
        let snapshot = anew.wait_for("locks.snapshot", |_| true);
        assert_eq!(snapshot.data["locks"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn there_are_no_more_streams_than_allowed() {
    let service = Service::start(&["--max-streams", "1"]);
    let mut one = Events::open(&service, "", None);
    one.wait_for("locks.snapshot", |_| true);
    let refused = service.get("/api/v1/events");
    refused.is_problem(429, "too_many");
    assert_eq!(refused.header("retry-after"), "1");
}
