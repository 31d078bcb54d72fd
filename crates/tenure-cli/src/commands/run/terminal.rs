//! The terminal: which group reads it and gets Ctrl-C.

use std::fs::File;
use std::io;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group, kill_process};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::tree;

/// The terminal that controls this process.
#[derive(Debug)]
pub struct Terminal {
    device: File,
}

impl Terminal {
    /// None if there is no terminal.
    pub fn open() -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/tty");
        device.ok().map(|device| Self { device })
    }

    /// Whether this process's group has the foreground.
    pub fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    /// Whether this group has the foreground.
    pub fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&self.device).is_ok_and(|found| found == group)
    }

    /// Takes the foreground for this process's group.
    pub fn take(&self) {
        self.give_to(getpgrp());
    }

    /// Gives the foreground to a group. Fails silently: the group may have ended, or the terminal
    /// be gone.
    /// A background process that does this is stopped by TTOU, unless it blocks that signal.
    pub fn give_to(&self, group: Pid) {
        let stopping = SigSet::from(NixSignal::SIGTTOU);
        let blocked = stopping.thread_block();
        let _ = tcsetpgrp(&self.device, group);
        if blocked.is_ok() {
            let _ = stopping.thread_unblock();
        }
    }
}

/// Stops this process's whole group, as Ctrl-Z does, and returns when it is continued. Not for an
/// orphaned group.
pub fn stop_own_group() -> io::Result<()> {
    // For the other processes of a pipeline. This process has a handler.
    kill_current_process_group(Signal::TSTP)?;
    kill_process(rustix::process::getpid(), Signal::STOP)?;
    Ok(())
}

/// Whether no process outside of its own group could continue it: no shell with job control. The
/// kernel does not let Ctrl-Z stop such a group either.
pub fn is_orphaned() -> bool {
    let Some(mut process) = tree::look(rustix::process::getpid()) else {
        return true;
    };
    let (group, session) = (process.group, process.session);
    while process.group == group {
        let parent = Pid::from_raw(process.parent).and_then(tree::look);
        let Some(parent) = parent else { return true };
        process = parent;
    }
    process.session != session
}
