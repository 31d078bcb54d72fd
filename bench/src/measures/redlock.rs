//! Redlock of five: how much slower than one of the same servers, what a node that hangs costs, and
//! how many clients get on with each other.
//!
//! All servers keep each answer on disk (`appendfsync always`), as a Redlock needs it, the single
//! one too.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::{Guard, Redlock, Released};
use tenure_testkit::RedlockNodes;
use tokio::runtime::{Handle, Runtime};

use crate::contender::{Contender, TTL};
use crate::many::Many;
use crate::ours::{HandOff, Ours};
use crate::peers::rslock::Rslock;
use crate::rounds::{Entry, interleave, interleave_often};
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const NODES: usize = 5;
/// How many pairs a slice of the latency measure has, and how many slices a round.
const PAIRS: usize = 100;
const SLICES: usize = 5;
/// For how long many tasks run at a time.
const SLICE: Duration = Duration::from_millis(300);
const MANY: usize = 64;
/// Clients that want one name at once, and for how long.
const CROWD: usize = 32;
const CROWD_TIME: Duration = Duration::from_secs(3);

/// A Redlock, as a program would use it.
#[derive(Clone)]
struct OurRedlock(Redlock);

impl OurRedlock {
    async fn connect(nodes: &RedlockNodes) -> Self {
        let builder = Redlock::builder(nodes.urls()).ttl(TTL);
        let builder = builder.runtime(Handle::current());
        Self(builder.connect().await.expect("tenure could not connect"))
    }
}

impl Contender for OurRedlock {
    type Held = Guard;

    async fn acquire(&self, name: &str) -> Guard {
        let guard = self.0.lock(name).acquire().await;
        guard.expect("tenure could not acquire")
    }

    async fn release(&self, guard: Guard) {
        let released = guard.release().await.expect("tenure could not release");
        assert_eq!(released, Released::WasHeld, "a lease was lost");
    }
}

fn five_nodes() -> RedlockNodes {
    RedlockNodes::builder().nodes(NODES).start()
}

/// One task, one free lock.
pub fn alone(setting: &Setting) -> Vec<Row> {
    let (runtime, nodes, limping) = (two_workers(), five_nodes(), five_nodes());
    let single = runtime.block_on(Ours::connect(&nodes.node(0).url(), HandOff::On));
    let five = runtime.block_on(OurRedlock::connect(&nodes));
    let hung = runtime.block_on(OurRedlock::connect(&limping));
    for _ in 0..2 {
        pair_us(&runtime, &single);
        pair_us(&runtime, &five);
        pair_us(&runtime, &hung);
    }
    limping.node(NODES - 1).pause();
    let entries = vec![
        Entry::new("single", || pair_us(&runtime, &single)),
        Entry::new("five", || pair_us(&runtime, &five)),
        Entry::new("hung", || pair_us(&runtime, &hung)),
    ];
    let results = interleave_often("redlock, pairs", setting.rounds, SLICES, entries);
    limping.node(NODES - 1).resume();
    let named = |label: &str| results.samples(label, |us| *us).mean_of(SLICES);
    vec![
        Row::ratio(
            "Redlock of 5, free lock, p50 of a pair",
            (&named("five"), Unit::Micros),
            ("one of the five", &named("single")),
            Target::AtMost(2.0),
        ),
        Row::ratio(
            "the same, one of the five hung",
            (&named("hung"), Unit::Micros),
            ("all five well", &named("five")),
            Target::AtMost(1.2),
        ),
    ]
}

/// The median of some pairs, in microseconds.
fn pair_us(runtime: &Runtime, contender: &impl Contender) -> f64 {
    let contender = contender.clone();
    let pairs = async move {
        let mut taken = Vec::with_capacity(PAIRS);
        for _ in 0..PAIRS {
            let begun = Instant::now();
            let held = contender.acquire("redlock:pair").await;
            contender.release(held).await;
            taken.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        Samples::new(taken).median()
    };
    let running = runtime.spawn(pairs);
    runtime.block_on(running).expect("no task panics")
}

/// Many tasks, each on a name of its own.
pub fn many(setting: &Setting) -> Vec<Row> {
    let (runtime, nodes) = (two_workers(), five_nodes());
    let five = runtime.block_on(OurRedlock::connect(&nodes));
    let rslock = Rslock::connect_all(&nodes.urls());
    let many = Many::new(&runtime, (MANY, SLICE), |task| format!("redlock:{task}"));
    let entries = vec![
        Entry::new("ours", || many.pairs_per_second(&five)),
        Entry::new("rslock", || many.pairs_per_second(&rslock)),
    ];
    let results = interleave("redlock, many tasks", setting.rounds, entries);
    let named = |label: &str| results.samples(label, |rate| *rate);
    vec![Row::ratio(
        "Redlock of 5, pairs/s, 64 tasks on distinct names",
        (&named("ours"), Unit::PerSecond),
        ("rslock over the same five", &named("rslock")),
        Target::AtLeast(2.0),
    )]
}

/// What a crowd got: grants per second, p99 wait in ms, the longest time without a grant in ms.
struct Crowd {
    per_second: f64,
    wait_p99_ms: f64,
    gap_ms: f64,
}

/// Clients of their own, as many processes would have, on one name.
pub fn crowd(setting: &Setting) -> Vec<Row> {
    let (runtime, nodes) = (two_workers(), five_nodes());
    let ours: Vec<_> = (0..CROWD)
        .map(|_| runtime.block_on(OurRedlock::connect(&nodes)))
        .collect();
    let peers: Vec<_> = (0..CROWD)
        .map(|_| Rslock::connect_all(&nodes.urls()))
        .collect();
    let entries = vec![
        Entry::new("ours", || compete(&runtime, &ours)),
        Entry::new("rslock", || compete(&runtime, &peers)),
    ];
    let results = interleave("redlock, a crowd", setting.rounds, entries);
    let of = |label: &str, figure: fn(&Crowd) -> f64| results.samples(label, figure);
    let row = |what: &str, unit, figure: fn(&Crowd) -> f64, target| {
        let its = of("rslock", figure);
        Row::ratio(what, (&of("ours", figure), unit), ("rslock", &its), target)
    };
    vec![
        row(
            "32 competitors on 5 nodes, grants/s",
            Unit::PerSecond,
            |it| it.per_second,
            Target::AtLeast(2.0),
        ),
        row(
            "32 competitors on 5 nodes, p99 wait",
            Unit::Millis,
            |it| it.wait_p99_ms,
            Target::AtMost(0.3),
        ),
        Row::figure(
            "32 competitors on 5 nodes, longest time without a grant",
            (&of("ours", |it| it.gap_ms), Unit::Millis),
            Target::AtMost(1_000.0),
        ),
    ]
}

fn compete<C: Contender>(runtime: &Runtime, clients: &[C]) -> Crowd {
    let end = Instant::now() + CROWD_TIME;
    let grants = Arc::new(Mutex::new(vec![(Instant::now(), 0.0)]));
    let mut running = Vec::new();
    for client in clients {
        let (client, grants) = (client.clone(), Arc::clone(&grants));
        running.push(runtime.spawn(async move {
            while Instant::now() < end {
                let asked = Instant::now();
                let held = client.acquire("redlock:crowd").await;
                let granted = Instant::now();
                let wait_ms = (granted - asked).as_secs_f64() * 1e3;
                grants
                    .lock()
                    .expect("no task panics")
                    .push((granted, wait_ms));
                client.release(held).await;
            }
        }));
    }
    for task in running {
        runtime.block_on(task).expect("no task panics");
    }
    let mut grants = grants.lock().expect("no task panicked").clone();
    grants.sort_by_key(|(at, _)| *at);
    let gaps = grants.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let mut waits: Vec<f64> = grants.iter().map(|(_, wait_ms)| *wait_ms).collect();
    waits.sort_by(f64::total_cmp);
    Crowd {
        per_second: grants.len() as f64 / CROWD_TIME.as_secs_f64(),
        wait_p99_ms: waits[waits.len() * 99 / 100],
        gap_ms: gaps.max().unwrap_or_default().as_secs_f64() * 1e3,
    }
}
