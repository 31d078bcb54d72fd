//! Signals that end a command.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Resolves with the exit code when a signal asks this process to end. Until the first poll, the
/// signals keep their default action.
pub async fn asked_to_end() -> Exit {
    let listen = |number| signal(SignalKind::from_raw(number));
    let (hangup, interrupt, terminate) = (listen(1), listen(2), listen(15));
    tokio::select! {
        () = heard(hangup) => Exit::Signal(1),
        () = heard(interrupt) => Exit::INTERRUPTED,
        () = heard(terminate) => Exit::Signal(15),
    }
}

async fn heard(signal: io::Result<Signal>) {
    match signal {
        Ok(mut signal) => {
            signal.recv().await;
        }
        // If it cannot be handled, it ends the process without us.
        Err(_) => std::future::pending().await,
    }
}
