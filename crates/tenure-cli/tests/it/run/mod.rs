//! `tenure run`. Table of contents:

/// Several locks for one command.
mod also;
/// What is left of a command's descendants, and when.
mod descendants;
/// Every exit code.
mod exits;
/// First come, first served.
mod fair;
/// All processes dead before another client can hold the lock, whatever is stopped or killed.
mod faults;
/// What is said, word for word.
mod messages;
/// What each option does.
mod options;
/// What the command gets, and what it gives.
mod passing;
/// Signals, while waiting and while running.
mod signals;
/// At most so many commands at once, each with a slot.
mod slots;
/// A process that stamps the time for as long as it lives.
mod stamper;
/// Who is not the command's is left alone.
mod strangers;
/// A command that has the terminal.
mod terminal;
/// A command is not started when its time is over already.
mod too_late;
/// The traps that other tools fell into.
mod traps;
/// A peer that does not read blocks no process.
mod unheard;
/// A stderr that is not read blocks no process.
mod unread;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure_testkit::{ClientProcess, RedisServer, eventually};

use crate::command;

/// For what happens soon, with room for a crowded machine.
const SOON: Duration = Duration::from_secs(20);

/// A server that no test breaks. Each test has its own lock there.
fn server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

/// `tenure` with these arguments on this server.
fn on(server: &RedisServer, arguments: &[&str]) -> Command {
    at(&server.url(), arguments)
}

fn at(url: &str, arguments: &[&str]) -> Command {
    let mut command = command::tenure(arguments);
    command.env("TENURE_URL", url);
    for variable in ["TENURE_TTL", "TENURE_LEASE", "TENURE_NAME", "TENURE_CONFIG"] {
        command.env_remove(variable);
    }
    command
}

/// Runs `tenure` with these arguments to its end.
fn run(arguments: &[&str]) -> command::Ended {
    command::run(&mut on(server(), arguments))
}

/// Starts `tenure` with these arguments.
fn start(arguments: &[&str]) -> ClientProcess {
    ClientProcess::spawn(&on(server(), arguments))
}

/// Starts a command that holds the lock, and returns when it does.
fn hold(name: &str) -> ClientProcess {
    hold_with(&[], name)
}

fn hold_with(options: &[&str], name: &str) -> ClientProcess {
    let arguments = [&["run"], options, &[name, "-c", "echo held; exec sleep 60"]].concat();
    let holder = start(&arguments);
    assert_eq!(holder.expect_line(SOON), "held");
    holder
}

#[track_caller]
fn code(process: &ClientProcess) -> i32 {
    let status = process.wait(SOON);
    let status = status.unwrap_or_else(|| panic!("did not end; {}", process.stderr()));
    status.code().expect("it was not killed")
}

fn send(process: &ClientProcess, signal: Signal) {
    kill(pid(process.pid()), signal).unwrap();
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap())
}

/// The children of a process.
fn children(of: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent(*id) == Some(of)).collect()
}

fn parent(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// Whether a process exists and has not ended.
fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| state != b'Z' && state != b'X')
}

/// The warden of a wrapper that runs its command.
fn warden_of(wrapper: u32) -> u32 {
    let mut found = None;
    let is_there = eventually(SOON, || {
        found = children(wrapper).into_iter().next();
        found.is_some_and(|warden| !children(warden).is_empty())
    });
    assert!(is_there, "no warden of process `{wrapper}`");
    found.unwrap()
}

/// Whether the server's queue has a waiter for the lock.
fn waiters(server: &RedisServer, name: &str) -> usize {
    let reply = server
        .client()
        .command(&["ZCARD", &format!("tenure:queue:{{{name}}}")]);
    usize::try_from(reply.int()).unwrap()
}

#[track_caller]
fn wait_for_file(path: &Path) {
    let is_there = eventually(SOON * 3, || {
        path.metadata().is_ok_and(|found| found.len() > 0)
    });
    assert!(is_there, "no `{}`", path.display());
}
