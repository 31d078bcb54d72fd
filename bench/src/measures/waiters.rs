//! Waiters: does a turn cost more when many wait?

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::clock::own_cpu;
use crate::contest::{self, Window};
use crate::ours::{HandOff, Ours};
use crate::rounds::{Entry, interleave};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

const FEW: usize = 100;
const MANY: usize = 10_000;
const LENGTH: Duration = Duration::from_secs(1);
/// Until all of them stand in line.
const WARM_UP: Duration = Duration::from_millis(500);

/// What one turn costs, in microseconds.
struct Cost {
    time: f64,
    cpu: f64,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let runtime = two_workers();
    let ours = runtime.block_on(Ours::connect(&setting.url(), HandOff::On));
    let entries = vec![
        Entry::new("100 waiters", || run(&runtime, &ours, FEW)),
        Entry::new("10 000 waiters", || run(&runtime, &ours, MANY)),
    ];
    let results = interleave("waiters", setting.rounds, entries);
    let row = |what: &str, cost: fn(&Cost) -> f64, target| {
        let (few, many) = (
            results.samples("100 waiters", cost),
            results.samples("10 000 waiters", cost),
        );
        Row::ratio(what, (&many, Unit::Micros), ("100 waiters", &few), target)
    };
    let what = "time per turn, 10 000 waiters on one name";
    vec![
        row(what, |cost| cost.time, Target::AtMost(1.5)),
        row("– client CPU per turn", |cost| cost.cpu, Target::None),
    ]
}

fn run(runtime: &Runtime, ours: &Ours, tasks: usize) -> Cost {
    let window = Window::after(WARM_UP, LENGTH);
    let contest = runtime.spawn({
        let ours = ours.clone();
        async move { contest::run(&ours, "waiters", tasks, window).await }
    });
    // CPU over the window alone: standing in line for the first time is not a turn.
    let cpu = runtime.block_on(async {
        tokio::time::sleep_until(window.begin.into()).await;
        let before = own_cpu();
        tokio::time::sleep_until(window.end.into()).await;
        own_cpu().saturating_sub(before)
    });
    let contest = runtime.block_on(contest).expect("no task panics");
    let turns = contest.turns() as f64;
    Cost {
        time: contest.length.as_secs_f64() * 1e6 / turns,
        cpu: cpu.as_secs_f64() * 1e6 / turns,
    }
}
