//! Reading a stream of events.

use std::io::{BufRead as _, BufReader};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::Service;

/// Longer than any event takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// An open stream.
pub struct Listening {
    events: Receiver<Heard>,
}

/// An event.
#[derive(Debug, Default)]
pub struct Heard {
    pub event: String,
    pub id: Option<String>,
    pub data: Value,
}

impl Listening {
    pub fn to(service: &Service, path: &str) -> Self {
        let url = format!("{}{path}", service.url);
        let (sender, events) = channel();
        let mut response = ureq::get(url).call().unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
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
        Self { events }
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

    /// What is left until the stream ends.
    #[track_caller]
    pub fn rest(&self) -> Vec<Heard> {
        let mut rest = Vec::new();
        loop {
            match self.events.recv_timeout(LIMIT) {
                Ok(heard) => rest.push(heard),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return rest,
                Err(timeout) => panic!("the stream does not end: {timeout}"),
            }
        }
    }
}
