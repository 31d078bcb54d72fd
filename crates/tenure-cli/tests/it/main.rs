//! One binary for all tests that run the real command. Table of contents:

#![expect(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test that panics has failed, and a test binary has no public interface"
)]

/// Starting the command, and what it said.
mod command;
/// `tenure demo`.
mod demo;
/// `tenure demo pitfalls`.
mod pitfalls;
/// `tenure run`.
mod run;
/// What is wrong with a command line, a URL, a server: the message and the exit code.
mod trouble;
/// `tenure --help` and `tenure --version`.
mod usage;
