//! Characters that act on a terminal, or hide what stands there, in what others wrote and in our own
//! arguments.

use serde_json::Value;
use tenure::blocking::Tenure;
use tenure_testkit::{RedisServer, eventually};

use crate::command::{Ended, run, tenure};
use crate::scripts::{SOON, at, run_at};

/// Clears a screen, in two ways, turns what follows around, and takes no room.
const HOSTILE: &str = "a\u{1b}[2Jb\u{9b}2Jc\u{202e}d\u{200b}e";
const SHOWN: &str = "a\\u{1b}[2Jb\\u{9b}2Jc\\u{202e}d\\u{200b}e";

#[track_caller]
fn is_harmless(ended: &Ended) {
    let all = format!("{}{}", ended.stdout, ended.stderr);
    let is_hostile = |letter: &char| "\u{1b}\u{9b}\u{202e}\u{200b}".contains(*letter);
    assert_eq!(all.chars().find(is_hostile), None, "{all:?}");
}

#[tenure_testkit::test]
fn what_others_wrote_is_shown_without_them() {
    let server = RedisServer::start();
    let url = server.url();
    let builder = tenure::Tenure::builder(&url).name(HOSTILE);
    let ours = Tenure::connect_with(builder.about("command", HOSTILE)).unwrap();
    let lock = ours.lock(HOSTILE).meta("note", HOSTILE);
    let guard = lock.acquire().unwrap();
    let is_listed = || run_at(&url, &["ls"]).stdout.contains(SHOWN);
    assert!(eventually(SOON, is_listed));
    for arguments in [
        &["ls"][..],
        &["ls", "--long"],
        &["ls", "--json"],
        &["show", HOSTILE],
        &["show", HOSTILE, "--json"],
        &["is-locked", "-v", HOSTILE],
        &["acquire", HOSTILE, "-n"],
        &["acquire", HOSTILE, "-n", "--json"],
        &["run", "-n", HOSTILE, "--", "true"],
        &["run", "-n", "-v", HOSTILE, "--", "true"],
        &["force-unlock", HOSTILE, "0000"],
    ] {
        let ended = run_at(&url, arguments);
        is_harmless(&ended);
        assert!(
            !ended.stdout.is_empty() || !ended.stderr.is_empty(),
            "{arguments:?}"
        );
    }
    let shown = run_at(&url, &["show", HOSTILE, "--json"]);
    let report: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(report["name"], HOSTILE, "a program reads the name as it is");
    assert_eq!(report["meta"]["note"], HOSTILE);
    drop(guard);
}

#[tenure_testkit::test]
fn our_own_arguments_are_repeated_without_them() {
    for arguments in [
        &["ls", HOSTILE, HOSTILE][..],
        &["release", "--lease", HOSTILE],
        &["acquire", "n", "--ttl", HOSTILE],
        &["show", "n", "--password-file", HOSTILE],
        &[HOSTILE],
        &[
            "sale",
            "item",
            "create",
            HOSTILE,
            "--stock",
            "1",
            "--ledger",
            "sqlite::memory:",
        ],
    ] {
        let ended = run(&mut tenure(arguments));
        is_harmless(&ended);
        assert_ne!(ended.code, 0, "{arguments:?}");
        // The parser of the command line leaves out some of them.
        ended.complains("c\\u{202e}d\\u{200b}e");
    }
    let ended = run(&mut at(HOSTILE, &["ls"]));
    is_harmless(&ended);
    assert_ne!(ended.code, 0);
}
