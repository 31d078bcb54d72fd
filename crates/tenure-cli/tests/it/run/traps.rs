//! The traps that other tools fell into.

use std::time::Duration;

use nix::sys::signal::Signal;
use tenure_testkit::{ClientProcess, Proxy, RedisServer, eventually};

use super::{
    SOON, at, children, code, hold, is_alive, on, run, send, server, start, waiters, warden_of,
};
use crate::command;

#[tenure_testkit::test]
fn t1_a_shell_in_between_does_not_save_its_children() {
    let process = start(&["run", "-t", "1", "t1", "-c", "sleep 60 & echo $!; wait"]);
    let child = process.expect_line(SOON).parse().unwrap();
    server().client().command(&["DEL", "t1"]);
    assert_eq!(code(&process), 79);
    assert!(!is_alive(child));
}

#[tenure_testkit::test]
fn t2_the_command_dies_with_a_killed_wrapper() {
    let process = start(&["run", "t2", "-c", "trap '' TERM; sleep 60 & echo $!; wait"]);
    let child = process.expect_line(SOON).parse().unwrap();
    process.kill();
    assert!(eventually(SOON, || !is_alive(child)));
    // Not released, so it stays held until the lease expires.
    run(&["run", "-n", "t2", "true"]).ended_with(75);
}

#[tenure_testkit::test]
fn t3_a_stopped_wrapper_does_not_touch_the_next_holder() {
    let process = start(&["run", "-t", "1", "t3", "-c", "echo $$; sleep 60; true"]);
    let command = process.expect_line(SOON).parse().unwrap();
    process.pause();
    let next = start(&["run", "t3", "-c", "echo mine; read _; exit 0"]);
    assert_eq!(next.expect_line(SOON), "mine");
    assert!(!is_alive(command));
    process.resume();
    assert_eq!(code(&process), 79);
    run(&["run", "-n", "t3", "true"]).ended_with(75);
    next.close_stdin();
    assert_eq!(code(&next), 0);
}

#[tenure_testkit::test]
fn t4_a_silent_server_ends_the_command_before_the_lease() {
    let server = RedisServer::start();
    let line = "trap 'echo asked; exit 0' TERM; echo held; while :; do sleep 0.01; done";
    let process = ClientProcess::spawn(&on(&server, &["run", "-t", "2", "t4", "-c", line]));
    assert_eq!(process.expect_line(SOON), "held");
    server.pause();
    assert_eq!(process.expect_line(SOON), "asked");
    server.resume();
    // Asked while the lease had not ended: it is still there, or was just given back.
    assert_eq!(code(&process), 79);
    let told = process.stderr();
    let losing = "tenure: losing `t4`: it was not renewed in time";
    // The shell may have told first how its child ended.
    assert!(told.lines().any(|line| line.starts_with(losing)), "{told}");
}

#[tenure_testkit::test]
fn t5_a_lost_answer_leaves_no_ghost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    // What was asked is done, and its answer lost with the connection.
    proxy.reset_after_request_with(b"t5");
    let url = server.url_by_way_of(proxy.addr());
    let ended = command::run(&mut at(&url, &["run", "t5", "-c", "echo ran"]));
    ended.ended_with(0);
    assert_eq!(ended.stdout, "ran\n");
    command::run(&mut on(&server, &["run", "-n", "t5", "true"])).ended_with(0);
}

#[tenure_testkit::test]
fn t6_who_is_ended_while_waiting_is_not_served() {
    let holder = hold("t6");
    let waiter = start(&["run", "t6", "true"]);
    assert!(eventually(SOON, || waiters(server(), "t6") == 1));
    send(&waiter, Signal::SIGTERM);
    assert_eq!(code(&waiter), 143);
    assert_eq!(waiters(server(), "t6"), 0);
    send(&holder, Signal::SIGTERM);
    assert_eq!(code(&holder), 143);
    run(&["run", "-n", "t6", "true"]).ended_with(0);
}

#[tenure_testkit::test]
fn t7_times_are_fractions_and_zero_is_now() {
    let _holder = hold("t7");
    for time in ["0", ".007", "0.05", "7ms"] {
        let ended = run(&["run", "-w", time, "-E", "1", "t7", "true"]);
        ended.ended_with(1);
        assert!(ended.took < Duration::from_secs(5), "{ended}");
    }
}

#[tenure_testkit::test]
fn t8_input_passes_through() {
    let process = start(&["run", "t8", "cat"]);
    process.send_line("x");
    assert_eq!(process.expect_line(SOON), "x");
    process.close_stdin();
    assert_eq!(code(&process), 0);
}

#[tenure_testkit::test]
fn t9_a_password_is_in_no_command_line() {
    let locked = RedisServer::builder().password("s3cr3t").start();
    let process = ClientProcess::spawn(&on(
        &locked,
        &["run", "-v", "t9", "-c", "echo held; sleep 60; true"],
    ));
    assert_eq!(process.expect_line(SOON), "held");
    let warden = warden_of(process.pid());
    let mut all = vec![process.pid(), warden];
    all.extend(children(warden));
    assert_eq!(all.len(), 3);
    for id in all {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        assert!(!line.contains("s3cr3t"), "{line}");
    }
    assert!(!process.stderr().contains("s3cr3t"));
    let mut given = command::tenure(&["run", "--url", &locked.url(), "t9", "true"]);
    let ended = command::run(&mut given);
    ended.ended_with(64);
    ended.keeps("s3cr3t");
    let mut user = command::tenure(&["run", "t9", "true"]);
    let ended = command::run(user.env("TENURE_URL", format!("redis://s3cr3t@{}", locked.addr())));
    ended.ended_with(77);
}
