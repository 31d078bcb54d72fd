//! Starting: `tenure run NAME -- true` beside `flock FILE true` and `redis-cli ping`.

use std::process::Command;
use std::time::Instant;

use super::{output, tenure};
use crate::rounds::{Entry, interleave_often};
use crate::setting::Setting;
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

/// How often each is started per round.
const STARTS: usize = 20;
/// GNU time: it tells the peak memory of what it ran, which nobody else does without `unsafe`.
const TIME: &str = "/usr/bin/time";

pub fn measure(setting: &Setting) -> Vec<Row> {
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    let (url, port) = (setting.url(), setting.server.port().to_string());
    let ours = || tenure(&["run", "--url", &url, "command", "--", "true"]);
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(file.path()).arg("true");
        command
    };
    let ping = || {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port, "ping"]);
        command
    };
    let entries = vec![
        Entry::new("redis-cli ping", || millis(ping())),
        Entry::new("flock", || millis(flock())),
        Entry::new("ours", || millis(ours())),
    ];
    let results = interleave_often("command", setting.rounds, STARTS, entries);
    // The median of each round: a start that was disturbed says nothing.
    let named = |label: &str| results.samples(label, |millis| *millis).median_of(STARTS);
    let (mine, floor) = (named("ours"), named("redis-cli ping"));
    let what = "`tenure run NAME -- true`, wall time";
    let beside = |label: &str| {
        Row::ratio(
            what,
            (&mine, Unit::Millis),
            (label, &named(label)),
            Target::None,
        )
    };
    let mut rows = vec![beside("redis-cli ping"), beside("flock")];
    rows.push(Row::figure(
        "– more than `redis-cli ping`",
        (&mine.less(&floor), Unit::Millis),
        Target::AtMost(10.0),
    ));
    rows.extend(memory(setting.rounds, [ours(), flock(), ping()]));
    rows
}

/// How long it takes from its start to its end.
fn millis(mut command: Command) -> f64 {
    let begun = Instant::now();
    output(&mut command);
    begun.elapsed().as_secs_f64() * 1e3
}

/// The peak memory of the greatest process of each.
fn memory(rounds: usize, [ours, flock, ping]: [Command; 3]) -> Vec<Row> {
    let what = "– peak memory of its greatest process";
    if !std::path::Path::new(TIME).is_file() {
        return vec![Row::missing(what, "GNU time is not installed")];
    }
    let peaks = |command: &Command| Samples::new((0..rounds).map(|_| peak_mebibytes(command)));
    let mine = peaks(&ours);
    let beside = |label: &str, its: &Command| {
        let its = peaks(its);
        Row::ratio(what, (&mine, Unit::Mebibytes), (label, &its), Target::None)
    };
    vec![
        Row::figure(what, (&mine, Unit::Mebibytes), Target::AtMost(20.0)),
        beside("flock", &flock),
        beside("redis-cli ping", &ping),
    ]
}

fn peak_mebibytes(command: &Command) -> f64 {
    let report = tempfile::NamedTempFile::new().expect("a file can be made");
    let mut timed = Command::new(TIME);
    timed.args(["-f", "%M", "-o"]).arg(report.path());
    timed.arg(command.get_program()).args(command.get_args());
    output(&mut timed);
    let told = std::fs::read_to_string(report.path()).expect("time has written it");
    let kibibytes: f64 = told.trim().parse().expect("time tells a number");
    kibibytes / 1_024.0
}
