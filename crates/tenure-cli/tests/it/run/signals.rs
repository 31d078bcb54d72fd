//! Signals, while waiting and while running.

use nix::sys::signal::Signal;
use tenure_testkit::{ClientProcess, eventually};

use super::{SOON, code, hold, run, send, server, start, waiters};

/// A command that tells which signals its shell and a child of it get.
const TELLS: &str = r#"
    for signal in HUP INT QUIT TERM USR1 USR2 WINCH CONT; do
        trap "echo $signal" $signal
    done
    echo ready
    while :; do sleep 0.01; done
"#;

fn telling(name: &str) -> ClientProcess {
    let process = start(&["run", name, "-c", TELLS]);
    assert_eq!(process.expect_line(SOON), "ready");
    process
}

#[tenure_testkit::test]
fn each_is_passed_on() {
    let process = telling("passed-on");
    for (signal, name) in [
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
        (Signal::SIGCONT, "CONT"),
    ] {
        send(&process, signal);
        assert_eq!(process.expect_line(SOON), name);
    }
    let process = telling("passed-on-term");
    send(&process, Signal::SIGTERM);
    assert_eq!(process.expect_line(SOON), "TERM");
}

#[tenure_testkit::test]
fn the_whole_group_gets_them() {
    let line = "trap 'echo shell' USR1; \
                (trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.01; done) & \
                wait; wait";
    let process = start(&["run", "whole-group", "-c", line]);
    assert_eq!(process.expect_line(SOON), "ready");
    send(&process, Signal::SIGUSR1);
    let mut told = [process.expect_line(SOON), process.expect_line(SOON)];
    told.sort();
    assert_eq!(told, ["child", "shell"]);
    assert_eq!(code(&process), 0);
}

#[tenure_testkit::test]
fn a_command_that_obeys_decides_the_exit_code() {
    let process = start(&[
        "run",
        "obeys",
        "-c",
        "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done",
    ]);
    assert_eq!(process.expect_line(SOON), "ready");
    send(&process, Signal::SIGTERM);
    assert_eq!(code(&process), 5);
    let process = hold("dies-of-it");
    send(&process, Signal::SIGTERM);
    assert_eq!(code(&process), 143);
    run(&["run", "-n", "dies-of-it", "true"]).ended_with(0);
}

#[tenure_testkit::test]
fn a_second_one_within_two_seconds_kills() {
    for (name, signal) in [
        ("impatient-int", Signal::SIGINT),
        ("impatient-term", Signal::SIGTERM),
    ] {
        let line = "trap 'echo heard' INT TERM; echo ready; while :; do sleep 0.01; done";
        let process = start(&["run", name, "-c", line]);
        assert_eq!(process.expect_line(SOON), "ready");
        send(&process, signal);
        assert_eq!(process.expect_line(SOON), "heard");
        send(&process, signal);
        assert_eq!(code(&process), 128 + signal as i32);
        run(&["run", "-n", name, "true"]).ended_with(0);
    }
}

#[tenure_testkit::test]
fn tstp_stops_the_command_and_cont_continues_it() {
    let process = start(&[
        "run",
        "-t",
        "1",
        "stopped",
        "-c",
        "while :; do echo on; sleep 0.05; done",
    ]);
    process.expect_line(SOON);
    send(&process, Signal::SIGTSTP);
    let is_silent = || {
        process
            .read_line(std::time::Duration::from_millis(400))
            .is_none()
    };
    assert!(eventually(SOON, is_silent), "it goes on");
    // Without a terminal the lease is renewed on, so there is no hurry.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    send(&process, Signal::SIGCONT);
    assert_eq!(process.expect_line(SOON), "on");
    send(&process, Signal::SIGTERM);
    assert_eq!(code(&process), 143, "{}", process.stderr());
}

#[tenure_testkit::test]
fn a_signal_for_a_unit_does_not_end_the_warden_first() {
    // What systemd does: TERM for all of them.
    let process = hold("unit");
    let warden = super::warden_of(process.pid());
    let command = super::children(warden)[0];
    for id in [warden, command, process.pid()] {
        nix::sys::signal::kill(super::pid(id), Signal::SIGTERM).unwrap();
    }
    assert_eq!(code(&process), 143, "{}", process.stderr());
}

#[tenure_testkit::test]
fn who_is_ended_while_waiting_leaves_the_queue_and_the_next_is_served() {
    let holder = hold("left-queue");
    let first = start(&["run", "left-queue", "-c", "echo first"]);
    assert!(eventually(SOON, || waiters(server(), "left-queue") == 1));
    let second = start(&["run", "left-queue", "-c", "echo second"]);
    assert!(eventually(SOON, || waiters(server(), "left-queue") == 2));
    send(&first, Signal::SIGTERM);
    assert_eq!(code(&first), 143);
    send(&holder, Signal::SIGTERM);
    assert_eq!(second.expect_line(SOON), "second");
    assert_eq!(code(&second), 0);
}

#[tenure_testkit::test]
fn a_signal_ends_the_random_delay_too() {
    let process = start(&["run", "--jitter", "24h", "-v", "jittered", "true"]);
    // It handles signals before anything else, but that takes a moment.
    let handles = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()));
        let status = status.unwrap_or_default();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:\t"));
        caught.is_some_and(|mask| u64::from_str_radix(mask, 16).unwrap_or(0) >> 14 & 1 == 1)
    };
    assert!(eventually(SOON, handles));
    send(&process, Signal::SIGTERM);
    assert_eq!(code(&process), 143);
}

#[tenure_testkit::test]
fn who_waits_can_be_stopped_and_goes_on_waiting() {
    let holder = hold("stopped-waiting");
    let waiting = start(&["run", "stopped-waiting", "echo", "mine"]);
    assert!(eventually(SOON, || waiters(server(), "stopped-waiting") == 1));
    send(&waiting, Signal::SIGTSTP);
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", waiting.pid()));
        stat.unwrap().contains(") T ")
    };
    assert!(eventually(SOON, is_stopped));
    send(&waiting, Signal::SIGCONT);
    send(&holder, Signal::SIGTERM);
    assert_eq!(waiting.expect_line(SOON), "mine");
}
