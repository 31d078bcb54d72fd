//! Wake: from a release in one process to the guard in another that waits.
//!
//! Two processes pass one lock back and forth. Each holds it for a moment, so that the other
//! certainly waits, then writes down when it called `release`; the other writes down when it got
//! its guard, on the same clock. The lock travels every 2 ms, so every hop must wake an idle core
//! first; a `PING` as often is the reference that pays the same, one `PING` after the other is
//! shown as well. The peers do not take part: whoever polls is overtaken by the one that has just
//! released, and what would be measured is not a wake-up.

use std::time::Duration;

use tenure_testkit::ClientProcess;
use tokio::runtime::Runtime;

use crate::child::{self, PATIENCE};
use crate::clock::monotonic_ns;
use crate::contender::Contender;
use crate::floor::{Floor, Nagle};
use crate::ours::{HandOff, Ours};
use crate::rounds::{Entry, interleave};
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const NAME: &str = "wake";
/// How long each holds the lock.
const HOLD: Duration = Duration::from_millis(2);
const LENGTH: Duration = Duration::from_secs(1);
const PINGS: usize = 300;

pub fn measure(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let floor = runtime.block_on(Floor::connect(&setting.url(), Nagle::Off));
    let entries = vec![
        Entry::new("PING", || ping(&runtime, &floor, Duration::ZERO)),
        Entry::new("PING, paced", || ping(&runtime, &floor, HOLD)),
        Entry::new("ours", || run(setting)),
    ];
    let results = interleave("wake", setting.rounds, entries);
    let named = |label: &str| results.samples(label, |micros| *micros);
    let ours = named("ours");
    let row = |label: &str, reference: &str, target| {
        let what = "release in one process → held in another, p50";
        Row::ratio(
            what,
            (&ours, Unit::Micros),
            (label, &named(reference)),
            target,
        )
    };
    vec![
        row("PING every 2 ms", "PING, paced", Target::AtMost(3.5)),
        row("PING after PING", "PING", Target::None),
    ]
}

/// The median round trip in microseconds.
fn ping(runtime: &Runtime, floor: &Floor, pause: Duration) -> f64 {
    let floor = floor.clone();
    let trips = runtime.spawn(async move {
        let mut trips = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let sent = monotonic_ns();
            floor.ping().await;
            trips.push((monotonic_ns() - sent) as f64 / 1e3);
        }
        trips
    });
    let trips = runtime.block_on(trips).expect("the server answers");
    Samples::new(trips).median()
}

/// The median way of the lock from one process to the other, in microseconds.
fn run(setting: &Setting) -> f64 {
    let pair = [(); 2].map(|()| child::spawn("wake", &[setting.url()]));
    pair.iter().for_each(child::await_ready);
    for child in &pair {
        child.send_line("go");
    }
    let mut holds: Vec<Hold> = Vec::new();
    for (process, child) in pair.iter().enumerate() {
        holds.extend(receive(child, process));
    }
    holds.sort_by_key(|hold| hold.granted);
    let ways = holds.windows(2).filter_map(|next| {
        let (from, to) = (next[0], next[1]);
        (from.process != to.process).then(|| to.granted.saturating_sub(from.released) as f64 / 1e3)
    });
    Samples::new(ways).median()
}

/// When a process had the lock, in nanoseconds of the common clock.
#[derive(Clone, Copy)]
struct Hold {
    process: usize,
    granted: u64,
    released: u64,
}

fn receive(child: &ClientProcess, process: usize) -> Vec<Hold> {
    let numbers = child::split(&child.expect_line(PATIENCE));
    let hold = |times: &[u64]| Hold {
        process,
        granted: times[0],
        released: times[1],
    };
    numbers.chunks(2).map(hold).collect()
}

/// The child's side: takes the lock, holds it, releases it, over and over.
pub fn child(arguments: &[String]) {
    let [url] = arguments else {
        panic!("a process that is woken takes a url");
    };
    let runtime = two_workers();
    let ours = runtime.block_on(Ours::connect(url, HandOff::On));
    child::ready();
    let end = monotonic_ns() + u64::try_from(LENGTH.as_nanos()).expect("a short time");
    let times = runtime.spawn(async move {
        let mut times = Vec::new();
        while monotonic_ns() < end {
            let held = ours.acquire(NAME).await;
            times.push(monotonic_ns());
            tokio::time::sleep(HOLD).await;
            times.push(monotonic_ns());
            ours.release(held).await;
        }
        times
    });
    let times = runtime.block_on(times).expect("the lock works");
    child::tell(&child::join(times));
}
