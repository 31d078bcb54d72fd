//! `tenure run --fair`: first come, first served.

use tenure_testkit::{ClientProcess, RedlockNodes, eventually};

use super::{SOON, at, code, run, server, start, waiters};
use crate::command;

/// Starts a command that waits for the fair lock, as the waiter with this number.
fn waiting(name: &str, number: usize) -> ClientProcess {
    let waiter = start(&["run", "--fair", name, "-c", "echo $TENURE_FENCE"]);
    assert!(eventually(SOON, || waiters(server(), name) == number));
    waiter
}

fn fence(waiter: &ClientProcess) -> u64 {
    waiter.expect_line(SOON).parse().unwrap()
}

#[tenure_testkit::test]
fn commands_run_in_order_of_arrival() {
    let holder = start(&["run", "--fair", "in-order", "-c", "echo held; read _; true"]);
    assert_eq!(holder.expect_line(SOON), "held");
    let waiting = [1, 2, 3].map(|number| waiting("in-order", number));
    // It does not pass those who wait.
    run(&["run", "--fair", "-n", "in-order", "true"]).ended_with(75);
    holder.close_stdin();
    let fences: Vec<u64> = waiting.iter().map(fence).collect();
    assert!(fences.is_sorted(), "{fences:?}");
    assert_eq!(code(&holder), 0);
    assert!(waiting.iter().all(|waiter| code(waiter) == 0));
}

/// A machine that died while it held the lock.
#[tenure_testkit::test]
fn after_a_crash_the_first_that_waits_is_next() {
    let line = "echo held; exec sleep 60";
    let holder = start(&["run", "--fair", "-t", "3", "crashed", "-c", line]);
    assert_eq!(holder.expect_line(SOON), "held");
    let waiter = waiting("crashed", 1);
    holder.kill();
    let mut late = String::new();
    let is_taken = eventually(SOON, || {
        let ended = run(&["run", "--fair", "-n", "crashed", "-c", "echo $TENURE_FENCE"]);
        late = ended.stdout;
        ended.code == 0
    });
    assert!(is_taken);
    let (first, late) = (fence(&waiter), late.trim().parse::<u64>().unwrap());
    assert!(first < late, "{first} is not before {late}");
}

#[tenure_testkit::test]
fn a_fair_lock_has_the_other_options() {
    let kept = [
        "run",
        "--fair",
        "--meta",
        "job=7",
        "--at-least",
        "20",
        "fair-kept",
        "true",
    ];
    run(&kept).ended_with(0);
    let left = server().client().command(&["PTTL", "fair-kept"]).int();
    assert!((10_000..=20_000).contains(&left), "{left}");
    run(&["show", "fair-kept"]).says("job=7");
    for option in [&["-s"] as &[&str], &["-j", "2"], &["--also", "other"]] {
        let ended = run(&[&["run", "--fair"], option, &["not-fair", "true"]].concat());
        ended.ended_with(64);
        ended.complains("cannot be used with");
    }
}

#[tenure_testkit::test]
fn independent_servers_have_no_order() {
    let nodes = RedlockNodes::start();
    let urls = nodes.urls().join(" ");
    let ended = command::run(&mut at(&urls, &["run", "--fair", "n", "true"]));
    ended.ended_with(64);
    ended.complains("--fair does not work with several independent servers");
}
