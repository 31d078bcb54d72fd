//! Turns: 64 tasks of one process on one name, with no work inside.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::contender::Contender;
use crate::contest::{self, Contest, Window};
use crate::ours::{HandOff, Ours};
use crate::peers::rlock::Rlock;
use crate::peers::rslock::Rslock;
use crate::rounds::{Entry, Results, interleave};
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const TASKS: usize = 64;
/// Long enough for a thousand turns of each task wherever a turn takes no round trip.
const LENGTH: Duration = Duration::from_millis(1_500);
/// Until all tasks stand in line.
const WARM_UP: Duration = Duration::from_millis(200);

pub fn measure(setting: &Setting) -> Vec<Row> {
    let url = setting.url();
    let runtime = two_workers();
    let on = runtime.block_on(Ours::connect(&url, HandOff::On));
    let off = runtime.block_on(Ours::connect(&url, HandOff::Off));
    let rslock = Rslock::connect(&url);
    let rlock = runtime.block_on(Rlock::connect(&url));
    let entries = vec![
        Entry::new("hand-off off", || run(&runtime, &off)),
        Entry::new("hand-off on", || run(&runtime, &on)),
        Entry::new("rslock", || run(&runtime, &rslock)),
        Entry::new("rlock", || run(&runtime, &rlock)),
    ];
    let results = interleave("turns", setting.rounds, entries);
    let mut rows = with_hand_off(&results);
    rows.extend(without_hand_off(&results));
    rows
}

fn run(runtime: &Runtime, contender: &impl Contender) -> Contest {
    let window = Window::after(WARM_UP, LENGTH);
    runtime.block_on(contest::run(contender, "turns", TASKS, window))
}

fn with_hand_off(results: &Results<Contest>) -> Vec<Row> {
    let turns = |label: &str| results.samples(label, Contest::turns_per_second);
    let ours = turns("hand-off on");
    let row = |reference: &str, target| {
        let what = "turns/s, 64 tasks, one name, hand-off on";
        Row::ratio(
            what,
            (&ours, Unit::PerSecond),
            (reference, &turns(reference)),
            target,
        )
    };
    let shares = results.samples("hand-off on", Contest::shares);
    vec![
        row("hand-off off", Target::AtLeast(40.0)),
        row("rslock", Target::AtLeast(50.0)),
        row("rlock", Target::None),
        Row::figure(
            "– most turns of a task by the fewest",
            (&shares, Unit::Times),
            Target::AtMost(1.05),
        ),
        waits(results, "hand-off on", 50.0),
        waits(results, "hand-off on", 99.0),
        waits(results, "hand-off on", 99.9),
    ]
}

fn without_hand_off(results: &Results<Contest>) -> Vec<Row> {
    let changes = |label: &str| results.samples(label, Contest::changes_per_second);
    let p99 = |label: &str| results.samples(label, |contest| contest.wait_ms(99.0));
    let row = |reference: &str, target| {
        let what = "changes of holder/s, 64 tasks, hand-off off";
        let ours = changes("hand-off off");
        Row::ratio(
            what,
            (&ours, Unit::PerSecond),
            (reference, &changes(reference)),
            target,
        )
    };
    let shares: Samples = results.samples("hand-off off", Contest::shares);
    vec![
        row("rslock", Target::AtLeast(12.0)),
        row("rlock", Target::None),
        Row::ratio(
            "– p99 wait",
            (&p99("hand-off off"), Unit::Millis),
            ("rslock", &p99("rslock")),
            Target::AtMost(0.1),
        ),
        Row::figure(
            "– most turns of a task by the fewest",
            (&shares, Unit::Times),
            Target::None,
        ),
        waits(results, "hand-off off", 50.0),
        waits(results, "hand-off off", 99.9),
    ]
}

fn waits(results: &Results<Contest>, label: &str, percentile: f64) -> Row {
    let waits = results.samples(label, |contest| contest.wait_ms(percentile));
    let what = format!("– p{percentile} wait");
    Row::figure(&what, (&waits, Unit::Millis), Target::None)
}
