//! All descendants of this process, in any group or session. This process is a subreaper: a
//! descendant that loses its parent becomes its child. So every descendant can be found through its
//! parents, and none is left when there is no child left.

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

/// Becomes the parent of every descendant that loses its parent.
pub fn adopt_orphans() -> Result<(), Errno> {
    set_child_subreaper(Some(getpid()))
}

/// The kernel's record of a process; None if it does not exist or cannot be read.
pub fn look(id: Pid) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).ok()?;
    parse(&stat)
}

impl Process {
    /// Whether it has ended and only its exit code is left.
    fn has_ended(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// The children of this process, including ended ones that are not reaped. None is missing:
/// only this process can reap them.
pub fn children() -> Vec<Pid> {
    let children = Listing::take().children_of(getpid().as_raw_nonzero().get());
    children.into_iter().filter_map(Pid::from_raw).collect()
}

/// All descendants that have not ended, except these strangers and their descendants.
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

/// Whether a process has not ended. If `/proc` hides it, as for processes of other users, it counts
/// as alive while its pid exists: otherwise it would never be killed.
fn is_alive(pid: Pid, seen: Option<Process>) -> bool {
    match seen {
        Some(process) => !process.has_ended(),
        None => test_kill_process(pid) != Err(Errno::SRCH),
    }
}

/// Sends signals to all descendants except these strangers and their descendants. Returns the first
/// that may not be signalled.
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

/// Whether this process is our child, which it is until it is reaped.
pub fn is_child(pid: Pid) -> bool {
    look(pid).is_some_and(|process| Pid::from_raw(process.parent) == Some(getpid()))
}

/// How long to wait after this many rounds of killing: a process that survives the first hangs in
/// the kernel, or we may not kill it.
pub fn pause_after_killing(rounds: u32) -> Duration {
    Duration::from_millis(if rounds < 500 { 1 } else { 50 })
}

/// The children of each process.
enum Listing {
    /// The kernel lists them for each process. It may miss one while another ends; to get all, ask
    /// until there is no child left.
    ByKernel,
    /// The kernel does not, so all processes of the machine were asked for their parents. With a
    /// large number of processes that can take long enough to miss a deadline.
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

/// A change of a child.
#[derive(Debug)]
pub enum Reaped {
    /// This child has ended or stopped.
    Child(Pid, WaitStatus),
    /// None right now.
    NoChange,
    /// There is no child, and so no descendant either.
    NoChild,
}

/// Polls for a change of a child, and reaps it if it has ended.
pub fn reap() -> Reaped {
    loop {
        return match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => Reaped::Child(pid, status),
            Ok(None) => Reaped::NoChange,
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
