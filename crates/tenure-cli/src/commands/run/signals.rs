//! Signals that reach this process and are meant for the command.

use std::fs;
use std::io;

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What is passed on to the command, and what ends the waiting for a lock among it.
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

/// The signals that this process gets from now on, in their order.
///
/// They are handled, never ignored: what is ignored stays so in a command that is started, and
/// handlers do not. What was ignored already, as `nohup` does, stays ignored here and there.
#[derive(Debug)]
pub struct Signals {
    came: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// Must be called inside a runtime.
    pub fn catch() -> Result<Self> {
        let (tell, came) = mpsc::unbounded_channel();
        let ignored = ignored();
        for number in PASSED_ON {
            if contains(ignored, number) {
                continue;
            }
            let mut stream = handle(number).context("cannot handle signals")?;
            let tell = tell.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && tell.send(number).is_ok() {}
            });
        }
        Ok(Self { came })
    }

    /// The next one. Cancel safe.
    pub async fn next(&mut self) -> Signal {
        match self.came.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next one that ends whoever waits for a lock. Cancel safe.
    pub async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDS_WAITING.contains(&signal) {
                return signal;
            }
            if signal == Signal::TSTP {
                // There is no command yet that it could be passed on to.
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
            // The handler stays when the stream is gone.
            drop(handle(number).context("cannot handle signals")?);
        }
    }
    Ok(())
}

/// Tells when a child has changed: ended or stopped.
pub fn children() -> io::Result<tokio::signal::unix::Signal> {
    signal(SignalKind::child())
}

/// The number of a signal as exit codes carry it.
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
