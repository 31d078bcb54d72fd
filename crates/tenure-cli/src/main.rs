//! The command `tenure`.

#![expect(
    unreachable_pub,
    reason = "a binary has no public interface: `pub` means what other modules use"
)]

mod args;
mod commands;
mod config;
mod exit;
mod manual;
mod meta;
mod runtime;
mod server;
mod user;

use std::io;
use std::process::ExitCode;

use tenure_view::output;

use crate::args::Args;
use crate::exit::Exit;

fn main() -> ExitCode {
    let exit = match Args::read() {
        Ok(args) => commands::run(&args).unwrap_or_else(|error| tell(&error)),
        Err(refused) => args::tell(&refused),
    };
    exit.into()
}

/// Prints an error with its causes on one line, and says how the command ends by it.
fn tell(error: &anyhow::Error) -> Exit {
    if is_broken_pipe(error) {
        // Whoever read our output has seen enough, as in `tenure demo | head`.
        return Exit::Done;
    }
    output::complain(format_args!("tenure: {error:#}"));
    Exit::of(error)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let found = error.downcast_ref::<io::Error>();
    found.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
