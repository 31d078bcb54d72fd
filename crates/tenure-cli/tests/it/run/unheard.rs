//! A peer that does not read blocks no process: neither a stopped warden, nor a stopped wrapper.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use tenure_testkit::eventually;

use super::{SOON, code, is_alive, pid, send, start, warden_of};

/// More than fit into a socket that is not read.
const MANY: usize = 400;

#[tenure_testkit::test]
fn a_stopped_warden_does_not_keep_the_wrapper_waiting() {
    let process = start(&["run", "-t", "60", "unheard", "-c", "echo $$; exec sleep 60"]);
    let command = process.expect_line(SOON).parse().unwrap();
    kill(pid(warden_of(process.pid())), Signal::SIGSTOP).unwrap();
    for _ in 0..MANY {
        send(&process, Signal::SIGUSR2);
        sleep(Duration::from_millis(3));
    }
    send(&process, Signal::SIGTERM);
    sleep(Duration::from_millis(50));
    send(&process, Signal::SIGTERM);
    assert_eq!(code(&process), 143, "{}", process.stderr());
    assert!(!is_alive(command));
}

#[tenure_testkit::test]
fn a_stopped_wrapper_does_not_keep_the_warden_from_ending_the_command() {
    let line = "echo $$; exec sleep 60";
    let process = start(&["run", "-t", "4", "unheard-news", "-c", line]);
    let command = process.expect_line(SOON).parse().unwrap();
    process.pause();
    for _ in 0..MANY {
        // The warden tells each time that the command was stopped.
        for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
            let _ = kill(pid(command), signal);
            sleep(Duration::from_millis(2));
        }
    }
    assert!(eventually(SOON, || !is_alive(command)), "it is alive");
    process.resume();
    assert_eq!(code(&process), 79, "{}", process.stderr());
}
