//! Reading a stream of events.

use std::io::{BufRead as _, BufReader};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Service;

/// Longer than any event takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// An open stream.
pub struct Listening {
    events: Receiver<Heard>,
    /// What went by while something else was waited for.
    pub seen: Vec<Heard>,
}

/// An event.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub event: String,
    pub id: Option<String>,
    pub data: Value,
}

impl Listening {
    pub fn to(service: &Service, path: &str) -> Self {
        Self::after(service, path, None)
    }

    /// With the id of the last event that was had.
    pub fn after(service: &Service, path: &str, last: Option<&str>) -> Self {
        let mut request = ureq::get(format!("{}{path}", service.url));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let mut response = request.call().unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        let (sender, events) = channel();
        thread::spawn(move || {
            let mut heard = Heard::default();
            for line in BufReader::new(response.body_mut().as_reader()).lines() {
                let Ok(line) = line else { return };
                match line.split_once(": ") {
                    Some(("event", event)) => event.clone_into(&mut heard.event),
                    Some(("id", id)) => heard.id = Some(id.to_owned()),
                    Some(("data", data)) => heard.data = serde_json::from_str(data).unwrap(),
                    None if line.is_empty() && !heard.event.is_empty() => {
                        // Who listens no more has dropped the other end.
                        let _ = sender.send(std::mem::take(&mut heard));
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

    #[track_caller]
    pub fn next(&self) -> Heard {
        self.events.recv_timeout(LIMIT).expect("another event")
    }

    /// The first event that is as wished.
    #[track_caller]
    pub fn until(&self, wished: impl Fn(&Heard) -> bool) -> Heard {
        loop {
            let heard = self.next();
            if wished(&heard) {
                return heard;
            }
        }
    }

    /// Waits for an event of this name that is so.
    #[track_caller]
    pub fn wait_for(&mut self, event: &str, is_it: impl Fn(&Value) -> bool) -> Heard {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(next) = self.events.recv_timeout(left) else {
                panic!("no such `{event}` among {:#?}", self.seen);
            };
            self.seen.push(next.clone());
            if next.event == event && is_it(&next.data) {
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
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    /// What is left until the stream ends.
    #[track_caller]
    pub fn rest(&self) -> Vec<Heard> {
        let mut rest = Vec::new();
        loop {
            match self.events.recv_timeout(LIMIT) {
                Ok(heard) => rest.push(heard),
                Err(RecvTimeoutError::Disconnected) => return rest,
                Err(timeout) => panic!("the stream does not end: {timeout}"),
            }
        }
    }
}
