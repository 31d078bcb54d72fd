//! One binary for all tests that run the real command. Table of contents:

#![expect(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test that panics has failed, and a test binary has no public interface"
)]

/// `tenure bench`: how fast locks are on a server.
mod bench;
/// Starting the command, and what it said.
mod command;
/// The configuration file and the environment.
mod config;
/// `tenure demo`.
mod demo;
/// `tenure doctor`: is this Redis server fit for locks?
mod doctor;
/// `tenure elect` and `tenure leader`.
mod elect;
/// `tenure force-unlock`.
mod force_unlock;
/// Characters that act on a terminal.
mod hidden_characters;
/// What a command leaves on a server.
mod leftovers;
/// `tenure ls`, `show`, `watch`.
mod look;
/// `tenure completions`, `tenure man`, and what is written about the command.
mod manual;
/// What differs from run to run, cut out of what was said.
mod masks;
/// `tenure once`.
mod once;
/// `tenure demo pitfalls`.
mod pitfalls;
/// `tenure run`.
mod run;
/// `tenure sale`.
mod sale;
/// `tenure acquire`, `renew`, `release`, `is-locked`.
mod scripts;
/// `tenure serve`.
mod serve;
/// What is wrong with a command line, a URL, a server: the message and the exit code.
mod trouble;
/// `tenure --help` and `tenure --version`.
mod usage;
