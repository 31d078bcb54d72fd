//! The keeper: a process of `tenure` that renews a lease until another process exits, then releases
//! it.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, setsid};
use tenure::{ErrorKind, Lease, Locks};
use tenure_view::output::say;
use tokio::sync::oneshot;

use crate::exit::{Exit, Failed};

/// What the keeper prints when it has taken over the lease.
const READY: &str = "ready";
/// How long to wait before the next renewal after a failed one.
const PAUSE: Duration = Duration::from_millis(500);

/// A process, identified by more than its pid, which may be reused.
pub struct Process {
    number: i32,
    pidfd: OwnedFd,
}

impl Process {
    pub fn open(number: i32) -> Result<Self> {
        // It panics for negative numbers.
        let pid = Some(number).filter(|number| *number > 0);
        let opened = pid
            .and_then(Pid::from_raw)
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match opened {
            Ok(pidfd) => Ok(Self { number, pidfd }),
            Err(error) => Err(Failed::usage(format!(
                "cannot watch process `{number}`: {}",
                io::Error::from(error)
            ))
            .into()),
        }
    }

    fn has_ended(&self) -> bool {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        self.wait(Some(&at_once))
    }

    fn wait(&self, limit: Option<&Timespec>) -> bool {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut polled, limit).is_ok_and(|ready| ready > 0)
    }

    /// Resolves when it has ended.
    fn ended(self) -> oneshot::Receiver<()> {
        let (notify, ended) = oneshot::channel();
        thread::spawn(move || {
            // It is interrupted only by a signal that we handle.
            while !self.wait(None) {}
            let _ = notify.send(());
        });
        ended
    }
}

/// Starts the keeper, and returns when it has taken over the lease.
pub fn start(lease: &Lease, process: &Process) -> Result<()> {
    let program = env::current_exe().context("cannot find the path of this program")?;
    // With the same command line, so that it finds the same server in the same way.
    let mut arguments = env::args_os().skip(1);
    let command: Option<OsString> = arguments.next();
    let mut keeper = Command::new(program);
    keeper.args(command).arg("--keep").args(arguments);
    keeper.stdin(Stdio::piped()).stderr(Stdio::null());
    let mut keeper = keeper.stdout(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = keeper.stdin.take() {
        // Not as an argument, which other users can see. If the keeper has died, it says nothing below.
        let _ = write!(stdin, "{lease}");
    }
    let mut said = String::new();
    if let Some(stdout) = keeper.stdout.take() {
        BufReader::new(stdout).read_line(&mut said)?;
    }
    let number = process.number;
    // It still existed after the keeper had opened it: so both watch the same process.
    if said.trim_end() != READY || process.has_ended() {
        let message = format!("cannot keep the lease: process `{number}` or its keeper exited");
        return Err(Failed::new(Exit::Unavailable, message).into());
    }
    Ok(())
}

/// The lease that the process which started the keeper wrote.
pub fn lease_of_stdin() -> Result<Lease> {
    Ok(io::read_to_string(io::stdin())?.parse()?)
}

/// The keeper process.
pub async fn keep(locks: &Locks, lease: &Lease, process: Process) -> Result<Exit> {
    // Signals to the script's session must not reach the keeper. It may already lead a session.
    let _ = setsid();
    locks.renew(lease, lease.ttl()).await?;
    say(READY)?;
    let mut ended = process.ended();
    let mut pause = lease.ttl() / 3;
    loop {
        tokio::select! {
            _ = &mut ended => {
                locks.force_release(lease.name().as_str(), lease.id()).await?;
                return Ok(Exit::Done);
            }
            () = tokio::time::sleep(pause) => {}
        }
        pause = match locks.renew(lease, lease.ttl()).await {
            Ok(_) => lease.ttl() / 3,
            Err(error) if error.kind() == ErrorKind::Lost => return Err(error.into()),
            Err(_) => PAUSE.min(lease.ttl() / 3),
        };
    }
}
