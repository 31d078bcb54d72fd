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
/// `tenure force-unlock`.
mod force_unlock;
/// `tenure ls`, `show`, `watch`.
mod look;
/// What differs from run to run, cut out of what was said.
mod masks;
/// `tenure demo pitfalls`.
mod pitfalls;
/// `tenure acquire`, `renew`, `release`, `is-locked`.
mod scripts;
/// What is wrong with a command line, a URL, a server: the message and the exit code.
mod trouble;
/// `tenure --help` and `tenure --version`.
mod usage;
