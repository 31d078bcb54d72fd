//! Pairs per second: one acquire and one release of a free lock, each task on a name of its own.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::allocations;
use crate::clock::{main_thread_cpu_ns, own_cpu};
use crate::contender::Contender;
use crate::floor::{Floor, Nagle};
use crate::ours::{HandOff, Ours};
use crate::peers::rlock::Rlock;
use crate::peers::rslock::Rslock;
use crate::rounds::{Entry, Results, interleave_often};
use crate::setting::{Setting, one_thread, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

/// How long everybody runs at a time, and how often per round: what disturbs one slice rarely
/// disturbs all of them.
const SLICE: Duration = Duration::from_millis(100);
const SLICES: usize = 5;
/// How long everybody runs before the first round: connections, scripts, caches.
const WARM_UP: Duration = Duration::from_millis(100);
/// "Many tasks": as many as a busy service has requests under way.
const MANY: usize = 64;

/// "Very many tasks".
const CROWD: usize = 512;

/// What is aimed at beside the floor and beside `rslock`.
struct Aims {
    floor: Target,
    rslock: Target,
}

/// How fast pairs are, and what one costs.
struct Pace {
    rate: f64,
    client_us: f64,
    server_us: f64,
    /// Of one pair, 99 of 100.
    p99_us: f64,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let two = Field::open(two_workers(), setting);
    let one = Field::open(one_thread(), setting);
    let mut rows = Vec::new();
    for (tasks, aims) in [
        (1, aims(Target::AtLeast(0.9), Target::AtLeast(0.95))),
        (MANY, aims(Target::AtLeast(1.3), Target::AtLeast(1.8))),
        (CROWD, aims(Target::None, Target::AtLeast(2.0))),
    ] {
        let title = format!("pairs, number of tasks {tasks}");
        let entries = entries(&two, &one, tasks);
        let results = interleave_often(&title, setting.rounds, SLICES, entries);
        rows.extend(show_rates(tasks, &results, &aims));
        if tasks == MANY {
            rows.extend(show_costs(&results));
            rows.extend(two.show_allocations());
        }
    }
    rows
}

fn aims(floor: Target, rslock: Target) -> Aims {
    Aims { floor, rslock }
}

fn show_rates(tasks: usize, results: &Results<Pace>, aims: &Aims) -> Vec<Row> {
    let named = |label: &str| results.samples(label, |pace| pace.rate).mean_of(SLICES);
    let what = if tasks == 1 {
        "pairs/s, 1 task".to_owned()
    } else {
        format!("pairs/s, {tasks} tasks on distinct names")
    };
    let row = |what: &str, ours: &str, reference: &str, aim| {
        let (ours, its) = (named(ours), named(reference));
        Row::ratio(what, (&ours, Unit::PerSecond), (reference, &its), aim)
    };
    let given = format!("{what}, runtime given");
    let on_one_thread = format!("{what}, caller on `current_thread`, runtime given");
    vec![
        row(&what, "ours", "floor", aims.floor),
        row(&what, "ours", "floor with Nagle", Target::None),
        row(&what, "ours", "rslock", aims.rslock),
        row(&what, "ours", "rlock", Target::None),
        row(&given, "ours, runtime given", "floor", Target::None),
        row(&given, "ours, runtime given", "rslock", Target::None),
        row(
            &on_one_thread,
            "ours, one thread",
            "floor, one thread",
            Target::None,
        ),
    ]
}

fn show_costs(results: &Results<Pace>) -> Vec<Row> {
    let client = |label: &str| {
        results
            .samples(label, |pace| pace.client_us)
            .mean_of(SLICES)
    };
    let server = |label: &str| {
        results
            .samples(label, |pace| pace.server_us)
            .mean_of(SLICES)
    };
    let p99 = |label: &str| results.samples(label, |pace| pace.p99_us).median_of(SLICES);
    let by_client = "– client CPU per pair";
    let by_server = "– server CPU per pair, system calls included";
    let row = |what: &str, ours, reference: &str, its, aim| {
        Row::ratio(what, (&ours, Unit::Micros), (reference, &its), aim)
    };
    let (ours, given) = (client("ours"), client("ours, runtime given"));
    vec![
        row(
            by_client,
            ours,
            "rslock",
            client("rslock"),
            Target::AtMost(0.5),
        ),
        row(
            "– the same, runtime given",
            given,
            "rslock",
            client("rslock"),
            Target::None,
        ),
        row(
            by_server,
            server("ours"),
            "floor",
            server("floor"),
            Target::AtMost(0.75),
        ),
        row(
            by_server,
            server("ours"),
            "rslock",
            server("rslock"),
            Target::None,
        ),
        row(
            "– p99 of a pair",
            p99("ours"),
            "rslock",
            p99("rslock"),
            Target::AtMost(1.0),
        ),
    ]
}

fn entries<'a>(two: &'a Field, one: &'a Field, tasks: usize) -> Vec<Entry<'a, Pace>> {
    vec![
        Entry::new("floor", move || two.pace(&two.floor, tasks)),
        Entry::new("ours", move || two.pace(&two.ours, tasks)),
        Entry::new("ours, runtime given", move || {
            two.pace(&two.ours_on_runtime, tasks)
        }),
        Entry::new("floor with Nagle", move || {
            two.pace(&two.floor_with_nagle, tasks)
        }),
        Entry::new("rslock", move || two.pace(&two.rslock, tasks)),
        Entry::new("rlock", move || two.pace(&two.rlock, tasks)),
        Entry::new("floor, one thread", move || one.pace(&one.floor, tasks)),
        Entry::new("ours, one thread", move || {
            one.pace(&one.ours_on_runtime, tasks)
        }),
    ]
}

/// Everybody, connected on one runtime.
struct Field {
    floor: Floor,
    floor_with_nagle: Floor,
    ours: Ours,
    ours_on_runtime: Ours,
    rslock: Rslock,
    rlock: Rlock,
    runtime: Runtime,
    /// The server's process.
    server: u32,
}

impl Field {
    fn open(runtime: Runtime, setting: &Setting) -> Self {
        let url = &setting.url();
        let field = Self {
            floor: runtime.block_on(Floor::connect(url, Nagle::Off)),
            floor_with_nagle: runtime.block_on(Floor::connect(url, Nagle::On)),
            ours: runtime.block_on(Ours::connect_by_default(url)),
            ours_on_runtime: runtime.block_on(Ours::connect(url, HandOff::On)),
            rslock: Rslock::connect(url),
            rlock: runtime.block_on(Rlock::connect(url)),
            runtime,
            server: setting.server.pid(),
        };
        field.run(&field.floor, CROWD, WARM_UP);
        field.run(&field.floor_with_nagle, CROWD, WARM_UP);
        field.run(&field.ours, CROWD, WARM_UP);
        field.run(&field.ours_on_runtime, CROWD, WARM_UP);
        field.run(&field.rslock, CROWD, WARM_UP);
        field.run(&field.rlock, CROWD, WARM_UP);
        field
    }

    fn pace(&self, contender: &impl Contender, tasks: usize) -> Pace {
        let (client, server) = (own_cpu(), main_thread_cpu_ns(self.server));
        let begun = Instant::now();
        let mut times = self.run(contender, tasks, SLICE);
        let pairs = times.len() as f64;
        let took = begun.elapsed().as_secs_f64();
        let client = own_cpu() - client;
        let server = main_thread_cpu_ns(self.server) - server;
        Pace {
            rate: pairs / took,
            client_us: client.as_secs_f64() * 1e6 / pairs,
            server_us: server as f64 / 1e3 / pairs,
            p99_us: p99_us(&mut times),
        }
    }

    /// Counted apart from the time, which counting would change.
    fn show_allocations(&self) -> Vec<Row> {
        let ours = self.allocations(&self.ours);
        let row = |reference: &str, its: &Samples, target| {
            let what = "– allocations per pair";
            Row::ratio(what, (&ours, Unit::Count), (reference, its), target)
        };
        vec![
            Row::figure(
                "– allocations per pair",
                (&ours, Unit::Count),
                Target::AtMost(10.0),
            ),
            row("floor", &self.allocations(&self.floor), Target::None),
            row("rslock", &self.allocations(&self.rslock), Target::None),
        ]
    }

    fn allocations(&self, contender: &impl Contender) -> Samples {
        let (times, count) = allocations::count(|| self.run(contender, MANY, SLICE));
        Samples::new([count as f64 / times.len() as f64])
    }

    /// How long each pair took that `tasks` tasks make together.
    fn run(&self, contender: &impl Contender, tasks: usize, length: Duration) -> Vec<Duration> {
        let end = Instant::now() + length;
        let task = |number| self.runtime.spawn(pairs(contender.clone(), number, end));
        let running: Vec<_> = (0..tasks).map(task).collect();
        let times = running.into_iter().map(|task| self.runtime.block_on(task));
        times
            .flat_map(|times| times.expect("no task panics"))
            .collect()
    }
}

/// How long each pair took that one task makes until `end`.
async fn pairs(contender: impl Contender, number: usize, end: Instant) -> Vec<Duration> {
    let name = format!("pairs:{number}");
    let mut times = Vec::new();
    let mut begun = Instant::now();
    while begun < end {
        let held = contender.acquire(&name).await;
        contender.release(held).await;
        let done = Instant::now();
        times.push(done - begun);
        begun = done;
    }
    times
}

fn p99_us(times: &mut [Duration]) -> f64 {
    let at = times.len() * 99 / 100;
    if at >= times.len() {
        return f64::NAN;
    }
    let (_, p99, _) = times.select_nth_unstable(at);
    p99.as_secs_f64() * 1e6
}
