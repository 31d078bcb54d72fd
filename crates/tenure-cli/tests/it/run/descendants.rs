//! What is left of a command's descendants, and when.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use tenure_testkit::{ClientProcess, eventually};

use super::{SOON, code, is_alive, pid, run, send, server, start, warden_of};

/// A command with a child, one in a session of its own, and one whose parent has ended. Tells
/// their process ids.
const TREE: &str = "sleep 61 & echo $!; setsid sh -c 'echo $$; exec sleep 62' & setsid -f sh -c \
                    'echo $$; exec sleep 63'; sleep 60";

fn tree(options: &[&str], name: &str) -> (ClientProcess, Vec<u32>) {
    let process = start(&[&["run"], options, &[name, "-c", TREE]].concat());
    let ids = (0..3).map(|_| process.expect_line(SOON).parse().unwrap());
    let ids = ids.collect();
    (process, ids)
}

#[track_caller]
fn all_gone(ids: &[u32]) {
    let gone = eventually(SOON, || !ids.iter().any(|id| is_alive(*id)));
    assert!(gone, "alive among {ids:?}");
}

#[tenure_testkit::test]
fn a_lost_lock_ends_them_all() {
    let (process, ids) = tree(&["-t", "1"], "tree-lost");
    server().client().command(&["DEL", "tree-lost"]);
    assert_eq!(code(&process), 79);
    // Before the wrapper said so, not some time later.
    assert!(!ids.iter().any(|id| is_alive(*id)), "{ids:?}");
}

#[tenure_testkit::test]
fn a_killed_wrapper_ends_them_all() {
    let (process, ids) = tree(&[], "tree-wrapper");
    process.kill();
    all_gone(&ids);
}

#[tenure_testkit::test]
fn a_killed_warden_ends_them_all() {
    let (process, ids) = tree(&[], "tree-warden");
    kill(pid(warden_of(process.pid())), Signal::SIGKILL).unwrap();
    assert_eq!(code(&process), 70);
    assert!(!ids.iter().any(|id| is_alive(*id)), "{ids:?}");
}

#[tenure_testkit::test]
fn a_stopped_command_is_ended_too() {
    let (process, ids) = tree(&["-t", "1"], "tree-stopped");
    for id in &ids {
        kill(pid(*id), Signal::SIGSTOP).unwrap();
    }
    server().client().command(&["DEL", "tree-stopped"]);
    assert_eq!(code(&process), 79);
    assert!(!ids.iter().any(|id| is_alive(*id)), "{ids:?}");
}

#[tenure_testkit::test]
fn who_outlives_the_command_is_ended_before_the_lock_is_let_go() {
    let line =
        "sleep 61 >&- & echo $!; setsid sh -c 'echo $$; exec sleep 62 >&-' & sleep 0.2; exit 3";
    let process = start(&["run", "outlived", "-c", line]);
    let ids = [0; 2].map(|_: u32| process.expect_line(SOON).parse().unwrap());
    assert_eq!(code(&process), 3);
    assert!(!ids.iter().any(|id| is_alive(*id)), "{ids:?}");
    assert_eq!(
        process.stderr(),
        "tenure: `outlived`: 2 processes started by the command outlived it; stopping (TERM, then \
         KILL in 5.0s; use --wait-all to wait)\n"
    );
}

#[tenure_testkit::test]
fn who_outlives_the_command_and_is_deaf_is_killed() {
    let line = "trap '' TERM; sleep 61 & echo $!; exit 0";
    let process = start(&["run", "-k", ".2", "deaf", "-c", line]);
    let id = process.expect_line(SOON).parse().unwrap();
    assert_eq!(code(&process), 0);
    assert!(!is_alive(id));
}

#[tenure_testkit::test]
fn who_just_takes_a_moment_to_end_is_not_worth_a_word() {
    let ended = run(&["run", "moment", "-c", "sleep 0.02 & exit 0"]);
    ended.ended_with(0);
    assert_eq!(ended.stderr, "");
}

#[tenure_testkit::test]
fn wait_all_waits_for_them() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("done");
    let line = format!("(sleep 0.5; echo done > '{}') & exit 4", file.display());
    let ended = run(&["run", "--wait-all", "patient", "-c", &line]);
    ended.ended_with(4);
    assert_eq!(ended.stderr, "");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "done\n");
}

#[tenure_testkit::test]
fn wait_all_does_not_wait_for_longer_than_max_time() {
    let line = "sleep 60 & echo $!; exit 0";
    let process = start(&["run", "--wait-all", "--max-time", ".3", "all", "-c", line]);
    let id = process.expect_line(SOON).parse().unwrap();
    assert_eq!(code(&process), 124);
    assert!(!is_alive(id));
}

#[tenure_testkit::test]
fn a_stopped_warden_is_replaced() {
    let (process, ids) = tree(&["-t", "1"], "warden-stopped");
    kill(pid(warden_of(process.pid())), Signal::SIGSTOP).unwrap();
    assert_eq!(code(&process), 70, "{}", process.stderr());
    assert!(!ids.iter().any(|id| is_alive(*id)), "{ids:?}");
    assert_eq!(
        process.stderr(),
        "tenure: `warden-stopped`: the warden does not respond; stopping the command directly\n"
    );
    run(&["run", "-n", "warden-stopped", "true"]).ended_with(0);
}

#[tenure_testkit::test]
fn a_stopped_warden_does_not_keep_an_impatient_user() {
    let (process, ids) = tree(&[], "warden-stopped-int");
    kill(pid(warden_of(process.pid())), Signal::SIGSTOP).unwrap();
    send(&process, Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(50));
    send(&process, Signal::SIGINT);
    assert_eq!(code(&process), 130);
    assert!(!ids.iter().any(|id| is_alive(*id)), "{ids:?}");
}
