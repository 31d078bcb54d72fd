//! Signals that reach this process and are meant for the command.

use std::fs;
use std::io;

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The signals that are forwarded to the command, and those among them that end the wait for a
/// lock.
const PASSED_ON: [Signal; 9] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
    Signal::TSTP,
    Signal::WINCH,
];
const ENDS_WAITING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// The signals that this process gets from now on, in order.
///
/// They are handled, never ignored: a child inherits ignored signals, but not handlers. Signals
/// that were already ignored, as with `nohup`, stay ignored in both.
#[derive(Debug)]
pub struct Signals {
    came: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// Must be called inside a runtime.
    pub fn catch() -> Result<Self> {
        let (forward, came) = mpsc::unbounded_channel();
        let ignored = ignored();
        for number in PASSED_ON {
            if contains(ignored, number) {
                continue;
            }
            let mut stream = handle(number).context("cannot handle signals")?;
            let forward = forward.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && forward.send(number).is_ok() {}
            });
        }
        Ok(Self { came })
    }

    /// The next signal. Cancel safe.
    pub async fn next(&mut self) -> Signal {
        match self.came.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next signal that ends the wait for a lock. Cancel safe.
    pub async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDS_WAITING.contains(&signal) {
                return signal;
            }
            if signal == Signal::TSTP {
                // There is no command yet to forward it to.
                let _ = kill_process(getpid(), Signal::STOP);
            }
        }
    }
}

/// Survives the signals that whole groups and units get: the wrapper decides.
pub fn survive() -> Result<()> {
    let ignored = ignored();
    for number in PASSED_ON {
        if !contains(ignored, number) && number != Signal::CONT && number != Signal::WINCH {
            // The handler stays after the stream is dropped.
            drop(handle(number).context("cannot handle signals")?);
        }
    }
    Ok(())
}

/// Notifies when a child has ended or stopped.
pub fn children() -> io::Result<tokio::signal::unix::Signal> {
    signal(SignalKind::child())
}

/// The signal's number as used in exit codes.
pub fn number(signal: Signal) -> u8 {
    u8::try_from(signal.as_raw()).unwrap_or(0)
}

fn handle(number: Signal) -> io::Result<tokio::signal::unix::Signal> {
    signal(SignalKind::from_raw(number.as_raw()))
}

fn contains(mask: u64, signal: Signal) -> bool {
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// The signals that this process ignores, a bit for each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
