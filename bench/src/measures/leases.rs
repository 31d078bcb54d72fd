//! Leases: a million held by one client. Are all renewed in time, and what do they cost it?
//!
//! The client is a process of its own, so that CPU and memory are its own too. Meanwhile the
//! parent asks the server for the time left of leases picked in turn.

use std::time::{Duration, Instant};

use tenure_testkit::{ClientProcess, RedisServer, RespClient};
use tokio::runtime::Runtime;

use crate::child::{self, PATIENCE};
use crate::clock::{own_cpu, own_rss};
use crate::contender::{Contender, TTL};
use crate::ours::{HandOff, Ours};
use crate::progress;
use crate::setting::{Setting, two_workers};
use crate::stats::Samples;
use crate::table::{Row, Target, Unit};

const LEASES: usize = 1_000_000;
const WAITERS: usize = 10_000;
/// Tasks that take the leases.
const TAKERS: usize = 64;
/// One whole ttl: every lease is renewed three times, whenever it was taken.
const PERIOD: Duration = TTL;
/// Leases are watched from their second second on: until that is set up for all.
const SETTLE: Duration = Duration::from_secs(20);
/// The same for the few leases that others wait for.
const SETTLE_FEW: Duration = Duration::from_secs(5);
/// How often leases are looked at, and how many each time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_AT: usize = 200;
/// Coprime to the number of leases, so that each is looked at before any is looked at again.
const STRIDE: usize = 7_919;

/// What holding the leases cost, as the child says it.
struct Held {
    rss_per_lease: f64,
    cpu_percent: f64,
    valid: f64,
    seconds_to_take: f64,
}

pub fn measure(setting: &Setting) -> Vec<Row> {
    let seconds = (PERIOD + SETTLE).as_secs() + 40;
    progress::tell(&format!("leases: {LEASES} leases, about {seconds} s"));
    let (held, least_left) = hold(&setting.server);
    // The holder's process is gone, but its leases are not: they would end during what follows.
    setting.server.client().command(&["FLUSHALL"]);
    let half = TTL.as_secs_f64() / 2.0;
    vec![
        row(
            "1 000 000 leases, ttl 30 s: least time left",
            least_left,
            Unit::Seconds,
            Target::AtLeast(half),
        ),
        row(
            "– still valid after 30 s",
            held.valid,
            Unit::Percent,
            Target::AtLeast(100.0),
        ),
        row(
            "– client CPU, of one core",
            held.cpu_percent,
            Unit::Percent,
            Target::AtMost(60.0),
        ),
        row(
            "– client memory per lease",
            held.rss_per_lease,
            Unit::Bytes,
            Target::AtMost(700.0),
        ),
        row(
            "– time to take them all",
            held.seconds_to_take,
            Unit::Seconds,
            Target::None,
        ),
    ]
}

/// What callers that wait cost their process.
pub fn waiters(setting: &Setting) -> Vec<Row> {
    progress::tell(&format!("waiters_memory: {WAITERS} waiters"));
    let on_one = waiter_bytes(setting, "one");
    let on_many = waiter_bytes(setting, "many");
    setting.server.client().command(&["FLUSHALL"]);
    vec![
        row(
            "memory per waiter, 10 000 on one name",
            on_one,
            Unit::Bytes,
            Target::AtMost(1_024.0),
        ),
        row(
            "memory per waiter, 10 000 on names of their own",
            on_many,
            Unit::Bytes,
            Target::None,
        ),
    ]
}

fn row(what: &str, value: f64, unit: Unit, target: Target) -> Row {
    Row::figure(what, (&Samples::new([value]), unit), target)
}

/// Lets a child hold the leases, and looks at the server meanwhile: the least time left, in
/// seconds.
fn hold(server: &RedisServer) -> (Held, f64) {
    let child = child::spawn("leases", &[server.url()]);
    child::await_ready(&child);
    child.send_line("go");
    assert_eq!(child.expect_line(PATIENCE), "taken");
    let least = least_left(&mut server.client(), &child);
    let figures = child::split(&child.expect_line(PATIENCE));
    let [took, used, valid, memory] = figures[..] else {
        panic!("a holder says four numbers, not `{figures:?}`");
    };
    let held = Held {
        seconds_to_take: took as f64 / 1e6,
        cpu_percent: used as f64 / 1e4 / PERIOD.as_secs_f64(),
        valid: valid as f64 * 100.0 / LEASES as f64,
        rss_per_lease: memory as f64 / LEASES as f64,
    };
    (held, least)
}

fn least_left(server: &mut RespClient, child: &ClientProcess) -> f64 {
    let end = Instant::now() + SETTLE + PERIOD;
    let mut next = 0;
    let mut least = i64::MAX;
    while Instant::now() < end && child.is_running() {
        for _ in 0..LOOK_AT {
            // A lease that is gone answers -2, and is the least of all.
            least = least.min(server.command(&["PTTL", &lease_name(next)]).int());
            next = (next + STRIDE) % LEASES;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    least as f64 / 1e3
}

/// The child's side: takes all leases, keeps them for the period.
pub fn child(arguments: &[String]) {
    let [url] = arguments else {
        panic!("a holder takes a url");
    };
    let runtime = two_workers();
    let ours = runtime.block_on(Ours::connect(url, HandOff::On));
    // Buffers and stacks that are there anyway.
    drop(take(&runtime, &ours, "warm", 1_000));
    child::ready();
    let (empty, begun) = (own_rss(), Instant::now());
    let guards = take(&runtime, &ours, "lease", LEASES);
    let took = u64::try_from(begun.elapsed().as_micros()).expect("less than a year");
    child::tell("taken");
    std::thread::sleep(SETTLE);
    let before = own_cpu();
    std::thread::sleep(PERIOD);
    let used = own_cpu().saturating_sub(before);
    let used = u64::try_from(used.as_micros()).expect("less than a year");
    let valid = guards.iter().filter(|guard| guard.is_valid()).count();
    // After the period: all that renewing and watching keep is there by now.
    let memory = own_rss().saturating_sub(empty);
    child::tell(&child::join([took, used, valid as u64, memory]));
    // Nobody needs the rest: a hundred thousand releases, one by one.
    std::process::exit(0);
}

/// Takes many locks by a few tasks.
fn take(
    runtime: &Runtime,
    ours: &Ours,
    prefix: &str,
    count: usize,
) -> Vec<<Ours as Contender>::Held> {
    let takers = (0..TAKERS).map(|taker| {
        let (ours, prefix) = (ours.clone(), prefix.to_owned());
        runtime.spawn(async move {
            let mut guards = Vec::with_capacity(count / TAKERS + 1);
            for number in (taker..count).step_by(TAKERS) {
                guards.push(ours.acquire(&format!("{prefix}:{number}")).await);
            }
            guards
        })
    });
    let takers: Vec<_> = takers.collect();
    let guards = takers.into_iter().map(|taker| runtime.block_on(taker));
    guards
        .flat_map(|guards| guards.expect("no task panics"))
        .collect()
}

fn lease_name(number: usize) -> String {
    format!("lease:{number}")
}

fn waiter_bytes(setting: &Setting, names: &str) -> f64 {
    let child = child::spawn("waiters", &[setting.url(), names.to_owned()]);
    child::await_ready(&child);
    child.send_line("go");
    child::split(&child.expect_line(PATIENCE))[0] as f64 / WAITERS as f64
}

/// The child's side: lets many wait and says how much memory that takes.
pub fn waiting_child(arguments: &[String]) {
    let [url, names] = arguments else {
        panic!("one who waits takes a url and `one` or `many`");
    };
    let runtime = two_workers();
    let holder = runtime.block_on(Ours::connect(url, HandOff::On));
    let waiting = runtime.block_on(Ours::connect(url, HandOff::On));
    let count = if names == "one" { 1 } else { WAITERS };
    let prefix = format!("waited:{names}");
    let _guards = take(&runtime, &holder, &prefix, count);
    drop(take(&runtime, &waiting, "warm", 1_000));
    std::thread::sleep(SETTLE_FEW);
    child::ready();
    let before = own_rss();
    for number in 0..WAITERS {
        let (waiting, name) = (waiting.clone(), format!("{prefix}:{}", number % count));
        runtime.spawn(async move { waiting.acquire(&name).await });
    }
    // Until the last one has been refused, subscribed and queued.
    std::thread::sleep(Duration::from_secs(3));
    child::tell(&child::join([own_rss().saturating_sub(before)]));
    std::process::exit(0);
}
