//! Kept leases: one task that acquires and releases one lock that nobody else wants.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::clock::own_cpu;
use crate::contender::Contender;
use crate::ours::Ours;
use crate::peers::rslock::Rslock;
use crate::rounds::{Entry, interleave_often};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

const NAME: &str = "kept";
/// How long everybody runs at a time, and how often per round.
const SLICE: Duration = Duration::from_millis(100);
const SLICES: usize = 5;
/// How long everybody runs before the first round: among other things, until our client hears who
/// wants its leases.
const WARM_UP: Duration = Duration::from_millis(300);
/// For how long leases are kept: what another library may have to wait.
const KEEP: Duration = Duration::from_millis(100);

/// How fast pairs are, and what one costs.
struct Pace {
    rate: f64,
    client_us: f64,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let url = setting.url();
    let runtime = two_workers();
    let kept = runtime.block_on(Ours::connect_keeping(&url, KEEP));
    let ours = runtime.block_on(Ours::connect_by_default(&url));
    let rslock = Rslock::connect(&url);
    run(&runtime, &kept, WARM_UP);
    run(&runtime, &ours, WARM_UP);
    run(&runtime, &rslock, WARM_UP);
    let entries = vec![
        Entry::new("kept", || pace(&runtime, &kept)),
        Entry::new("ours", || pace(&runtime, &ours)),
        Entry::new("rslock", || pace(&runtime, &rslock)),
    ];
    let results = interleave_often("kept", setting.rounds, SLICES, entries);
    let rate = |label: &str| results.samples(label, |pace| pace.rate).mean_of(SLICES);
    let cpu = |label: &str| {
        results
            .samples(label, |pace| pace.client_us)
            .mean_of(SLICES)
    };
    let row = |reference: &str, target| {
        let what = "pairs/s, 1 task, one name, leases kept for 100 ms";
        let (kept, its) = (rate("kept"), rate(reference));
        Row::ratio(what, (&kept, Unit::PerSecond), (reference, &its), target)
    };
    let (ours, its) = (cpu("kept"), cpu("rslock"));
    let costs = "– client CPU per pair";
    vec![
        row("rslock", Target::AtLeast(50.0)),
        row("ours", Target::None),
        Row::ratio(costs, (&ours, Unit::Micros), ("rslock", &its), Target::None),
    ]
}

fn pace(runtime: &Runtime, contender: &impl Contender) -> Pace {
    let client = own_cpu();
    let (pairs, took) = run(runtime, contender, SLICE);
    Pace {
        rate: pairs / took.as_secs_f64(),
        client_us: (own_cpu() - client).as_secs_f64() * 1e6 / pairs,
    }
}

/// How many pairs one task makes in this time, and how long it took. A kept lease is let go before the next contender
/// begins.
fn run(runtime: &Runtime, contender: &impl Contender, length: Duration) -> (f64, Duration) {
    let contender = contender.clone();
    let pairs = runtime.spawn(async move {
        let begun = Instant::now();
        let mut count = 0_u32;
        while begun.elapsed() < length {
            let held = contender.acquire(NAME).await;
            contender.release(held).await;
            count += 1;
        }
        (f64::from(count), begun.elapsed())
    });
    let made = runtime.block_on(pairs).expect("no task panics");
    std::thread::sleep(KEEP * 2);
    made
}
