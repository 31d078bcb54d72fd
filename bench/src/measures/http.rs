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
use crate::machine::process_micros;
use crate::stats::Samples;

/// Connections that are kept.
const CONNECTIONS: usize = 256;
const SLICE: Duration = Duration::from_secs(2);

/// What one slice gave.
#[derive(Clone, Copy)]
struct Slice {
    per_second: f64,
    p99_millis: f64,
    /// What those who were asked used of the CPU for each answer, and the Redis behind them.
    cpu: Cpu,
}

/// CPU time, in microseconds.
#[derive(Clone, Copy)]
struct Cpu {
    asked: f64,
    redis: f64,
}

/// Somebody who can be asked: where, and as which process.
#[derive(Clone, Copy)]
struct Asked {
    addr: SocketAddr,
    pid: u32,
}

/// Those who are asked, and the process of the Redis behind them.
struct Scene<'a> {
    runtime: &'a Runtime,
    asked: &'a [Asked],
    redis: u32,
}

impl Scene<'_> {
    fn cpu(&self) -> Cpu {
        let asked = self.asked.iter().map(|it| process_micros(it.pid));
        Cpu {
            asked: asked.sum(),
            redis: process_micros(self.redis),
        }
    }
}

impl Cpu {
    /// What was used since then for each of so many answers.
    fn each_since(self, before: Self, answers: usize) -> Self {
        let each = |now: f64, before: f64| (now - before) / answers as f64;
        Self {
            asked: each(self.asked, before.asked),
            redis: each(self.redis, before.redis),
        }
    }
}

/// One of those who ask, over a connection of its own.
trait Asker: Send + 'static {
    /// Asks once, and panics if the answer is not what it must be.
    fn ask(&mut self, wire: &mut Wire) -> impl Future<Output = ()> + Send;
}

/// All ask as fast as they are answered. `asker` is given the connection's number.
fn saturate<A: Asker>(scene: &Scene<'_>, asker: impl Fn(usize) -> A) -> Slice {
    offer(scene, None, asker)
}

/// All ask at a rate for all together, when it is their time: how long an answer took counts from then.
fn offer<A: Asker>(scene: &Scene<'_>, rate: Option<f64>, asker: impl Fn(usize) -> A) -> Slice {
    let runtime = scene.runtime;
    // Before anything counts: a connection that the kernel had no room for is made a second later.
    let wires: Vec<Wire> = (0..CONNECTIONS)
        .map(|number| scene.asked[number % scene.asked.len()].addr)
        .map(|addr| runtime.block_on(Wire::open(addr)))
        .collect();
    let before = scene.cpu();
    let begun = Instant::now();
    let tasks: Vec<_> = wires
        .into_iter()
        .enumerate()
        .map(|(number, wire)| {
            let pace = rate.map(|rate| Duration::from_secs_f64(CONNECTIONS as f64 / rate));
            let first = pace.unwrap_or_default() * u32::try_from(number).unwrap_or(0);
            let first = begun + first / u32::try_from(CONNECTIONS).unwrap_or(1);
            runtime.spawn(ask_on(wire, asker(number), begun + SLICE, first, pace))
        })
        .collect();
    let millis: Vec<f64> = tasks
        .into_iter()
        .flat_map(|task| runtime.block_on(task).expect("nobody who asks panics"))
        .collect();
    Slice {
        per_second: millis.len() as f64 / begun.elapsed().as_secs_f64(),
        cpu: scene.cpu().each_since(before, millis.len()),
        p99_millis: Samples::new(millis).quantile(0.99),
    }
}

/// Asks until the end; how long each answer took.
async fn ask_on<A: Asker>(
    mut wire: Wire,
    mut asker: A,
    end: Instant,
    mut due: Instant,
    pace: Option<Duration>,
) -> Vec<f64> {
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
