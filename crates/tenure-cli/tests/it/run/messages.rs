//! What is said, word for word; what varies is cut out.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use tenure_testkit::eventually;

use super::{SOON, code, hold, on, pid, run, server, start, warden_of};
use crate::command;

/// The text with host, numbers and times as `…`.
fn cut(text: &str) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let text = text.replace(&host, "HOST");
    let mut cut = String::new();
    let mut in_number = false;
    for letter in text.chars() {
        let is_number = letter.is_ascii_digit() || (in_number && letter == '.');
        if is_number && !in_number {
            cut.push('…');
        }
        if !is_number {
            cut.push(letter);
        }
        in_number = is_number;
    }
    cut
}

#[tenure_testkit::test]
fn verbose_tells_of_acquiring_and_letting_go() {
    let ended = run(&["run", "-v", "told", "true"]);
    assert_eq!(
        cut(&ended.stderr),
        "tenure: `told` acquired after …s (fence …)\ntenure: released `told` after …s\n"
    );
    let ended = run(&["run", "-v", "--at-least", "3", "told-kept", "true"]);
    assert_eq!(
        cut(&ended.stderr),
        "tenure: `told-kept` acquired after …s (fence …)\n\
         tenure: `told-kept` stays locked for …s more\n"
    );
}

#[tenure_testkit::test]
fn a_busy_lock_names_its_holder() {
    let holder = on(server(), &["run", "named", "sleep", "60"]);
    let account = command::account();
    let _holder = tenure_testkit::ClientProcess::spawn(&holder);
    let is_listed = || {
        run(&["run", "-n", "named", "true"])
            .stderr
            .contains("process")
    };
    assert!(eventually(SOON, is_listed));
    let ended = run(&["run", "-n", "named", "true"]);
    assert_eq!(
        cut(&ended.stderr),
        format!(
            "tenure: `named` is held by HOST, process … ({account}, sleep), for …s; did not wait\n"
        )
    );
    let ended = run(&["run", "-w", ".1", "named", "true"]);
    assert_eq!(
        cut(&ended.stderr),
        format!(
            "tenure: `named` is held by HOST, process … ({account}, sleep), for …s; gave up after …s\n"
        )
    );
    let ended = run(&["run", "-v", "-w", "2", "named", "true"]);
    let first = ended.stderr.lines().next().unwrap();
    assert_eq!(
        cut(first),
        format!(
            "tenure: waiting for `named`: held by HOST, process … ({account}, sleep), for …s, \
             expires in …s unless renewed"
        )
    );
    let ended = run(&["run", "-w", "1", "named", "true"]);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
}

#[tenure_testkit::test]
fn what_others_wrote_cannot_forge_a_line() {
    server().client().command(&[
        "SET",
        "forged",
        "x\ntenure: all is well\u{1b}[2J",
        "PX",
        "60000",
    ]);
    let ended = run(&["run", "-n", "forged", "true"]);
    ended.ended_with(75);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(!ended.stderr.contains('\u{1b}'), "{ended}");
}

#[tenure_testkit::test]
fn a_lock_of_another_library_is_told_as_such() {
    server()
        .client()
        .command(&["SET", "foreign", "somebody", "PX", "60000"]);
    let ended = run(&["run", "-n", "foreign", "true"]);
    assert_eq!(
        ended.stderr,
        "tenure: `foreign` is held by `somebody` of another library; did not wait\n"
    );
}

#[tenure_testkit::test]
fn a_lost_lock_tells_why_and_what_happens() {
    let holder = super::hold_with(&["-t", "2"], "lost-told");
    server().client().command(&["DEL", "lost-told"]);
    assert_eq!(code(&holder), 79);
    assert_eq!(
        holder.stderr(),
        "tenure: lost `lost-told`: the store no longer has it; stopping the command (TERM, then \
         KILL in 0.5s)\n"
    );
    let ended = run(&["run", "-t", ".5", "--no-renew", "fixed-told", "sleep", "60"]);
    assert_eq!(
        ended.stderr,
        "tenure: losing `fixed-told`: its ttl of 0.5s is over; stopping the command (TERM, then \
         KILL in 0.1s)\n"
    );
}

#[tenure_testkit::test]
fn a_command_that_runs_too_long_is_told() {
    let ended = run(&["run", "--max-time", ".2", "long-told", "sleep", "60"]);
    assert_eq!(
        ended.stderr,
        "tenure: `long-told`: the command exceeded 0.2s; stopping it (TERM, then KILL in 5.0s)\n"
    );
}

#[tenure_testkit::test]
fn a_missing_warden_is_told() {
    let holder = hold("warden-told");
    kill(pid(warden_of(holder.pid())), Signal::SIGKILL).unwrap();
    assert_eq!(code(&holder), 70);
    assert_eq!(
        holder.stderr(),
        "tenure: `warden-told`: the warden is gone; stopping the command directly\n"
    );
}

#[tenure_testkit::test]
fn a_command_under_its_own_lock_is_refused_at_once() {
    let inner = format!("{} run own-lock true", env!("CARGO_BIN_EXE_tenure"));
    let ended = run(&["run", "own-lock", "-c", &inner]);
    ended.ended_with(64);
    assert_eq!(
        ended.stderr,
        "tenure: cannot acquire lock `own-lock`: it is held by the `tenure run` that runs this \
         command, which would wait for itself; remove one of the two\n"
    );
    // Another lock inside is fine, and so is the same after the first was let go.
    let inner = format!(
        "{} run other-lock -- echo inside",
        env!("CARGO_BIN_EXE_tenure")
    );
    let ended = run(&["run", "own-lock", "-c", &inner]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "inside\n");
    let mut command = on(server(), &["run", "own-lock", "true"]);
    command
        .env("TENURE_NAME", "own-lock")
        .env("TENURE_LEASE", "tenure:0:1:1");
    command::run(&mut command).ended_with(0);
}

#[tenure_testkit::test]
fn commands_that_are_not_there_are_told() {
    let ended = run(&["run", "n", "no-such-command"]);
    assert_eq!(
        ended.stderr,
        "tenure: cannot find the command `no-such-command` in PATH\n"
    );
    let ended = run(&["run", "n", "/etc"]);
    assert_eq!(
        ended.stderr,
        "tenure: cannot run `/etc`: it is a directory\n"
    );
    let ended = run(&["run", "n", "--nonsense", "true"]);
    assert_eq!(
        ended.stderr,
        "tenure: unknown option `--nonsense`: see `tenure run --help`; options of the command go \
         after the command\n"
    );
}

#[tenure_testkit::test]
fn waiting_is_not_told_where_nobody_looks() {
    let _holder = hold("unwatched");
    let waiter = start(&["run", "-w", "1.2", "-q", "unwatched", "true"]);
    assert_eq!(
        waiter.wait(Duration::from_secs(30)).unwrap().code(),
        Some(75)
    );
    assert_eq!(waiter.stderr(), "");
}
