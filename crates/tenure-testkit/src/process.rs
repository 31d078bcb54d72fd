//! Client programs in separate processes, to pause and kill.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::mutex::lock;
use crate::spawn;
use crate::wait::eventually;

/// For how long to wait for the rest of the standard error of a process that has ended.
const STDERR_LIMIT: Duration = Duration::from_secs(2);

/// A child process with line-based input and output, killed when dropped.
///
/// Every method takes `&self`, so that a nemesis thread can break a process that other threads use.
#[derive(Debug)]
pub struct ClientProcess {
    name: String,
    child: Mutex<Child>,
    stdin: Mutex<Option<ChildStdin>>,
    lines: Mutex<Receiver<String>>,
    stderr: Arc<Mutex<String>>,
}

impl ClientProcess {
    /// Starts the program with the arguments, environment and directory of `command`. The kit connects
    /// its standard input, output and error. Panics if it cannot be started.
    #[track_caller]
    pub fn spawn(command: &Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = match spawn::spawn(mortal_copy(command)) {
            Ok(child) => child,
            Err(error) => panic!("failed to start `{name}`: {error}"),
        };
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        Self {
            name,
            stdin: Mutex::new(child.stdin.take()),
            lines: Mutex::new(read_lines(stdout)),
            stderr: collect(stderr),
            child: Mutex::new(child),
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Stops the process (`SIGSTOP`); returns once it is stopped.
    pub fn pause(&self) {
        spawn::stop(&lock(&self.child));
    }

    /// Resumes a paused process (`SIGCONT`).
    pub fn resume(&self) {
        spawn::cont(&lock(&self.child));
    }

    /// Kills the process (`SIGKILL`), paused or not, and waits until it exits.
    pub fn kill(&self) {
        spawn::kill_and_wait(&mut lock(&self.child));
    }

    /// Whether the process exists, paused or not.
    pub fn is_running(&self) -> bool {
        matches!(lock(&self.child).try_wait(), Ok(None))
    }

    /// Waits until the process exits; `None` if it does not within `limit`.
    pub fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let mut status = None;
        eventually(limit, || {
            let ended = lock(&self.child).try_wait();
            status = ended.expect("failed to wait for a child");
            status.is_some()
        });
        status
    }

    /// Waits until the process exits; panics with its standard error unless it succeeds within `limit`.
    #[track_caller]
    pub fn wait_for_success(&self, limit: Duration) {
        match self.wait(limit) {
            Some(status) if status.success() => {}
            Some(status) => self.fail(&format!("ended with `{status}`")),
            None => self.fail(&format!("did not end within `{limit:?}`")),
        }
    }

    /// Writes a line to its standard input; panics if that is closed.
    #[track_caller]
    pub fn send_line(&self, line: &str) {
        let mut stdin = lock(&self.stdin);
        let stdin = stdin.as_mut().expect("its standard input was closed");
        if let Err(error) = writeln!(stdin, "{line}").and_then(|()| stdin.flush()) {
            self.fail(&format!("does not read `{line}`: {error}"));
        }
    }

    /// Closes its standard input.
    pub fn close_stdin(&self) {
        *lock(&self.stdin) = None;
    }

    /// The next line of its standard output; `None` if none comes within `limit` or the output ends.
    pub fn read_line(&self, limit: Duration) -> Option<String> {
        lock(&self.lines).recv_timeout(limit).ok()
    }

    /// The next line of its standard output; panics with its standard error if there is none
    /// within `limit`.
    #[track_caller]
    pub fn expect_line(&self, limit: Duration) -> String {
        match self.read_line(limit) {
            Some(line) => line,
            None => self.fail(&format!("wrote no line within `{limit:?}`")),
        }
    }

    /// The remaining lines of its standard output; waits until the output ends.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        std::iter::from_fn(|| lock(&self.lines).recv().ok())
    }

    /// Its standard error so far; all of it, if the process has ended.
    pub fn stderr(&self) -> String {
        if !self.is_running() {
            // The thread that reads it may be behind. It does not end while a child of the process has
            // the other end of the pipe.
            eventually(STDERR_LIMIT, || Arc::strong_count(&self.stderr) == 1);
        }
        lock(&self.stderr).clone()
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        let (name, pid) = (&self.name, self.pid());
        panic!(
            "`{name}` (process `{pid}`) {what}; its standard error:\n{}",
            self.stderr()
        );
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn mortal_copy(command: &Command) -> Command {
    let mut copy = spawn::mortal(command.get_program());
    copy.args(command.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => copy.env(name, value),
            None => copy.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        copy.current_dir(dir);
    }
    copy
}

/// Reads continuously, so that the child never blocks on a full pipe.
fn read_lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            let text = text.strip_suffix('\n').unwrap_or(&text);
            if sender.send(text.into()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

fn collect(mut output: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = Arc::clone(&text);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            lock(&collected).push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    });
    text
}
