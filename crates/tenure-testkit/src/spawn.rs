//! Child processes that do not outlive the test process, however it ends.
//!
//! `Drop` kills a child when a test ends normally. When the test process itself is killed, the kernel
//! must do it: `PR_SET_PDEATHSIG`, which `setpriv --pdeathsig` sets without `unsafe` code here. Without
//! `setpriv`, children are started directly.

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

/// How long a signal may take. It does not reach a process that waits for a disk (state `D`), and
/// writing an append-only file to a busy disk may take seconds.
const SIGNAL_LIMIT: Duration = Duration::from_secs(60);

/// A command that runs `program` so that it dies with this process, if the system supports that.
///
/// `setpriv` replaces itself with the program, so the child's id is the program's id.
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
/// The death signal is sent when the *thread* that started the child ends, not the process. A test's
/// thread may end while another test still uses the server.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::Builder::new()
            .name("testkit-starter".into())
            .spawn(move || {
                for mut order in inbox {
                    // The caller may have panicked meanwhile; no other thread needs the child.
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

/// Stops the child and returns once the kernel has stopped it or it has exited.
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

/// Whether the child has exited (it may be a zombie).
fn has_ended(child: &Child) -> bool {
    matches!(state(child), None | Some('Z' | 'X'))
}

/// Whether the child is stopped.
pub(crate) fn is_stopped(child: &Child) -> bool {
    state(child) == Some('T')
}

/// Kills the child, stopped or not, and waits until it exits. Does nothing if it has exited already.
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

/// The process and its current state.
fn describe(child: &Child) -> String {
    let state = state(child).unwrap_or('?');
    format!("process `{}`, in state `{state}`,", child.id())
}

/// The process's state letter from `/proc`, `T` when stopped.
fn state(child: &Child) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // The second field is the program's name in parentheses, which may contain any character.
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
