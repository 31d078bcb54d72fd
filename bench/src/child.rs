//! This program once more, as a process of its own, for what only processes can show.
//!
//! Parent and child talk by lines: the child says `ready`, the parent says when to begin, the child
//! answers with what it measured. Children die with the parent.

use std::io::{self, Write};
use std::process::Command;
use std::time::Duration;

use tenure_testkit::ClientProcess;

/// The first argument of a child, which the usage does not mention.
pub const CHILD: &str = "child";
/// How long a child may take to connect, and to answer after its work is done.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Starts this program as a child that runs `task`.
pub fn spawn(task: &str, arguments: &[String]) -> ClientProcess {
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut command = Command::new(program);
    command.arg(CHILD).arg(task).args(arguments);
    ClientProcess::spawn(&command)
}

/// In the parent: waits for the child to be ready.
pub fn await_ready(child: &ClientProcess) {
    assert_eq!(child.expect_line(PATIENCE), "ready");
}

/// In the child: says that it is ready, and returns what the parent answers.
pub fn ready() -> String {
    tell("ready");
    let mut line = String::new();
    io::stdin().read_line(&mut line).expect("the parent speaks");
    line.trim().to_owned()
}

/// In the child: says a line.
pub fn tell(line: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("the parent listens");
}

/// Numbers as one line.
pub fn join(numbers: impl IntoIterator<Item = u64>) -> String {
    let words: Vec<String> = numbers
        .into_iter()
        .map(|number| number.to_string())
        .collect();
    words.join(" ")
}

/// A line of numbers.
pub fn split(line: &str) -> Vec<u64> {
    let numbers = line.split_whitespace().map(str::parse);
    let numbers: Result<Vec<u64>, _> = numbers.collect();
    numbers.unwrap_or_else(|error| panic!("a child said `{line}`: {error}"))
}
