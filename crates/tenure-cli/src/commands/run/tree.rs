//! All descendants of this process, in whatever group or session.
//!
//! This process is a subreaper: whoever loses its parent becomes its child. So every descendant
//! can be reached from here by parents, and none is left when there is no child left.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper,
    test_kill_process, wait,
};

/// A process as the kernel lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub id: i32,
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
}

/// Becomes the parent of every descendant that loses its own.
pub fn adopt_orphans() -> Result<(), Errno> {
    set_child_subreaper(Some(getpid()))
}

/// What the kernel says of a process; None if there is none, or it cannot be read.
pub fn look(id: Pid) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).ok()?;
    parse(&stat)
}

impl Process {
    /// Whether nothing is left of it but its exit code.
    fn has_ended(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// The children of this process, also those that have ended and are not buried. None is left out:
/// nobody but us can bury one meanwhile.
pub fn children() -> Vec<Pid> {
    let children = Listing::take().children_of(getpid().as_raw_nonzero().get());
    children.into_iter().filter_map(Pid::from_raw).collect()
}

/// All descendants that have not ended, without those strangers and theirs.
pub fn descendants(strangers: &[Pid]) -> Vec<Pid> {
    let listed = Listing::take();
    let mut found = Vec::new();
    let mut parents = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        let children = listed.children_of(parent).into_iter();
        for pid in children.filter_map(Pid::from_raw) {
            if strangers.contains(&pid) {
                continue;
            }
            parents.push(pid.as_raw_nonzero().get());
            if is_alive(pid, look(pid)) {
                found.push(pid);
            }
        }
    }
    found
}

/// Whether a process has not ended. One of which nothing can be read, as where `/proc` hides those
/// of other users, is alive unless there is none: it would never be killed otherwise.
fn is_alive(pid: Pid, seen: Option<Process>) -> bool {
    match seen {
        Some(process) => !process.has_ended(),
        None => test_kill_process(pid) != Err(Errno::SRCH),
    }
}

/// Sends signals to all descendants but these strangers and theirs. Tells the first that they may not be sent to.
pub fn signal_all(signals: &[Signal], strangers: &[Pid]) -> Option<Pid> {
    let mut forbidden = None;
    for pid in descendants(strangers) {
        for signal in signals {
            if kill_process(pid, *signal) == Err(Errno::PERM) {
                forbidden = forbidden.or(Some(pid));
            }
        }
    }
    forbidden
}

/// Sends a signal to all descendants that are in this group.
pub fn signal_group(group: Pid, signal: Signal) {
    let group = group.as_raw_nonzero().get();
    for pid in descendants(&[]) {
        if look(pid).is_some_and(|process| process.group == group) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Whether this process is a child of ours, which it is until we bury it.
pub fn is_child(pid: Pid) -> bool {
    look(pid).is_some_and(|process| Pid::from_raw(process.parent) == Some(getpid()))
}

/// How long to wait after so many rounds of killing: who does not die of the first hangs in the
/// kernel, or may not be killed by us.
pub fn pause_after_killing(rounds: u32) -> Duration {
    Duration::from_millis(if rounds < 500 { 1 } else { 50 })
}

/// Who is whose child.
enum Listing {
    /// The kernel tells it for each process. It may leave out one while another ends; whoever must
    /// have them all asks until there is no child left.
    ByKernel,
    /// It does not, so all processes of the machine were asked for their parents. On a crowded one
    /// that takes long enough to miss a deadline.
    ByParent(HashMap<i32, Vec<i32>>),
}

impl Listing {
    fn take() -> Self {
        let own = getpid().as_raw_nonzero();
        if fs::exists(format!("/proc/{own}/task/{own}/children")).unwrap_or(false) {
            return Self::ByKernel;
        }
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for process in all() {
            children.entry(process.parent).or_default().push(process.id);
        }
        Self::ByParent(children)
    }

    fn children_of(&self, parent: i32) -> Vec<i32> {
        let Self::ByParent(children) = self else {
            // Each thread has its own.
            let threads = fs::read_dir(format!("/proc/{parent}/task"));
            let threads = threads.into_iter().flatten().flatten();
            let lists =
                threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
            let words = lists.flat_map(|list| list.split(' ').map(str::parse).collect::<Vec<_>>());
            return words.flatten().collect();
        };
        children.get(&parent).cloned().unwrap_or_default()
    }
}

/// What a child did.
#[derive(Debug)]
pub enum Reaped {
    /// This one changed: it ended or stopped.
    Child(Pid, WaitStatus),
    /// Nobody, just now.
    Nobody,
    /// There is no child, and so no descendant either.
    NoChild,
}

/// Asks, without waiting, what a child did, and buries it if it has ended.
pub fn reap() -> Reaped {
    loop {
        return match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => Reaped::Child(pid, status),
            Ok(None) => Reaped::Nobody,
            Err(Errno::INTR) => continue,
            Err(_) => Reaped::NoChild,
        };
    }
}

fn all() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name();
        let id = name.to_str()?.parse().ok()?;
        look(Pid::from_raw(id)?)
    })
}

/// Reads a line of `/proc/PID/stat`. Its second field is the program's name in parentheses, and may
/// contain anything.
fn parse(stat: &str) -> Option<Process> {
    let (id, rest) = stat.split_once(" (")?;
    let (_, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.bytes().next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Process {
        id: id.parse().ok()?,
        state,
        parent: number()?,
        group: number()?,
        session: number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_cannot_be_read_is_alive_until_it_is_gone() {
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(is_alive(pid, None) && is_alive(pid, look(pid)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(pid, None));
    }

    #[test]
    fn a_name_may_contain_anything() {
        let process = parse("7 (a) R 1 (b) T 3 4 5 0 -1").unwrap();
        assert_eq!((process.id, process.parent), (7, 3));
        assert_eq!((process.group, process.session), (4, 5));
        assert!(!process.has_ended());
        assert_eq!(parse("7 (sh"), None);
    }
}
