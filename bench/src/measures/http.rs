//! The service: what locks, orders and streams cost over HTTP.
//!
//! Beside it, in turn, a handler of axum in a process of its own that reads the same JSON and answers
//! at once. Both are asked over the same number of connections that are kept, by this process.

mod handler;
mod locks;
mod orders;
mod service;
mod streams;
mod wire;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

pub use handler::child;
pub use locks::measure as locks;
pub use orders::measure as orders;
pub use streams::measure as streams;

use self::wire::Wire;
use crate::stats::Samples;

/// Connections that are kept.
const CONNECTIONS: usize = 256;
const SLICE: Duration = Duration::from_secs(2);

/// What one slice gave.
#[derive(Clone, Copy)]
struct Slice {
    per_second: f64,
    p99_millis: f64,
}

/// One of those who ask, over a connection of its own.
trait Asker: Send + 'static {
    /// Asks once, and panics if the answer is not what it must be.
    fn ask(&mut self, wire: &mut Wire) -> impl Future<Output = ()> + Send;
}

/// All ask as fast as they are answered. `asker` is given the connection's number.
fn saturate<A: Asker>(
    runtime: &Runtime,
    addrs: &[SocketAddr],
    asker: impl Fn(usize) -> A,
) -> Slice {
    offer(runtime, addrs, None, asker)
}

/// All ask at a rate for all together, when it is their time: how long an answer took counts from then.
fn offer<A: Asker>(
    runtime: &Runtime,
    addrs: &[SocketAddr],
    rate: Option<f64>,
    asker: impl Fn(usize) -> A,
) -> Slice {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let pace = rate.map(|rate| Duration::from_secs_f64(CONNECTIONS as f64 / rate));
            let first = pace.unwrap_or_default() * u32::try_from(number).unwrap_or(0);
            let first = begun + first / u32::try_from(CONNECTIONS).unwrap_or(1);
            let addr = addrs[number % addrs.len()];
            runtime.spawn(ask_on(addr, asker(number), begun + SLICE, first, pace))
        })
        .collect();
    let millis: Vec<f64> = tasks
        .into_iter()
        .flat_map(|task| runtime.block_on(task).expect("nobody who asks panics"))
        .collect();
    Slice {
        per_second: millis.len() as f64 / begun.elapsed().as_secs_f64(),
        p99_millis: Samples::new(millis).quantile(0.99),
    }
}

/// Asks until the end; how long each answer took.
async fn ask_on<A: Asker>(
    addr: SocketAddr,
    mut asker: A,
    end: Instant,
    mut due: Instant,
    pace: Option<Duration>,
) -> Vec<f64> {
    let mut wire = Wire::open(addr).await;
    let mut millis = Vec::new();
    loop {
        match pace {
            Some(_) => tokio::time::sleep_until(due.into()).await,
            None => due = Instant::now(),
        }
        if Instant::now() >= end {
            return millis;
        }
        asker.ask(&mut wire).await;
        millis.push(due.elapsed().as_secs_f64() * 1e3);
        due += pace.unwrap_or_default();
    }
}
