//! A command is not started when its time is over already.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use tenure_testkit::{ClientProcess, eventually};

use super::{SOON, children, code, pid, server, start};

const LOST: i32 = 79;

#[tenure_testkit::test]
fn a_command_whose_lease_has_ended_is_not_started() {
    let told = not_started("late", &["-t", "1"], Duration::ZERO);
    assert!(told.contains("`late`"), "{told}");
}

#[tenure_testkit::test]
fn a_command_that_would_be_ended_at_once_is_not_started() {
    // It would be told to end when two seconds of its lease are left.
    let left = Duration::from_millis(1_800);
    let told = not_started("late-term", &["-t", "4", "-k", "1.5"], left);
    assert!(!told.contains("losing"), "{told}");
}

#[tenure_testkit::test]
fn a_command_that_may_go_on_without_the_lock_is_not_started_without_it() {
    assert_eq!(
        not_started(
            "late-warn",
            &["-t", "1", "--on-lost", "warn"],
            Duration::ZERO
        ),
        "tenure: lost `late-warn` before the command started: it was not run\n"
    );
}

/// Stops a warden at its birth until no more than this is left of the lease, and tells what the
/// wrapper says to that.
fn not_started(name: &str, options: &[&str], left: Duration) -> String {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("started");
    let line = format!("echo > '{}'; exec sleep 60", file.display());
    for _ in 0..50 {
        let fixed = ["run", "--no-renew"];
        let process = start(&[&fixed, options, &[name, "-c", &line]].concat());
        let warden = newborn(&process);
        kill(pid(warden), Signal::SIGSTOP).unwrap();
        if !children(warden).is_empty() || file.exists() {
            // It was faster.
            process.kill();
            let is_over = eventually(SOON, || children(warden).is_empty());
            assert!(is_over, "it is not ended");
            let _ = std::fs::remove_file(&file);
            server().client().command(&["DEL", name]);
            continue;
        }
        let is_late = || {
            let ttl = server().client().command(&["PTTL", name]).int();
            ttl <= i64::try_from(left.as_millis()).unwrap()
        };
        assert!(eventually(SOON, is_late), "the lease goes on");
        // Rather late than early: this side's belief ends before the lease does.
        std::thread::sleep(Duration::from_millis(100));
        let _ = kill(pid(warden), Signal::SIGCONT);
        assert_eq!(code(&process), LOST, "{}", process.stderr());
        assert!(!file.exists(), "it was started");
        return process.stderr();
    }
    panic!("the warden was always faster");
}

fn newborn(wrapper: &ClientProcess) -> u32 {
    let id = wrapper.pid();
    let list = format!("/proc/{id}/task/{id}/children");
    let mut found = None;
    let begun = std::time::Instant::now();
    while found.is_none() && begun.elapsed() < SOON {
        let listed = std::fs::read_to_string(&list).unwrap_or_default();
        found = listed.split(' ').find_map(|word| word.parse().ok());
    }
    found.unwrap_or_else(|| panic!("no warden; {}", wrapper.stderr()))
}
