//! The command `tenure`.

#![expect(
    unreachable_pub,
    reason = "a binary has no public interface: `pub` means what other modules use"
)]

mod args;
mod commands;
mod config;
mod exit;
mod lock_name;
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
        Ok(args) => commands::run(&args).unwrap_or_else(|error| report(&error)),
        Err(refused) => args::report(&refused),
    };
    exit.into()
}

/// Prints an error with its causes on one line, and returns its exit code.
fn report(error: &anyhow::Error) -> Exit {
    if is_broken_pipe(error) {
        // The reader closed the pipe, as in `tenure demo | head`.
        return Exit::Done;
    }
    output::complain(format_args!("tenure: {}", in_one_line(error)));
    Exit::of(error)
}

/// An error with its causes, without a cause that the message repeats: libraries often put the text
/// of the system's error into their own.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        let core = text.split(" (os error ").next().unwrap_or(&text);
        if line.is_empty() {
            line = text;
        } else if !line.to_lowercase().contains(&core.to_lowercase()) {
            line = format!("{line}: {text}");
        }
    }
    line
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let found = error.downcast_ref::<io::Error>();
    found.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_message_repeats_is_left_out() {
        let refused = io::Error::from_raw_os_error(111);
        let error = anyhow::Error::from(refused);
        let error = error.context("cannot connect to `h`: connection refused (is Redis running?)");
        assert_eq!(in_one_line(&error), error.to_string());
        let error = anyhow::anyhow!("the disk is full").context("cannot write `f`");
        assert_eq!(in_one_line(&error), "cannot write `f`: the disk is full");
    }
}
