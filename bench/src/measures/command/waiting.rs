//! Waiting: 1 000 `tenure run` processes want one name, while nothing changes and afterwards.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure_testkit::{RedisServer, eventually};

use super::tenure;
use crate::progress;
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const PROCESSES: usize = 1_000;
const WHAT: &str = "commands/s of 1 000 waiting `tenure run`, nothing changes";
/// At most, of each process.
const CONNECTIONS: usize = 4;
const NAME: &str = "wanted";
const QUEUE: &str = "tenure:queue:{wanted}";
/// Between two starts, so that the order in which they are started is one.
const START_PAUSE: Duration = Duration::from_millis(10);
/// Until what began with the last start is over.
const SETTLE: Duration = Duration::from_secs(15);
const LENGTH: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_mins(5);

/// Processes that end with this.
struct Crowd(Vec<Child>);

/// What was seen while nothing changed.
struct Rest {
    commands_per_second: f64,
    mebibytes_each: f64,
}

pub fn measure(_: &Setting) -> Vec<Row> {
    // Of its own: thousands of connections are no setting for other measures.
    let server = RedisServer::builder().config("maxclients", "10000").start();
    if room(&server) < PROCESSES * CONNECTIONS {
        let why = "the server may not have so many connections: raise `ulimit -n`";
        return vec![Row::missing(WHAT, why)];
    }
    let order = tempfile::NamedTempFile::new().expect("a file can be made");
    let runtime = two_workers();
    let client = runtime.block_on(Tenure::connect(server.url()));
    let client = client.expect("the server is there");
    let guard = runtime.block_on(client.lock(NAME).acquire());
    let guard = guard.expect("nobody has it");
    let mut crowd = Crowd::gather(&server, order.path());
    let rest = rest(&server, &crowd);
    progress::tell("command_waiters: one after the other");
    let begun = Instant::now();
    runtime.block_on(guard.release()).expect("it was held");
    crowd.wait_for_all();
    let took = begun.elapsed().as_secs_f64();
    let served = fs::read_to_string(order.path()).expect("they wrote it");
    let served: Vec<usize> = served
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    assert_eq!(served.len(), PROCESSES, "each has had it once");
    show(&rest, overtaken_percent(&served), took)
}

fn show(rest: &Rest, overtaken: f64, took: f64) -> Vec<Row> {
    let row = |what: &str, figure: f64, unit, target| {
        Row::figure(what, (&Samples::new([figure]), unit), target)
    };
    vec![
        row(
            WHAT,
            rest.commands_per_second,
            Unit::PerSecond,
            Target::None,
        ),
        row(
            "– memory of each, its part of what is shared",
            rest.mebibytes_each,
            Unit::Mebibytes,
            Target::None,
        ),
        row(
            "– pairs that got it in another order than they were started",
            overtaken,
            Unit::Percent,
            Target::None,
        ),
        row("– until all had it", took, Unit::Seconds, Target::None),
    ]
}

/// How many connections the server takes: fewer than asked for, if it may not open enough files.
fn room(server: &RedisServer) -> usize {
    let answer = server.client().command(&["CONFIG", "GET", "maxclients"]);
    let max = answer.array().get(1).map(|max| max.text().parse());
    max.and_then(Result::ok).unwrap_or(0)
}

impl Crowd {
    /// Starts them one after the other, and waits until all stand in the queue.
    fn gather(server: &RedisServer, order: &Path) -> Self {
        progress::tell("command_waiters: 1 000 processes");
        let (url, order) = (server.url(), order.to_str().expect("a path in UTF-8"));
        let mut crowd = Self(Vec::with_capacity(PROCESSES));
        for number in 0..PROCESSES {
            let number = number.to_string();
            let script = "echo $0 >> $1";
            let mut command = tenure(&["run", "--url", &url, NAME, "--"]);
            command.args(["sh", "-c", script, &number, order]);
            let child = command.stdin(Stdio::null()).spawn();
            crowd.0.push(child.expect("processes can be started"));
            thread::sleep(START_PAUSE);
        }
        let mut redis = server.client();
        let waiting = || {
            let waiting = redis.command(&["ZCARD", QUEUE]).int();
            usize::try_from(waiting).is_ok_and(|waiting| waiting == PROCESSES)
        };
        assert!(eventually(PATIENCE, waiting), "not all stand in the queue");
        crowd
    }

    fn wait_for_all(&mut self) {
        for child in &mut self.0 {
            let status = child.wait().expect("it can be waited for");
            assert!(status.success(), "a waiter ended with {status}");
        }
    }
}

/// Whoever is left when a measure fails must not wait for ever.
impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn rest(server: &RedisServer, crowd: &Crowd) -> Rest {
    progress::tell("command_waiters: nothing changes");
    thread::sleep(SETTLE);
    let (before, begun) = (commands(server), Instant::now());
    thread::sleep(LENGTH);
    let after = commands(server);
    let seconds = begun.elapsed().as_secs_f64();
    let memory: f64 = crowd.0.iter().map(|child| mebibytes(child.id())).sum();
    Rest {
        commands_per_second: (after - before) as f64 / seconds,
        mebibytes_each: memory / crowd.0.len() as f64,
    }
}

/// How many commands the server has carried out, without those of the kit.
fn commands(server: &RedisServer) -> u64 {
    let stats = server.client().command(&["INFO", "commandstats"]);
    let lines = stats.text().lines().filter(|line| {
        let is_ours = ["cmdstat_info:", "cmdstat_auth:", "cmdstat_hello:"];
        !is_ours.iter().any(|name| line.starts_with(name))
    });
    let calls = lines.filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
    calls.filter_map(|calls| calls.parse::<u64>().ok()).sum()
}

/// What a process has of the memory, what it shares divided by who shares it.
fn mebibytes(pid: u32) -> f64 {
    let told = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.unwrap_or(f64::NAN) / 1_024.0
}

/// How many of a hundred pairs were served the other way round.
fn overtaken_percent(served: &[usize]) -> f64 {
    let pairs = served.len() * served.len().saturating_sub(1) / 2;
    let overtaken = |place: usize| {
        let later = &served[place + 1..];
        later.iter().filter(|other| **other < served[place]).count()
    };
    let overtaken: usize = (0..served.len()).map(overtaken).sum();
    overtaken as f64 * 100.0 / pairs.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_changed_places_are_counted() {
        let near = |served: &[usize], percent: f64| {
            let found = overtaken_percent(served);
            assert!((found - percent).abs() < 1e-9, "{found}");
        };
        near(&[0, 1, 2, 3], 0.0);
        near(&[3, 2, 1, 0], 100.0);
        near(&[1, 0, 2], 100.0 / 3.0);
    }
}
