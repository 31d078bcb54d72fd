//! Rights that are missing, and the line that gives them.

use std::slice::from_ref;
use std::thread;
use std::time::Duration;

use tenure_testkit::RedisServer;

use super::{check, examine, examine_with, leaves_nothing, says};

/// A server and the URL of a user with these rules.
fn restricted(rules: &str) -> (RedisServer, String) {
    let rules = format!("on >pw {rules}");
    let server = RedisServer::builder().user("worker", &rules).start();
    let url = format!("redis://worker:pw@{}/", server.addr());
    (server, url)
}

/// Fails unless the doctor finds what is missing, and what it says to type mends it.
#[track_caller]
fn mends(rules: &str, query: &str, result: &str, found: &str, line: &str) {
    let (server, url) = restricted(rules);
    let url = format!("{url}{query}");
    let (ended, report) = examine(from_ref(&url));
    ended.ended_with(i32::from(result == "bad"));
    says(&report, "rights", result, found);
    let advice = check(&report, "rights")["advice"].as_str().unwrap();
    let typed = advice.split('`').nth(1).unwrap();
    assert_eq!(typed, line, "{advice}");
    let words: Vec<&str> = typed.split(' ').collect();
    assert_eq!(server.client().command(&words).text(), "OK");
    let (ended, report) = examine(&[url]);
    ended.ended_with(0);
    says(
        &report,
        "rights",
        "ok",
        "the user `worker` may use every command",
    );
    says(&report, "waiting", "ok", "");
    says(&report, "keeping", "ok", "");
    leaves_nothing(&server);
}

/// All at once: mostly they wait.
#[tenure_testkit::test]
fn what_is_missing_is_named_and_the_line_mends_it() {
    let cases = [
        (
            "~* &* +@all -evalsha",
            "bad",
            "the user `worker` lacks the command `EVALSHA`",
            "ACL SETUSER worker +evalsha",
        ),
        (
            "~* &* +@all -zscore -pexpire",
            "bad",
            "the command `PEXPIRE`, the command `ZSCORE`",
            "ACL SETUSER worker +pexpire +zscore",
        ),
        (
            "~tenure-doctor-* &* +@all",
            "bad",
            "the keys `tenure:*`",
            "ACL SETUSER worker ~tenure:*",
        ),
        ("&* +@all", "bad", "the keys `*`", "ACL SETUSER worker ~*"),
        (
            "~* resetchannels +@all",
            "warn",
            "the channels `tenure:wake*`: locks work, but waiters poll instead",
            "ACL SETUSER worker &tenure:wake*",
        ),
        (
            "~* &* +@all -exec",
            "warn",
            "the command `EXEC`: locks work, but each acquire runs a script",
            "ACL SETUSER worker +exec",
        ),
        (
            "~* &* +@all -client|tracking",
            "warn",
            "the command `CLIENT|TRACKING`: locks work, but holders notice a forced release only \
             at the next",
            "ACL SETUSER worker +client|tracking",
        ),
    ];
    thread::scope(|scope| {
        for (rules, result, found, line) in cases {
            scope.spawn(move || mends(rules, "", result, found, line));
        }
        scope.spawn(|| {
            mends(
                "~tenure-doctor-* ~tenure:* &tenure:wake* +@all -hlen",
                "?layout=redisson",
                "bad",
                "the keys `redisson_lock_token:*`",
                "ACL SETUSER worker &redisson_lock__channel:* +hlen ~redisson_lock_token:*",
            );
        });
    });
}

/// Without `MULTI` nothing can be tried: the line gives everything.
#[tenure_testkit::test]
fn without_transactions_the_line_gives_everything() {
    let (server, url) = restricted("~* &* +@all -multi -zadd");
    let (ended, report) = examine(from_ref(&url));
    ended.ended_with(1);
    says(&report, "rights", "bad", "lacks the command `MULTI`, which");
    says(&report, "lock", "unknown", "skipped");
    let advice = check(&report, "rights")["advice"].as_str().unwrap();
    let words: Vec<&str> = advice.split('`').nth(1).unwrap().split(' ').collect();
    assert_eq!(server.client().command(&words).text(), "OK");
    let (ended, _) = examine(&[url]);
    ended.ended_with(0);
}

/// Everything that docs/wire-format.md names is enough, and no more is asked for.
#[tenure_testkit::test]
fn what_the_documentation_names_is_enough() {
    let documented = include_str!("../../../../../docs/wire-format.md");
    let row = documented
        .lines()
        .find(|line| line.starts_with("| commands |"));
    let commands = row.unwrap().split('`').nth(1).unwrap().replace('\\', "");
    let rules: Vec<String> = commands.split(' ').map(|word| format!("+{word}")).collect();
    let rules = format!("~* &tenure:wake* {}", rules.join(" ").to_lowercase());
    let (_server, url) = restricted(&rules);
    let (ended, report) = examine(&[url]);
    ended.ended_with(0);
    says(&report, "rights", "ok", "");
}

#[tenure_testkit::test]
fn a_user_of_some_names_only_says_which() {
    let (server, url) = restricted("~job:* ~tenure:* &* +@all");
    let (ended, report) = examine(from_ref(&url));
    ended.ended_with(1);
    says(&report, "rights", "bad", "the keys `*`");
    let (ended, report) = examine_with(&[url], &["--prefix", "job:"]);
    ended.ended_with(0);
    says(&report, "rights", "ok", "");
    leaves_nothing(&server);
}

#[tenure_testkit::test]
fn a_command_that_was_renamed_away_is_named() {
    let server = RedisServer::builder()
        .config("rename-command", "EVALSHA \"\"")
        .start();
    let (ended, report) = examine(&[server.url()]);
    ended.ended_with(1);
    says(&report, "rights", "bad", "the server has no `EVALSHA`");
}

/// Only locks that ask their replicas need `WAIT`: it is nothing bad that it is forbidden.
#[tenure_testkit::test]
fn without_wait_a_single_server_is_fit() {
    let rules = "on >pw ~* &* +@all -wait";
    let master = RedisServer::builder().user("worker", rules).start();
    let replica = RedisServer::builder().replica_of(&master).start();
    assert!(replica.wait_for_master(Duration::from_secs(20)));
    let (ended, report) = examine(&[format!("redis://worker:pw@{}/", master.addr())]);
    ended.ended_with(0);
    says(&report, "rights", "ok", "");
    says(&report, "confirming", "warn", "'wait'");
    leaves_nothing(&master);
}
