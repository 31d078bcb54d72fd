//! Several names at once: the server's CPU for each name, beside that of a single lock.
//!
//! Through the library, one call after the other, so that the round trips of both count.

use tenure::Tenure;
use tokio::runtime::Runtime;

use crate::clock::main_thread_cpu_ns;
use crate::contender::TTL;
use crate::rounds::{Entry, interleave_often};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

/// How many names are locked at a time in one slice, and how often per round.
const NAMES_PER_SLICE: usize = 1_920;
const SLICES: usize = 5;
const COUNTS: [(usize, &str); 3] = [(2, "2 names"), (8, "8 names"), (64, "64 names")];
const SINGLE: &str = "a single lock";

pub fn measure(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let builder = Tenure::builder(setting.url()).ttl(TTL);
    let tenure = runtime.block_on(builder.connect());
    let tenure = tenure.expect("tenure could not connect");
    let server = setting.server.pid();
    let micros = |run: &dyn Fn(&Runtime)| {
        let before = main_thread_cpu_ns(server);
        run(&runtime);
        let used = main_thread_cpu_ns(server) - before;
        used as f64 / 1e3 / NAMES_PER_SLICE as f64
    };
    let single = || micros(&|runtime| runtime.block_on(lock_one_by_one(&tenure)));
    single();
    let mut entries = vec![Entry::new(SINGLE, single)];
    for (count, label) in COUNTS {
        let (tenure, micros) = (&tenure, &micros);
        let several = move || micros(&|runtime| runtime.block_on(lock_together(tenure, count)));
        entries.push(Entry::new(label, several));
    }
    let results = interleave_often("several", setting.rounds, SLICES, entries);
    let named = |label: &str| results.samples(label, |micros| *micros).least_of(SLICES);
    let single = named(SINGLE);
    let row = |(_, label): (usize, &str)| {
        let what = format!("server CPU per name, {label} acquired and released together");
        let ours = named(label);
        let reference = (SINGLE, &single);
        Row::ratio(&what, (&ours, Unit::Micros), reference, Target::AtMost(1.0))
    };
    COUNTS.map(row).into()
}

async fn lock_one_by_one(tenure: &Tenure) {
    for number in 0..NAMES_PER_SLICE {
        let guard = tenure.lock(format!("single:{number}")).acquire().await;
        let released = guard.expect("it is free").release().await;
        released.expect("the server replies");
    }
}

async fn lock_together(tenure: &Tenure, count: usize) {
    let names: Vec<String> = (0..count)
        .map(|number| format!("several:{number}"))
        .collect();
    let locks = tenure.locks(&names);
    for _ in 0..NAMES_PER_SLICE / count {
        let guard = locks.acquire().await.expect("they are free");
        guard.release().await.expect("the server replies");
    }
}
