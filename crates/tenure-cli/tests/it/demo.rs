//! `tenure demo`.

use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure_testkit::{Cluster, RedisServer, RedlockNodes, Sentinels, eventually};

use crate::command::{Ended, run, tenure};

/// What every demo must show, wherever it runs.
#[track_caller]
fn shows_both_sales(ended: &Ended) {
    ended.ended_with(0);
    ended.says("OVERSOLD by ");
    ended.says("  BROKEN");
    ended.says("EXACT 100 units sold");
    ended.says("100 = 0 + 100  holds");
    ended.says("orders/s");
    assert!(ended.took < Duration::from_secs(30), "{ended}");
}

#[test]
fn the_demo_needs_no_server() {
    let ended = run(&mut tenure(&["demo"]));
    shows_both_sales(&ended);
    ended.says("no server needed");
    assert!(!ended.stdout.contains('\x1b'), "colour in a file\n{ended}");
}

#[test]
fn the_demo_on_redis_leaves_nothing_behind() {
    let server = RedisServer::builder().password("secret").start();
    server.client().command(&["SET", "order:1001", "mine"]);
    let ended = run(&mut tenure(&["demo", "--url", &server.url()]));
    shows_both_sales(&ended);
    ended.says(&server.addr().to_string());
    ended.keeps("secret");
    let keys = server.client().command(&["KEYS", "*"]);
    let keys: Vec<&str> = keys.array().iter().map(|key| key.text()).collect();
    assert_eq!(keys, ["order:1001"]);
}

#[test]
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
    for node in 0..2 {
        ended.says(&nodes.node(node).addr().to_string());
        let keys = nodes.node(node).client().command(&["KEYS", "*"]);
        assert!(keys.array().is_empty(), "{keys:?}");
    }
    let variable = nodes.urls().join(" ");
    let ended = run(tenure(&small).env("TENURE_URL", variable));
    ended.ended_with(0);
}

#[test]
fn the_demo_runs_on_sentinel_and_cluster() {
    let (sentinels, cluster) = (Sentinels::start(), Cluster::start());
    for url in [sentinels.url(), cluster.url()] {
        let small = ["demo", "--stock", "10", "--buyers", "60", "--url", &url];
        let ended = run(&mut tenure(&small));
        ended.ended_with(0);
        ended.says("10 = 0 + 10  holds");
    }
    let left = |server: &RedisServer| server.client().command(&["KEYS", "*demo*"]);
    for server in sentinels.servers().iter().chain(cluster.servers()) {
        let replicated = eventually(Duration::from_secs(2), || left(server).array().is_empty());
        assert!(replicated, "{:?}", left(server));
    }
}

#[test]
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
#[test]
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

#[test]
fn stock_for_everybody_is_counted_too() {
    let ended = run(&mut tenure(&["demo", "--stock", "500", "--buyers", "200"]));
    ended.ended_with(0);
    ended.says("500 = 300 + 200  holds");
    ended.says("MISCOUNTED: 200 of 500 units sold");
}

#[test]
fn ctrl_c_ends_the_demo_cleanly() {
    let server = RedisServer::start();
    // Enough for minutes.
    let mut command = tenure(&["demo", "--stock", "1000000", "--buyers", "1000000"]);
    command.args(["--url", &server.url()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let selling = eventually(Duration::from_secs(5), || {
        server
            .client()
            .command(&["KEYS", "tenure:sale:*"])
            .array()
            .len()
            == 1
    });
    assert!(selling);
    thread::sleep(Duration::from_millis(300));
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let mut status = None;
    eventually(Duration::from_secs(5), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if status.is_none() {
        child.kill().unwrap();
    }
    let mut told = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(130), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    let keys = server.client().command(&["KEYS", "*"]);
    assert!(keys.array().is_empty(), "{keys:?}");
}
