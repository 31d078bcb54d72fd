//! `tenure bench`.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tenure_testkit::{Cluster, RedisServer, RedlockNodes, eventually};

use crate::command::{run, tenure};
use crate::leftovers::leaves_nothing;

/// Short, with few tasks: the figures say nothing, but they must be there.
const SHORT: [&str; 6] = ["--duration", "300ms", "--clients", "2", "--tasks", "2"];

fn measure(urls: &[String], options: &[&str]) -> Value {
    let mut command = tenure(&["bench", "--json"]);
    command
        .args(SHORT)
        .args(options)
        .env("TENURE_URL", urls.join(" "));
    let ended = run(&mut command);
    ended.ended_with(0);
    assert_eq!(ended.stderr, "", "no progress without a terminal");
    let report = serde_json::from_str(&ended.stdout);
    report.unwrap_or_else(|error| panic!("{error} in {ended}"))
}

/// Fails unless the field is a number above zero.
#[track_caller]
fn is_positive(part: &Value, field: &str) {
    let number = part[field].as_f64();
    assert!(
        number.is_some_and(|number| number > 0.0),
        "{field} in {part}"
    );
}

#[track_caller]
fn is_complete(report: &Value) {
    for field in ["pairs", "pairs_per_second", "p50_us", "p99_us"] {
        is_positive(&report["floor"], field);
        is_positive(&report["uncontended"], field);
    }
    is_positive(&report["uncontended"], "ratio_to_floor");
    for field in [
        "hand_offs",
        "hand_offs_per_second",
        "wait_p99_us",
        "share_max",
        "jain_index",
    ] {
        is_positive(&report["contended"], field);
    }
    for part in ["uncontended", "contended"] {
        is_positive(&report[part], "commands_per_acquisition");
        is_positive(&report[part], "round_trips_per_acquisition");
    }
    let jain = report["contended"]["jain_index"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&jain), "{report}");
}

#[tenure_testkit::test]
fn all_parts_are_measured_and_nothing_is_left() {
    let server = RedisServer::start();
    let report = measure(&[server.url()], &[]);
    is_complete(&report);
    assert_eq!(
        (&report["clients"], &report["tasks"]),
        (&2.into(), &2.into())
    );
    assert_eq!(report["other_connections"], 0, "{report}");
    // A release and an acquisition, each one round trip, and hardly more; fewer where those of both
    // tasks travel together.
    let trips = report["uncontended"]["round_trips_per_acquisition"].as_f64();
    assert!((1.0..2.5).contains(&trips.unwrap()), "{report}");
    leaves_nothing(&server);
}

#[tenure_testkit::test]
fn others_are_noticed() {
    let server = RedisServer::start();
    let _other = server.client();
    let options = ["--hold", "1ms", "--locks", "2", "--ttl", "2s"];
    let report = measure(&[server.url()], &options);
    assert_eq!(report["ttl_ms"], 2_000);
    assert_eq!(report["other_connections"], 1, "{report}");
    assert_eq!(
        (&report["hold_ms"], &report["locks"]),
        (&1.into(), &2.into())
    );
}

#[tenure_testkit::test]
fn clusters_and_redlocks_are_measured() {
    let nodes = Cluster::builder().masters(3).replicas(0);
    let cluster = nodes.steady().start();
    is_complete(&measure(&[cluster.url()], &[]));
    cluster.servers().iter().for_each(leaves_nothing);
    let nodes = RedlockNodes::builder().nodes(3).start();
    is_complete(&measure(&nodes.urls(), &[]));
    nodes.nodes().iter().for_each(leaves_nothing);
}

#[tenure_testkit::test]
fn people_get_a_table() {
    let server = RedisServer::start();
    let ended = run(tenure(&["bench", "--url", &server.url()]).args(SHORT));
    ended.ended_with(0);
    ended.says("2 clients with 2 tasks each, ttl 30000 ms, held for 0 ms\n");
    for text in [
        "\nfloor ",
        "\nuncontended ",
        " of the floor, ",
        "\ncontended ",
        "Jain's index",
    ] {
        ended.says(text);
    }
    ended.says("\nno other clients were connected\n");
}

/// A run that would take an hour, as soon as it measures.
fn begin(server: &RedisServer) -> Child {
    let mut command = tenure(&[
        "bench",
        "--json",
        "--duration",
        "1h",
        "--url",
        &server.url(),
    ]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let busy = || server.command_calls("evalsha") > 100;
    assert!(eventually(Duration::from_secs(20), busy));
    child.unwrap()
}

/// What it said until its end, and how it ended.
fn end(mut child: Child) -> (String, String, Option<i32>) {
    let (mut told, mut complained) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complained)
        .unwrap();
    (told, complained, child.wait().unwrap().code())
}

#[tenure_testkit::test]
fn an_interrupted_run_shows_what_it_has_and_leaves_nothing() {
    let server = RedisServer::start();
    let child = begin(&server);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let (told, complained, code) = end(child);
    assert_eq!(code, Some(130), "{told}\n{complained}");
    assert_eq!(complained, "interrupted: stopping\n");
    let report: Value = serde_json::from_str(&told).unwrap();
    is_positive(&report["floor"], "pairs");
    assert!(report["contended"].is_null(), "{report}");
    leaves_nothing(&server);
}

#[tenure_testkit::test]
fn a_server_that_dies_meanwhile_ends_it_before_long() {
    let server = RedisServer::start();
    let child = begin(&server);
    server.kill();
    let begun = Instant::now();
    let (told, complained, code) = end(child);
    assert_eq!(code, Some(69), "{told}\n{complained}");
    assert!(
        complained.contains("cannot reach") || complained.contains("redis://"),
        "{complained}"
    );
    assert!(begun.elapsed() < Duration::from_secs(40), "{complained}");
}

#[tenure_testkit::test]
fn a_server_that_is_gone_ends_with_69() {
    let server = RedisServer::start();
    server.kill();
    let ended = run(tenure(&["bench", "--url", &server.url()]).args(SHORT));
    ended.ended_with(69);
    ended.complains("tenure: cannot measure `redis://127.0.0.1:");
    let ended = run(&mut tenure(&["bench", "--url", "memory://"]));
    ended.ended_with(78);
}

#[tenure_testkit::test]
fn numbers_have_their_limits() {
    for arguments in [
        ["--clients", "0"],
        ["--tasks", "0"],
        ["--locks", "0"],
        ["--ttl", "soon"],
    ] {
        let ended = run(tenure(&["bench"]).args(arguments));
        ended.ended_with(64);
        ended.complains(arguments[0]);
    }
}
