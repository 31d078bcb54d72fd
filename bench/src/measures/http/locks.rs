//! Locks: taken and released, each connection a lock of its own.

use super::handler::Handler;
use super::service::Service;
use super::wire::{Wire, request};
use super::{Asked, Asker, Scene, Slice, saturate};
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
    let entry = |label, asked: Asked| {
        let runtime = &runtime;
        Entry::new(label, move || {
            let asked = &[asked];
            let redis = setting.server.pid();
            saturate(
                &Scene {
                    runtime,
                    asked,
                    redis,
                },
                Taker::of,
            )
        })
    };
    let entries = vec![
        entry("handler", handler.asked()),
        entry("ours", service.asked()),
    ];
    let results = interleave("http_locks", setting.rounds, entries);
    let rate = |label: &str| results.samples(label, |slice: &Slice| slice.per_second);
    let p99 = results.samples("ours", |slice| slice.p99_millis);
    let cpu = |label: &str| results.samples(label, |slice| slice.cpu.asked);
    let of_redis = results.samples("ours", |slice| slice.cpu.redis);
    vec![
        Row::ratio(
            "HTTP, locks taken and released/s, 256 connections",
            (&rate("ours"), Unit::PerSecond),
            ("axum handler, two requests", &rate("handler")),
            Target::AtLeast(0.6),
        ),
        Row::figure(
            "the same, p99 of both together",
            (&p99, Unit::Millis),
            Target::None,
        ),
        Row::ratio(
            "the same, CPU time of the service for both",
            (&cpu("ours"), Unit::Micros),
            ("axum handler", &cpu("handler")),
            Target::None,
        ),
        Row::figure(
            "the same, CPU time of Redis for both",
            (&of_redis, Unit::Micros),
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
