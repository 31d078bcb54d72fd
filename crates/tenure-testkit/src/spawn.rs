//! Children that do not outlive the test process, however it ends.
//!
//! `Drop` kills a child when a test ends in the usual ways. When the test process itself is
//! killed, the kernel must do it: `PR_SET_PDEATHSIG`, which `setpriv --pdeathsig` sets without
//! `unsafe` code here. Where `setpriv` does not exist, children are started plainly.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::eventually;

/// How long a process may take to follow a signal. None of them reaches one that waits for a disk
/// (state `D`), and an append-only file may wait for seconds where others write, too.
const SIGNAL_LIMIT: Duration = Duration::from_secs(60);

/// A command that runs `program` so that it dies with this process, if the system can do that.
///
/// `setpriv` replaces itself by the program, so the child's id is the program's id.
pub(crate) fn mortal(program: &OsStr) -> Command {
    if setpriv_exists() {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// Starts `command` from a thread that lives as long as this process.
///
/// The death signal is sent when the *thread* that started the child ends, not the process, and a
/// test's thread may well end before a server which another test goes on using.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::Builder::new()
            .name("testkit-starter".into())
            .spawn(move || {
                for mut order in inbox {
                    // The one who ordered may have panicked meanwhile; nobody else wants it.
                    let _ = order.answer.send(order.command.spawn());
                }
            })
            .expect("failed to start the thread that starts children");
        orders
    });
    let (answer, child) = mpsc::channel();
    starter
        .send(Order { command, answer })
        .expect("the thread that starts children has ended");
    child
        .recv()
        .expect("the thread that starts children has ended")
}

/// Stops the child and returns once the kernel has stopped it, or it has ended by itself meanwhile.
pub(crate) fn stop(child: &Child) {
    signal(child, Signal::SIGSTOP);
    let stopped = eventually(SIGNAL_LIMIT, || is_stopped(child) || has_ended(child));
    assert!(stopped, "{} did not stop", describe(child));
}

/// Lets a stopped child run again.
pub(crate) fn cont(child: &Child) {
    signal(child, Signal::SIGCONT);
    let running = eventually(SIGNAL_LIMIT, || !is_stopped(child));
    assert!(running, "{} did not continue", describe(child));
}

/// Whether nothing is left of the child but its exit code.
fn has_ended(child: &Child) -> bool {
    matches!(state(child), None | Some('Z' | 'X'))
}

/// Whether the child stands.
pub(crate) fn is_stopped(child: &Child) -> bool {
    state(child) == Some('T')
}

/// Kills the child, stopped or not, and waits for its end. Does nothing if it has ended already.
pub(crate) fn kill_and_wait(child: &mut Child) {
    let _ = child.kill();
    let ended = eventually(SIGNAL_LIMIT, || !matches!(child.try_wait(), Ok(None)));
    assert!(ended, "{} did not die", describe(child));
}

struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).expect("process ids fit an i32");
    if let Err(error) = kill(Pid::from_raw(id), signal) {
        panic!("failed to send `{signal}` to process `{id}`: {error}");
    }
}

/// Which process it is, and what it does instead of what it was told.
fn describe(child: &Child) -> String {
    let state = state(child).unwrap_or('?');
    format!("process `{}`, in state `{state}`,", child.id())
}

/// The process's state letter from `/proc`, `T` when stopped.
fn state(child: &Child) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // The second field is the program's name in parentheses and may itself contain anything.
    stat.rsplit(") ").next()?.chars().next()
}

pub(crate) fn setpriv_exists() -> bool {
    static EXISTS: OnceLock<bool> = OnceLock::new();
    *EXISTS.get_or_init(|| {
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "true"])
            .output()
            .is_ok_and(|output| output.status.success())
    })
}
