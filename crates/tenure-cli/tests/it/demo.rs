//! `tenure demo`.

use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure_testkit::{Cluster, RedisServer, RedlockNodes, Sentinels, eventually};

use crate::command::{Ended, run, tenure};
use crate::leftovers::{keys_left, leaves_nothing};

/// What every demo must show, wherever it runs.
#[track_caller]
fn shows_all_sales(ended: &Ended) {
    ended.ended_with(0);
    ended.says("1. Naive: ");
    ended.says("OVERSOLD by ");
    ended.says("  BROKEN");
    ended.says("2. Lock: ");
    ended.says("3. Script: ");
    let times = |words: &str| ended.stdout.matches(words).count();
    assert_eq!(times("EXACT 100 units sold"), 2, "{ended}");
    assert_eq!(times("100 = 0 + 100  holds"), 2, "{ended}");
    let table = table(ended);
    let ways: Vec<&str> = table.iter().map(|row| row[0]).collect();
    assert_eq!(ways, ["naive", "lock", "script"], "{ended}");
    assert_ne!(table[0][2], "0", "{ended}");
    for exact in &table[1..] {
        assert_eq!(exact[1..4], ["100", "0", "0"], "{ended}");
    }
    ended.says("the work for an order is done afterwards, from the queue");
    assert!(ended.took < Duration::from_secs(30), "{ended}");
}

/// The rows of the comparison: way, sold, oversold, left, orders/s, p50 ms, p99 ms. What they say of
/// speed is a number, and the faster half is not slower than the rest.
#[track_caller]
fn table(ended: &Ended) -> Vec<Vec<&str>> {
    let mut lines = ended.stdout.lines();
    let heading = ["way", "sold", "oversold", "left", "orders/s", "p50", "p99"];
    assert!(lines.any(|line| words(line) == heading), "{ended}");
    let rows: Vec<_> = lines.map(words).take_while(|row| !row.is_empty()).collect();
    for row in &rows {
        let &[_, _, _, _, rate, p50, "ms", p99, "ms"] = row.as_slice() else {
            panic!("{row:?} is no row of the table\n{ended}");
        };
        let number = |word: &str| word.parse::<f64>().unwrap();
        assert!(number(rate) > 0.0, "{ended}");
        assert!(0.0 < number(p99) && number(p50) <= number(p99), "{ended}");
    }
    rows
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[tenure_testkit::test]
fn the_demo_needs_no_server() {
    let ended = run(&mut tenure(&["demo"]));
    shows_all_sales(&ended);
    ended.says("no server needed");
    assert!(!ended.stdout.contains('\x1b'), "colour in a file\n{ended}");
}

#[tenure_testkit::test]
fn the_demo_on_redis_leaves_nothing_behind() {
    let server = RedisServer::builder().password("secret").start();
    server.client().command(&["SET", "order:1001", "mine"]);
    let ended = run(tenure(&["demo"]).env("TENURE_URL", server.url()));
    shows_all_sales(&ended);
    ended.says(&server.addr().to_string());
    ended.keeps("secret");
    assert_eq!(keys_left(&server), ["order:1001"]);
}

#[tenure_testkit::test]
fn the_demo_on_several_servers_needs_most_of_them_and_leaves_nothing() {
    let nodes = RedlockNodes::start();
    nodes.node(2).kill();
    let small = ["demo", "--stock", "10", "--buyers", "60", "--clients", "2"];
    let mut command = tenure(&small);
    for url in nodes.urls() {
        command.args(["--url", &url]);
    }
    let ended = run(&mut command);
    ended.ended_with(0);
    ended.says("10 = 0 + 10  holds");
    // One script cannot run on several servers, and the demo says so.
    ended.says("skipped: one atomic script needs one server");
    ended.says(&format!(
        "tenure demo --url redis://{}",
        nodes.node(0).addr()
    ));
    let ways: Vec<&str> = table(&ended).iter().map(|row| row[0]).collect();
    assert_eq!(ways, ["naive", "lock"], "{ended}");
    assert!(!ended.stdout.contains("from the queue"), "{ended}");
    for node in 0..2 {
        ended.says(&nodes.node(node).addr().to_string());
        leaves_nothing(nodes.node(node));
    }
    let variable = nodes.urls().join(" ");
    let ended = run(tenure(&small).env("TENURE_URL", variable));
    ended.ended_with(0);
}

#[tenure_testkit::test]
fn the_demo_runs_on_sentinel_and_cluster() {
    let sentinels = Sentinels::builder().steady().start();
    let cluster = Cluster::builder().steady().start();
    for url in [sentinels.url(), cluster.url()] {
        let small = ["demo", "--stock", "10", "--buyers", "60", "--url", &url];
        let ended = run(&mut tenure(&small));
        ended.ended_with(0);
        let table = table(&ended);
        assert_eq!(table[1][..4], ["lock", "10", "0", "0"], "{ended}");
        assert_eq!(table[2][..4], ["script", "10", "0", "0"], "{ended}");
    }
    let left = |server: &RedisServer| server.client().command(&["KEYS", "*demo*"]);
    for server in sentinels.servers().iter().chain(cluster.servers()) {
        let replicated = eventually(Duration::from_secs(2), || left(server).array().is_empty());
        assert!(replicated, "{:?}", left(server));
    }
}

#[tenure_testkit::test]
fn the_url_may_come_from_the_environment() {
    let server = RedisServer::start();
    let small = ["demo", "--stock", "3", "--buyers", "30", "--clients", "2"];
    let ended = run(tenure(&small).env("TENURE_URL", server.url()));
    ended.ended_with(0);
    ended.says(&server.addr().to_string());
    let mut neither = tenure(&small);
    neither.env("REDIS_URL", "redis://of-another-program:1/");
    let ended = run(neither.env("TENURE_URL", ""));
    ended.ended_with(0);
    ended.says("no server needed");
}

/// A bare `memory://` is private to each client, and the shop has several.
#[tenure_testkit::test]
fn a_bare_memory_url_is_the_embedded_store() {
    let small = [
        "demo",
        "--stock",
        "3",
        "--buyers",
        "30",
        "--url",
        "memory://",
    ];
    let ended = run(&mut tenure(&small));
    ended.ended_with(0);
    ended.says("3 = 0 + 3  holds");
}

#[tenure_testkit::test]
fn stock_for_everybody_is_counted_too() {
    let ended = run(&mut tenure(&["demo", "--stock", "500", "--buyers", "200"]));
    ended.ended_with(0);
    ended.says("MISCOUNTED: 200 of 500 units sold");
    let table = table(&ended);
    assert_eq!(table[1][..4], ["lock", "200", "0", "300"], "{ended}");
    assert_eq!(table[2][..4], ["script", "200", "0", "300"], "{ended}");
}

/// Interrupted while a way sells, it leaves nothing of it.
#[tenure_testkit::test]
fn ctrl_c_ends_the_demo_cleanly() {
    // Enough for minutes.
    interrupted_while_selling(&["--stock", "1000000", "--buyers", "1000000"], "left");
}

#[tenure_testkit::test]
fn ctrl_c_takes_the_orders_out_of_the_queue() {
    // So few units that the others are soon done, and so many buyers that the script is not at once.
    interrupted_while_selling(&["--stock", "200", "--buyers", "15000"], "gate");
}

/// Sells until `key` of the item is there, interrupts, and looks what is left.
#[track_caller]
fn interrupted_while_selling(size: &[&str], key: &str) {
    let server = RedisServer::start();
    let mut command = tenure(&["demo", "--url", &server.url()]);
    command.args(size).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let pattern = format!("tenure:sale:*:{key}");
    // On a crowded machine a lock that is passed on 15 000 times takes more than a minute.
    let selling = eventually(Duration::from_mins(10), || {
        let found = server.client().command(&["KEYS", &pattern]);
        found.array().len() == 1
    });
    if selling {
        thread::sleep(Duration::from_millis(50));
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        kill(pid, Signal::SIGINT).unwrap();
    }
    let mut status = None;
    eventually(Duration::from_mins(1), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if status.is_none() {
        child.kill().unwrap();
    }
    let mut told = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut told).unwrap();
    assert!(selling, "{told}");
    assert_eq!(status.and_then(|status| status.code()), Some(130), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    leaves_nothing(&server);
}
