//! Streams: what a thousand that are open cost, and how long a change takes to reach them all.

use std::time::{Duration, Instant};

use super::service::Service;
use super::wire::{Wire, request};
use crate::progress;
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const STREAMS: usize = 1_000;
const CHANGES: usize = 20;
/// Between two changes.
const PAUSE: Duration = Duration::from_millis(200);

pub fn measure(setting: &Setting) -> Vec<Row> {
    progress::tell("http_streams");
    let runtime = two_workers();
    let service = Service::start(&["--url", &setting.url()]);
    // What the first ones allocate for everybody is not theirs.
    let first = runtime.block_on(open(&service));
    let before = service.memory();
    let streams: Vec<Wire> = runtime.block_on(async {
        let mut streams = Vec::with_capacity(STREAMS);
        for _ in 0..STREAMS {
            streams.push(open(&service).await);
        }
        streams
    });
    let each = (service.memory() - before) / STREAMS as f64;
    let reading: Vec<_> = streams
        .into_iter()
        .map(|stream| runtime.spawn(read(stream)))
        .collect();
    let asked: Vec<Instant> = (0..CHANGES)
        .map(|number| take(&runtime, &service, number))
        .collect();
    let mut millis = Vec::new();
    for reader in reading {
        let heard = runtime.block_on(reader).expect("no reader panics");
        let after = heard.iter().zip(&asked);
        millis.extend(after.map(|(heard, asked)| (*heard - *asked).as_secs_f64() * 1e3));
    }
    drop(first);
    let times = Samples::new(millis);
    let p99 = Samples::new([times.quantile(0.99)]);
    let each = Samples::new([each]);
    let what = "HTTP, 1 000 open streams, memory of the service for each";
    vec![
        Row::figure(what, (&each, Unit::Bytes), Target::None),
        Row::figure(
            "the same, from asking for a lock until a stream tells it, median",
            (&Samples::new([times.median()]), Unit::Millis),
            Target::None,
        ),
        Row::figure("the same, p99", (&p99, Unit::Millis), Target::None),
    ]
}

async fn open(service: &Service) -> Wire {
    let mut wire = Wire::open(service.addr).await;
    wire.send(&request("GET", "/api/v1/events?topics=locks", ""))
        .await;
    wire.read_until(b"locks.snapshot").await;
    wire
}

/// When each change was heard.
async fn read(mut stream: Wire) -> Vec<Instant> {
    let mut heard = Vec::with_capacity(CHANGES);
    for number in 0..CHANGES {
        stream.read_until(name(number).as_bytes()).await;
        heard.push(Instant::now());
    }
    heard
}

/// Takes a lock; when it was asked for.
fn take(runtime: &tokio::runtime::Runtime, service: &Service, number: usize) -> Instant {
    std::thread::sleep(PAUSE);
    let path = format!("/api/v1/locks/{}", name(number));
    let asked = Instant::now();
    let taken = service.ask(runtime, "POST", &path, r#"{"ttl_ms":30000}"#);
    assert_eq!(taken.status, 201, "{}", taken.body);
    asked
}

fn name(number: usize) -> String {
    format!("streamed-{number:04}")
}
