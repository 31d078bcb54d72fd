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
    let (ended, report) = examine_with(&[url], &["--names", "job:"]);
    ended.ended_with(0);
    says(&report, "rights", "ok", "");
    leaves_nothing(&server);
}

/// The rules that the doctor prints for a prefix are enough for everything that it tries, and the server
/// refuses nothing.
#[tenure_testkit::test]
fn the_rules_for_a_prefix_are_enough() {
    thread::scope(|scope| {
        for query in ["prefix=team-a:", "prefix=a*[b]:&layout=redisson"] {
            scope.spawn(move || {
                let (server, url) = restricted("+@all");
                let url = format!("{url}?{query}");
                let (ended, report) = examine(from_ref(&url));
                ended.ended_with(1);
                let found = check(&report, "prefix")["found"].as_str().unwrap();
                type_in(&server, found.split('`').nth(3).unwrap());
                server.client().command(&["ACL", "LOG", "RESET"]);
                let (ended, report) = examine(from_ref(&url));
                ended.ended_with(0);
                for name in ["rights", "waiting", "keeping", "watching", "lock"] {
                    says(&report, name, "ok", "");
                }
                refuses_no_name(&server);
                leaves_nothing(&server);
            });
        }
    });
}

/// What is missing under a prefix is named with it.
#[tenure_testkit::test]
fn what_is_missing_under_a_prefix_is_everything_under_it() {
    thread::scope(|scope| {
        scope.spawn(|| {
            mends(
                "~tenure:* &* +@all",
                "?prefix=team-a:",
                "bad",
                "the keys `team-a:*`",
                "ACL SETUSER worker ~team-a:*",
            );
        });
        scope.spawn(|| {
            mends(
                "~t:* &t:* +@all",
                "?prefix=t:&layout=redisson",
                "bad",
                "the keys `redisson_lock_token:t:*`",
                "ACL SETUSER worker &redisson_lock__channel:t:* &redisson_lock__channel:{t:* \
                 ~redisson_lock_token:t:* ~redisson_lock_token:{t:*",
            );
        });
    });
}

/// The line in the documentation, typed as it is there.
#[tenure_testkit::test]
fn the_line_for_teams_in_the_documentation_is_enough() {
    let documented = include_str!("../../../../../docs/deployments.md");
    let line = documented
        .lines()
        .find(|line| line.contains("ACL SETUSER team-a"));
    let line = line
        .unwrap()
        .split_once("redis-cli ")
        .unwrap()
        .1
        .replace('\'', "");
    let server = RedisServer::start();
    type_in(&server, &line);
    let url = format!("redis://team-a:secret@{}/?prefix=team-a:", server.addr());
    let (ended, report) = examine(&[url]);
    ended.ended_with(0);
    says(&report, "rights", "ok", "");
    refuses_no_name(&server);
}

/// Fails if the server refused a key or a channel. Commands that only the doctor asks for may be
/// refused, and it tidies up after locks of any layout.
#[track_caller]
fn refuses_no_name(server: &RedisServer) {
    let refused = server.client().command(&["ACL", "LOG"]);
    let is_name = |entry: &&tenure_testkit::Reply| {
        let fields = entry.array();
        fields[3].text() != "command" && !fields[7].text().starts_with("redisson_lock_token:")
    };
    let names: Vec<_> = refused.array().iter().filter(is_name).collect();
    assert!(names.is_empty(), "{names:?}");
}

#[track_caller]
fn type_in(server: &RedisServer, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(server.client().command(&words).text(), "OK", "{line}");
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
