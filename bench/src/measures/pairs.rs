//! Pairs per second: one acquire and one release of a free lock, each task on a name of its own.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::contender::Contender;
use crate::floor::{Floor, Nagle};
use crate::ours::{HandOff, Ours};
use crate::peers::rlock::Rlock;
use crate::peers::rslock::Rslock;
use crate::rounds::{Entry, Results, interleave_often};
use crate::setting::{Setting, one_thread, two_workers};
use crate::table::{Row, Target, Unit};

/// How long everybody runs at a time, and how often per round: what disturbs one slice rarely
/// disturbs all of them.
const SLICE: Duration = Duration::from_millis(100);
const SLICES: usize = 5;
/// How long everybody runs before the first round: connections, scripts, caches.
const WARM_UP: Duration = Duration::from_millis(100);
/// "Many tasks": as many as a busy service has requests under way.
const MANY: usize = 64;

/// What is aimed at beside the floor and beside `rslock`.
struct Aims {
    floor: Target,
    rslock: Target,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let url = setting.url();
    let two = Field::open(two_workers(), &url);
    let one = Field::open(one_thread(), &url);
    let mut rows = Vec::new();
    for (tasks, aims) in [
        (1, aims(Target::AtLeast(0.85), Target::None)),
        (MANY, aims(Target::AtLeast(0.8), Target::AtLeast(1.0))),
    ] {
        let title = format!("pairs, number of tasks {tasks}");
        let entries = entries(&two, &one, tasks);
        let results = interleave_often(&title, setting.rounds, SLICES, entries);
        rows.extend(show(tasks, &results, &aims));
    }
    rows
}

fn aims(floor: Target, rslock: Target) -> Aims {
    Aims { floor, rslock }
}

fn show(tasks: usize, results: &Results<f64>, aims: &Aims) -> Vec<Row> {
    let named = |label: &str| results.samples(label, |rate| *rate).mean_of(SLICES);
    let (ours, alone) = (named("ours"), named("ours, one thread"));
    let what = if tasks == 1 {
        "pairs/s, 1 task".to_owned()
    } else {
        format!("pairs/s, {tasks} tasks on distinct names")
    };
    let row = |reference: &str, aim| {
        let its = named(reference);
        Row::ratio(&what, (&ours, Unit::PerSecond), (reference, &its), aim)
    };
    let by_default = format!("{what}, settings by default");
    let on_one_thread = format!("{what}, caller on `current_thread`");
    vec![
        row("floor", aims.floor),
        row("floor with Nagle", Target::None),
        row("rslock", aims.rslock),
        row("rlock", Target::None),
        Row::ratio(
            &by_default,
            (&named("ours by default"), Unit::PerSecond),
            ("floor", &named("floor")),
            Target::None,
        ),
        Row::ratio(
            &on_one_thread,
            (&alone, Unit::PerSecond),
            ("floor", &named("floor, one thread")),
            Target::None,
        ),
    ]
}

fn entries<'a>(two: &'a Field, one: &'a Field, tasks: usize) -> Vec<Entry<'a, f64>> {
    vec![
        Entry::new("floor", move || two.rate(&two.floor, tasks)),
        Entry::new("ours", move || two.rate(&two.ours, tasks)),
        Entry::new("ours by default", move || {
            two.rate(&two.ours_by_default, tasks)
        }),
        Entry::new("floor with Nagle", move || {
            two.rate(&two.floor_with_nagle, tasks)
        }),
        Entry::new("rslock", move || two.rate(&two.rslock, tasks)),
        Entry::new("rlock", move || two.rate(&two.rlock, tasks)),
        Entry::new("floor, one thread", move || one.rate(&one.floor, tasks)),
        Entry::new("ours, one thread", move || one.rate(&one.ours, tasks)),
    ]
}

/// Everybody, connected on one runtime.
struct Field {
    floor: Floor,
    floor_with_nagle: Floor,
    ours: Ours,
    ours_by_default: Ours,
    rslock: Rslock,
    rlock: Rlock,
    runtime: Runtime,
}

impl Field {
    fn open(runtime: Runtime, url: &str) -> Self {
        let field = Self {
            floor: runtime.block_on(Floor::connect(url, Nagle::Off)),
            floor_with_nagle: runtime.block_on(Floor::connect(url, Nagle::On)),
            ours: runtime.block_on(Ours::connect(url, HandOff::On)),
            ours_by_default: runtime.block_on(Ours::connect_by_default(url)),
            rslock: Rslock::connect(url),
            rlock: runtime.block_on(Rlock::connect(url)),
            runtime,
        };
        field.run(&field.floor, MANY, WARM_UP);
        field.run(&field.floor_with_nagle, MANY, WARM_UP);
        field.run(&field.ours, MANY, WARM_UP);
        field.run(&field.ours_by_default, MANY, WARM_UP);
        field.run(&field.rslock, MANY, WARM_UP);
        field.run(&field.rlock, MANY, WARM_UP);
        field
    }

    fn rate(&self, contender: &impl Contender, tasks: usize) -> f64 {
        self.run(contender, tasks, SLICE)
    }

    /// Pairs per second of `tasks` tasks together.
    fn run(&self, contender: &impl Contender, tasks: usize, length: Duration) -> f64 {
        let begun = Instant::now();
        let end = begun + length;
        let task = |number| self.runtime.spawn(pairs(contender.clone(), number, end));
        let running: Vec<_> = (0..tasks).map(task).collect();
        let counts = running.into_iter().map(|task| self.runtime.block_on(task));
        let pairs: u64 = counts.map(|count| count.expect("no task panics")).sum();
        pairs as f64 / begun.elapsed().as_secs_f64()
    }
}

/// How many pairs one task makes until `end`.
async fn pairs(contender: impl Contender, number: usize, end: Instant) -> u64 {
    let name = format!("pairs:{number}");
    let mut count = 0;
    while Instant::now() < end {
        let held = contender.acquire(&name).await;
        contender.release(held).await;
        count += 1;
    }
    count
}
