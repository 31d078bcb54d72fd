//! `tenure run -j N`: at most so many commands at once, each with a slot of its own.

use tenure::blocking::Tenure;
use tenure_testkit::{ClientProcess, RedlockNodes, eventually};

use super::{SOON, at, code, hold, run, server, start, waiters};
use crate::command;
use crate::masks::without_digits;

/// Starts a command that has a permit, and returns its slot.
fn slot(limit: &str, name: &str) -> (ClientProcess, String) {
    let line = "echo $TENURE_SLOT; read _; true";
    let holder = start(&["run", "-j", limit, name, "-c", line]);
    let slot = holder.expect_line(SOON);
    (holder, slot)
}

#[tenure_testkit::test]
fn each_command_has_a_slot_of_its_own() {
    let (first, slot_of_first) = slot("2", "slots");
    let (second, slot_of_second) = slot("2", "slots");
    assert_eq!([slot_of_first, slot_of_second], ["0", "1"]);

    let ended = run(&["run", "-n", "-j", "2", "slots", "true"]);
    ended.ended_with(75);
    ended.complains("`slots` is held by 2 leases of its 2 permits, among them ");
    assert!(!ended.stderr.contains("another library"), "{ended}");
    let waiter = start(&["run", "-j2", "slots", "-c", "echo $TENURE_SLOT"]);
    assert!(eventually(SOON, || waiters(server(), "slots") == 1));
    first.close_stdin();
    assert_eq!(waiter.expect_line(SOON), "0");
    assert_eq!((code(&first), code(&waiter)), (0, 0));
    second.close_stdin();
    assert_eq!(code(&second), 0);
}

#[tenure_testkit::test]
fn the_command_knows_its_permit() {
    let line =
        "echo $TENURE_NAME $TENURE_SLOT; echo $TENURE_LEASE; echo $TENURE_FENCE; read _; true";
    let holder = start(&["run", "-v", "-j", "3", "known", "-c", line]);
    assert_eq!(holder.expect_line(SOON), "known 0");
    let lease = holder.expect_line(SOON);
    let held = server()
        .client()
        .command(&["HGET", "tenure:slots:{known}", &lease]);
    assert_eq!(held.text(), "0");
    let fence = holder.expect_line(SOON);
    holder.close_stdin();
    assert_eq!(code(&holder), 0);
    let said = holder.stderr();
    assert!(said.contains(&format!("(slot 0, fence {fence})")), "{said}");
    assert!(said.contains("released `known` after"), "{said}");
    let left = server()
        .client()
        .command(&["ZCARD", "tenure:permits:{known}"]);
    assert_eq!(left.int(), 0);
}

/// A command under a lock of its own has no slot, even if the command around it has one.
#[tenure_testkit::test]
fn a_slot_is_not_passed_on() {
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let inner = format!("exec {tenure} run inner-of-slot -c 'echo ${{TENURE_SLOT-none}}'");
    let ended = run(&["run", "-j", "2", "outer-of-slot", "-c", &inner]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "none\n");
}

#[tenure_testkit::test]
fn a_command_that_would_wait_for_its_own_permit_is_refused() {
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let inner = format!("exec {tenure} run -j 1 own-slot true");
    let ended = run(&["run", "-j", "1", "own-slot", "-c", &inner]);
    ended.ended_with(64);
    ended.complains("is held by the `tenure run` that runs this command");
    let inner = format!("exec {tenure} run -n -j 2 two-slots -c 'echo $TENURE_SLOT'");
    let ended = run(&["run", "-j", "2", "two-slots", "-c", &inner]);
    ended.ended_with(0);
    assert_eq!(ended.stdout, "1\n");
}

#[tenure_testkit::test]
fn a_number_that_is_none_is_refused() {
    for number in ["0", "-1", "x", "", "1.5", "1000001", "99999999999"] {
        let ended = run(&["run", &format!("--slots={number}"), "bad-number", "true"]);
        ended.ended_with(64);
        ended.complains(number);
        ended.complains("--slots <N>");
    }
}

#[tenure_testkit::test]
fn what_a_permit_has_not_is_refused() {
    for option in [
        &["-s"] as &[&str],
        &["-x"],
        &["--also", "other"],
        &["--meta", "a=b"],
        &["--at-least", "1s"],
    ] {
        let ended = run(&[&["run", "-j", "2"], option, &["no-permit", "true"]].concat());
        ended.ended_with(64);
        ended.complains("cannot be used with");
    }
}

#[tenure_testkit::test]
fn another_number_is_refused_with_both() {
    let _holder = slot("2", "other-limit");
    let ended = run(&["run", "-j", "3", "other-limit", "true"]);
    ended.ended_with(64);
    ended.complains(
        "tenure: cannot get a permit of `other-limit` with the limit `3`: the semaphore has the \
         limit `2`; use the same limit in every program, or change it with `resize`",
    );
}

#[tenure_testkit::test]
fn locks_and_permits_do_not_share_a_name() {
    let _holder = hold("a-lock");
    let ended = run(&["run", "-j", "2", "a-lock", "true"]);
    ended.ended_with(64);
    ended.complains("cannot use `a-lock` as a semaphore: it is a lock, held by");
    let _permit = slot("2", "a-semaphore");
    let ended = run(&["run", "a-semaphore", "true"]);
    ended.ended_with(64);
    ended.complains("cannot lock `a-semaphore`: it is a semaphore with the limit `2`");
}

#[tenure_testkit::test]
fn independent_servers_have_no_permits() {
    let nodes = RedlockNodes::start();
    let urls = nodes.urls().join(" ");
    let ended = command::run(&mut at(&urls, &["run", "-j", "2", "n", "true"]));
    ended.ended_with(64);
    ended.complains("-j/--slots does not work with several independent servers");
}

#[tenure_testkit::test]
fn a_command_is_killed_when_its_permit_is_lost() {
    let line = "echo held; exec sleep 60";
    let holder = start(&["run", "-t", "2", "-j", "2", "lost-slot", "-c", line]);
    assert_eq!(holder.expect_line(SOON), "held");
    for key in ["tenure:permits:{lost-slot}", "tenure:slots:{lost-slot}"] {
        server().client().command(&["DEL", key]);
    }
    assert_eq!(code(&holder), 79);
    assert!(
        holder.stderr().contains("lost `lost-slot`"),
        "{}",
        holder.stderr()
    );
}

#[tenure_testkit::test]
fn listings_show_slots() {
    let own = tenure_testkit::RedisServer::start();
    let url = own.url();
    let tenure = Tenure::connect(&url).unwrap();
    let semaphore = tenure.semaphore("gpus", 8);
    let three = semaphore.acquire_many(3).unwrap();
    let gone = semaphore.acquire().unwrap();
    let last = semaphore.acquire().unwrap();
    gone.release().unwrap();
    let client = || command::run(&mut at(&url, &["ls"]));
    let is_listed = || {
        let shown = without_digits(&client().stdout);
        shown.contains("slots #-#, # of #, first") && shown.contains("#.#s")
    };
    assert!(eventually(SOON, is_listed), "{}", client());
    client().says("slots 0-2, 4 of 8, first ");

    let shown = command::run(&mut at(&url, &["show", "gpus"]));
    shown.says(&format!("Slots:    0-2 {}", three.lease_id()));
    shown.says(&format!("Slots:    4 {}", last.lease_id()));
    let shown = command::run(&mut at(&url, &["show", "gpus", "--json"]));
    shown.says("\"limit\":8,");
    shown.says(&format!("\"{}\":[0,1,2]", three.lease_id()));
}
