//! Locks: taken and released, each connection a lock of its own.

use super::handler::Handler;
use super::service::Service;
use super::wire::{Wire, request};
use super::{Asker, Slice, saturate};
use crate::rounds::{Entry, interleave};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

struct Taker {
    take: Vec<u8>,
    lease: String,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let handler = Handler::start();
    let service = Service::start(&["--url", &setting.url()]);
    let entries = vec![
        Entry::new("handler", || saturate(&runtime, &[handler.addr], Taker::of)),
        Entry::new("ours", || saturate(&runtime, &[service.addr], Taker::of)),
    ];
    let results = interleave("http_locks", setting.rounds, entries);
    let rate = |label: &str| results.samples(label, |slice: &Slice| slice.per_second);
    let p99 = results.samples("ours", |slice| slice.p99_millis);
    vec![
        Row::ratio(
            "HTTP, locks taken and released/s, 256 connections",
            (&rate("ours"), Unit::PerSecond),
            ("axum handler, two requests", &rate("handler")),
            Target::AtLeast(0.5),
        ),
        Row::figure(
            "the same, p99 of both together",
            (&p99, Unit::Millis),
            Target::None,
        ),
    ]
}

impl Taker {
    fn of(number: usize) -> Self {
        let path = format!("/api/v1/locks/bench-http-{number}");
        Self {
            take: request("POST", &path, r#"{"ttl_ms":30000}"#),
            lease: format!("{path}/lease?lease_id="),
        }
    }
}

impl Asker for Taker {
    async fn ask(&mut self, wire: &mut Wire) {
        let taken = wire.ask(&self.take).await;
        assert_eq!(taken.status, 201, "{}", taken.body);
        let lease = taken.body.split_once(r#""lease_id":""#);
        let lease = lease.and_then(|(_, rest)| rest.split('"').next());
        let lease = lease.expect("a grant has a lease");
        let path = format!("{}{lease}", self.lease);
        let released = wire.ask(&request("DELETE", &path, "")).await;
        assert_eq!(released.status, 204, "{}", released.body);
    }
}
