//! `tenure doctor`.

/// Rights that are missing, and the line that gives them.
mod rights;
/// Sentinel, Cluster, and several servers together.
mod several;

use std::time::Duration;

use serde_json::Value;
use tenure_testkit::{Fsync, Proxy, RedisServer, eventually};

use crate::command::{Ended, run, tenure};
use crate::leftovers::leaves_nothing;

/// What the doctor says about these URLs, for programs.
fn examine(urls: &[String]) -> (Ended, Value) {
    examine_with(urls, &[])
}

fn examine_with(urls: &[String], options: &[&str]) -> (Ended, Value) {
    let mut command = tenure(&["doctor", "--json", "--samples", "20"]);
    command.args(options).env("TENURE_URL", urls.join(" "));
    let ended = run(&mut command);
    let report = serde_json::from_str(&ended.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error} in {ended}"));
    (ended, report)
}

/// The check of this name at the first server.
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    check_in(&report["servers"][0]["checks"], name)
}

#[track_caller]
fn check_in<'a>(checks: &'a Value, name: &str) -> &'a Value {
    let found = checks
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {checks}"))
}

/// Fails with the whole report if the check says something else.
#[track_caller]
fn says(report: &Value, name: &str, result: &str, found: &str) {
    let check = check(report, name);
    let text = check["found"].as_str().unwrap();
    assert!(
        check["result"] == result && text.contains(found),
        "{check} in {report}"
    );
}

/// A server that nothing is wrong with.
fn good() -> RedisServer {
    RedisServer::builder().aof(Fsync::Everysec).start()
}

#[tenure_testkit::test]
fn a_good_server_is_fit() {
    let server = good();
    let (ended, report) = examine(&[server.url()]);
    ended.ended_with(0);
    assert_eq!(report["fit"], true, "{report}");
    let checks = report["servers"][0]["checks"].as_array().unwrap();
    for check in checks {
        let name = check["name"].as_str().unwrap();
        // How fast a crowded machine is says nothing.
        if !["latency", "lock", "watching", "memory"].contains(&name) {
            assert_eq!(check["result"], "ok", "{check}");
            assert!(check["advice"].is_null(), "{check}");
        }
    }
    assert_eq!(
        report["servers"][0]["server"],
        format!("redis://{}/", server.addr())
    );
    says(&report, "version", "ok", &server.info("redis_version"));
    says(
        &report,
        "lock",
        check(&report, "lock")["result"].as_str().unwrap(),
        "(20 samples)",
    );
    says(&report, "waiting", "ok", "a waiter acquired the lock");
    says(&report, "keeping", "ok", "renewed and listed");
    assert_eq!(ended.stderr, "");
    leaves_nothing(&server);
}

#[tenure_testkit::test]
fn people_get_words_without_colour_and_a_conclusion() {
    let server = good();
    let mut command = tenure(&["doctor", "--samples", "5", "--url", &server.url()]);
    let ended = run(&mut command);
    ended.ended_with(0);
    ended.says("  ok       role         master\n");
    ended.says("\nfit for locks: 0 bad, ");
    assert!(!ended.stdout.contains('\x1b'), "{ended}");
}

#[tenure_testkit::test]
fn a_server_that_evicts_is_not_fit() {
    let server = RedisServer::builder()
        .aof(Fsync::Always)
        .config("maxmemory", "100mb")
        .config("maxmemory-policy", "volatile-lru")
        .start();
    let (ended, report) = examine(&[server.url()]);
    ended.ended_with(1);
    assert_eq!(report["fit"], false);
    says(
        &report,
        "eviction",
        "bad",
        "volatile-lru: when memory is full, held locks",
    );
    says(&report, "persistence", "ok", "before each reply");
    let advice = check(&report, "eviction")["advice"].as_str().unwrap();
    assert!(
        advice.contains("CONFIG SET maxmemory-policy noeviction"),
        "{advice}"
    );
}

#[tenure_testkit::test]
fn nothing_on_disk_is_to_be_considered() {
    let server = RedisServer::start();
    let (ended, report) = examine(&[server.url()]);
    ended.ended_with(0);
    says(&report, "persistence", "warn", "no persistence");
}

#[tenure_testkit::test]
fn a_replica_is_bad_and_its_master_is_named() {
    let master = good();
    let replica = RedisServer::builder().replica_of(&master).start();
    assert!(replica.wait_for_master(Duration::from_secs(20)));
    let (ended, report) = examine(&[replica.url()]);
    ended.ended_with(1);
    says(
        &report,
        "role",
        "bad",
        &format!("a replica of {}", master.addr()),
    );
}

#[tenure_testkit::test]
fn replicas_confirm_what_is_written() {
    let master = good();
    let replica = RedisServer::builder().replica_of(&master).start();
    assert!(replica.wait_for_master(Duration::from_secs(20)));
    // The master notices a moment later than the replica.
    let is_online = || master.info("slave0").contains("state=online");
    assert!(eventually(Duration::from_secs(20), is_online));
    let (_, report) = examine(&[master.url()]);
    says(&report, "confirming", "ok", "1 of 1 replicas");
    says(&report, "replicas", "ok", "1: ");
    master.set_config("min-replicas-to-write", "2");
    let (ended, report) = examine(&[master.url()]);
    ended.ended_with(1);
    says(
        &report,
        "replicas",
        "bad",
        "1 of the 2 that `min-replicas-to-write` requires",
    );
    master.set_config("min-replicas-to-write", "0");
    leaves_nothing(&master);
}

#[tenure_testkit::test]
fn memory_that_is_nearly_full_is_bad() {
    let server = good();
    let used = server.stat("used_memory");
    server.set_maxmemory(used + used / 50);
    let (ended, report) = examine(&[server.url()]);
    ended.ended_with(1);
    says(&report, "memory", "bad", "% of `maxmemory`");
    server.set_maxmemory(0);
}

#[tenure_testkit::test]
fn a_wrong_password_ends_with_77_and_a_report() {
    let server = RedisServer::builder().password("right").start();
    let url = format!("redis://:outdated@{}/", server.addr());
    let (ended, report) = examine(&[url]);
    ended.ended_with(77);
    says(&report, "rights", "bad", "wrong user or password");
    ended.keeps("outdated");
    ended.keeps("right\"");
}

#[tenure_testkit::test]
fn a_server_that_hangs_or_is_gone_ends_with_69_before_long() {
    let server = RedisServer::start();
    server.pause();
    let (ended, report) = examine(&[server.url()]);
    server.resume();
    ended.ended_with(69);
    says(&report, "reachable", "bad", "in time");
    assert!(ended.took < Duration::from_secs(20), "{ended}");
    server.kill();
    let (ended, report) = examine(&[server.url()]);
    ended.ended_with(69);
    says(&report, "reachable", "bad", "connection refused");
}

/// It answers at first, and not any more when it was asked a few things.
#[tenure_testkit::test]
fn a_server_that_stops_answering_meanwhile_is_reported() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    proxy.reset_after_request_with(b"appendfsync");
    let stopper = std::thread::spawn({
        let addr = proxy.addr();
        move || examine(&[format!("redis://{addr}/")])
    });
    let (ended, report) = stopper.join().unwrap();
    ended.ended_with(1);
    says(
        &report,
        "answers",
        "bad",
        "it stopped responding during the checks",
    );
    says(&report, "reachable", "ok", "connected in");
}

#[tenure_testkit::test]
fn a_server_that_is_too_old_is_refused() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    proxy.rewrite_replies(b"redis_version:7", b"redis_version:6");
    let (ended, report) = examine(&[proxy.url()]);
    ended.ended_with(69);
    says(&report, "version", "bad", "7.0 or newer is needed");
}

#[tenure_testkit::test]
fn settings_that_may_not_be_asked_for_are_unknown() {
    let rules = "on >pw ~* &* +@all -config -info";
    let server = RedisServer::builder().user("worker", rules).start();
    let (ended, report) = examine(&[format!("redis://worker:pw@{}/", server.addr())]);
    ended.ended_with(0);
    for name in [
        "version",
        "role",
        "eviction",
        "memory",
        "persistence",
        "replicas",
        "idle",
    ] {
        says(&report, name, "unknown", "the user may not run");
        assert!(check(&report, name)["advice"].is_string());
    }
    says(&report, "rights", "warn", "the command `INFO`");
    says(&report, "keeping", "ok", "");
}

#[tenure_testkit::test]
fn resting_connections_and_room_for_more_are_looked_at() {
    let server = RedisServer::builder().config("timeout", "5").start();
    server.set_config("maxclients", "6");
    let (_, report) = examine(&[server.url()]);
    says(&report, "idle", "warn", "closed after 5 s");
    says(&report, "connections", "ok", "of at most 6");
}

#[tenure_testkit::test]
fn without_a_server_there_is_nothing_to_examine() {
    for url in ["memory://", "redis://h:port/"] {
        let ended = run(&mut tenure(&["doctor", "--url", url]));
        ended.ended_with(78);
        ended.complains("tenure: cannot check `");
        assert_eq!(ended.stdout, "");
    }
}
