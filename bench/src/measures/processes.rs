//! Processes: 4 processes with 16 tasks each on one name, with no work inside.

use std::time::Duration;

use tenure_testkit::ClientProcess;

use crate::child::{self, PATIENCE};
use crate::clock::{instant_at, monotonic_ns};
use crate::contest::{self, Contest, Window};
use crate::ours::{HandOff, Ours};
use crate::rounds::{Entry, Results, interleave};
use crate::setting::{Setting, two_workers};
use crate::table::{Row, Target, Unit};

const PROCESSES: usize = 4;
const TASKS: usize = 16;
const NAME: &str = "processes";
const LENGTH: Duration = Duration::from_millis(1_500);
/// Until all tasks of all processes stand in line.
const WARM_UP: Duration = Duration::from_millis(300);

/// All processes together.
struct Fleet {
    all: Contest,
    /// Each process's part of the turns, in per cent.
    parts: Vec<f64>,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let entries = vec![
        Entry::new("hand-off off", || run(setting, HandOff::Off)),
        Entry::new("hand-off on", || run(setting, HandOff::On)),
    ];
    show(&interleave("processes", setting.rounds, entries))
}

fn show(results: &Results<Fleet>) -> Vec<Row> {
    let turns = |label: &str| results.samples(label, |fleet| fleet.all.turns_per_second());
    let part = |choose: fn(f64, f64) -> f64, from: f64| {
        let parts = |fleet: &Fleet| fleet.parts.iter().copied().fold(from, choose);
        results.samples("hand-off on", parts)
    };
    let wait = |label: &str, percentile: f64, target| {
        let waits = results.samples(label, |fleet| fleet.all.wait_ms(percentile));
        let what = format!("– p{percentile} wait, {label}");
        Row::figure(&what, (&waits, Unit::Millis), target)
    };
    vec![
        Row::ratio(
            "turns/s, 4 processes × 16 tasks, one name",
            (&turns("hand-off on"), Unit::PerSecond),
            ("hand-off off", &turns("hand-off off")),
            Target::AtLeast(20.0),
        ),
        Row::figure(
            "– smallest part of a process",
            (&part(f64::min, 100.0), Unit::Percent),
            Target::AtLeast(20.0),
        ),
        Row::figure(
            "– greatest part of a process",
            (&part(f64::max, 0.0), Unit::Percent),
            Target::AtMost(30.0),
        ),
        wait("hand-off on", 50.0, Target::None),
        wait("hand-off on", 99.0, Target::None),
        wait("hand-off on", 99.9, Target::AtMost(50.0)),
        wait("hand-off off", 99.9, Target::None),
    ]
}

fn run(setting: &Setting, hand_off: HandOff) -> Fleet {
    let arguments = [setting.url(), hand_off.word().to_owned()];
    let children: Vec<ClientProcess> = (0..PROCESSES)
        .map(|_| child::spawn("contest", &arguments))
        .collect();
    children.iter().for_each(child::await_ready);
    let begin = monotonic_ns() + nanos(WARM_UP);
    for child in &children {
        child.send_line(&child::join([begin]));
    }
    let mut fleet = Fleet {
        all: Contest::empty(0, LENGTH),
        parts: Vec::new(),
    };
    for child in &children {
        let contest = receive(child);
        fleet.parts.push(contest.turns() as f64);
        fleet.all.turns.extend(&contest.turns);
        fleet.all.waits.join(&contest.waits);
    }
    let turns = fleet.all.turns() as f64;
    for part in &mut fleet.parts {
        *part *= 100.0 / turns;
    }
    fleet
}

/// The child's side: takes part in the contest with 16 tasks.
pub fn child(arguments: &[String]) {
    let [url, hand_off] = arguments else {
        panic!("a contestant takes a url and `on` or `off`");
    };
    let runtime = two_workers();
    let ours = runtime.block_on(Ours::connect(url, HandOff::of(hand_off)));
    let begin = child::split(&child::ready())[0];
    let window = Window {
        begin: instant_at(begin),
        end: instant_at(begin + nanos(LENGTH)),
    };
    let contest = runtime.block_on(contest::run(&ours, NAME, TASKS, window));
    child::tell(&child::join(contest.turns));
    let waits = contest.waits.counts();
    let waits = waits.flat_map(|(wait, count)| [nanos(wait), count]);
    child::tell(&child::join(waits));
}

fn receive(child: &ClientProcess) -> Contest {
    let mut contest = Contest::empty(0, LENGTH);
    contest.turns = child::split(&child.expect_line(PATIENCE));
    for wait in child::split(&child.expect_line(PATIENCE)).chunks(2) {
        contest
            .waits
            .note_many(Duration::from_nanos(wait[0]), wait[1]);
    }
    contest
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).expect("a short time")
}
