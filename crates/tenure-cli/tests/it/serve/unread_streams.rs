use std::io::Read as _;
use std::net::TcpStream;

use serde_json::json;
use tenure_testkit::eventually;

use super::Service;
use super::events::follow;
use super::locks::{SOON, acquire};
use super::sockets::request;

/// All with the same prefix, one of a hundred lengths.
const LONG_PREFIX: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";
const LOCKS: usize = 800;

/// A stream whose reader reads nothing but the beginning of the response.
fn unread(service: &Service, prefix: &str) -> TcpStream {
    let path = format!("/api/v1/events?prefix={prefix}");
    // Otherwise the kernels would take the whole state.
    let mut stream = request(service, &path, "127.0.0.1", Some(4_096));
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    stream
}

/// Each would have a copy of three megabytes.
#[tenure_testkit::test]
fn readers_of_different_prefixes_share_one_snapshot() {
    let service = Service::start(&[]);
    let big = "x".repeat(4_000);
    for number in 0..LOCKS {
        let name = format!("{LONG_PREFIX}{number}");
        acquire(
            &service,
            &name,
            &json!({"ttl_ms": 3_600_000, "meta": {"big": big}}),
        );
    }
    let all = format!("tenure_live_locks{{kind=\"mutex\"}} {LOCKS}\n");
    assert!(eventually(SOON, || service
        .get("/metrics")
        .text
        .contains(&all)));
    let before = service.resident_kb();
    let unread: Vec<TcpStream> = (1..=LONG_PREFIX.len())
        .map(|length| unread(&service, &LONG_PREFIX[..length]))
        .collect();
    let grown = service.resident_kb().saturating_sub(before);
    assert!(grown < 100_000, "grown by {grown} kB");
    // A reader that reads has everything that it asked for, and nothing else.
    let prefix = format!("?prefix={LONG_PREFIX}79");
    let mut one = follow(&service, &prefix, None);
    let snapshot = one.wait_for("locks.snapshot", |_| true);
    // 79 and 790 to 799.
    assert_eq!(snapshot.data["locks"].as_array().unwrap().len(), 11);
    drop(unread);
}
