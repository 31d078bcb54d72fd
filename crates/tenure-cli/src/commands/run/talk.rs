//! What wrapper and warden say to each other.
//!
//! They talk over a Unix socket with an abstract name: it is no file, no descriptor of it has to be
//! inherited, so that none can leak into the command and keep it open, and each side learns by its
//! end that the other one is gone. Both check that the other end is who it should be.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, getppid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::boot_clock::BootTime;

/// What the wrapper says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Start the command.
    Start {
        /// What to add to its environment.
        environment: Vec<(String, String)>,
        schedule: Schedule,
        /// How long it has from TERM to KILL.
        kill_after_ms: u64,
        /// Wait for those who outlive the command instead of ending them.
        wait_all: bool,
        /// Give it the terminal.
        foreground: bool,
    },
    /// The lease was renewed. Answered, so that each side knows that the other one is there.
    Keep(Schedule),
    /// Pass this signal on to the command's group.
    Signal(i32),
    /// Continue the command, which was stopped.
    Continue { foreground: bool },
    /// End all of it: TERM now, KILL then.
    End { kill_at: BootTime },
}

/// Until when the command may run, if nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub term_at: Option<BootTime>,
    pub kill_at: Option<BootTime>,
}

impl Schedule {
    /// Whether a command that is started now would be ended at once.
    pub fn is_over(self) -> bool {
        let moments = [self.term_at, self.kill_at];
        moments.into_iter().flatten().any(BootTime::has_come)
    }
}

/// What the warden says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// The command runs, in a group of this number.
    Started { group: i32 },
    /// It could not be started: the system's error, and its number.
    NotStarted { cause: String, is_missing: bool },
    /// It was not started, because its time was over already.
    TooLate,
    /// I am here.
    Kept,
    /// The command was stopped by this signal.
    Stopped(i32),
    /// I begin to end it, because nobody told me that the lease was renewed.
    Ending,
    /// The command has ended.
    Ended(How),
    /// So many that it started have not, and I begin to end them.
    Outlived(usize),
    /// Nobody is left.
    AllGone,
    /// This one cannot be ended: we may not.
    Forbidden(i32),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    Code(u8),
    Signal(u8),
}

/// How long a warden may take to answer, and how often to look whether it is still there.
const START_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
/// How many bytes to keep for one who does not listen. Nothing hangs on a word that was dropped:
/// either side does without the other when its time comes.
const UNSAID_MAX: usize = 1 << 20;

/// Hears `T`.
#[derive(Debug)]
pub struct Hearing<T> {
    lines: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
    said: std::marker::PhantomData<fn() -> T>,
}

/// Says things, and never waits for one who does not listen.
#[derive(Debug)]
pub struct Saying {
    socket: OwnedWriteHalf,
    /// What did not fit into the socket.
    unsaid: Vec<u8>,
}

/// Starts a warden and connects to it. `command` gets the socket's name as its next argument, and
/// then `rest`.
pub async fn start(
    mut command: Command,
    rest: Vec<OsString>,
) -> Result<(Child, Hearing<News>, Saying)> {
    let name = format!("tenure-{:032x}", rand::random::<u128>());
    let address = SocketAddr::from_abstract_name(&name)?;
    let listener = UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let mut child = command.arg(name).args(rest).spawn()?;
    let pid = Pid::from_child(&child);
    let begun = Instant::now();
    while begun.elapsed() < START_MAX {
        // Everybody on this machine may connect to such a name.
        match tokio::time::timeout(LOOK, listener.accept()).await {
            Ok(Ok((stream, _))) if peer(&stream) == Some(pid) => {
                let (hearing, saying) = parts(stream);
                return Ok((child, hearing, saying));
            }
            Ok(accepted) => drop(accepted?),
            Err(_) => {
                let ended = child.try_wait()?;
                ensure!(ended.is_none(), "it ended at once");
            }
        }
    }
    let _ = child.kill();
    bail!("it did not answer within {START_MAX:?}")
}

/// Connects to the wrapper that started this process.
pub fn answer(name: &str) -> Result<(Hearing<Order>, Saying)> {
    let address = SocketAddr::from_abstract_name(name)?;
    let stream = std::os::unix::net::UnixStream::connect_addr(&address);
    let stream = stream.context("cannot reach the wrapper: only `tenure run` starts a warden")?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    ensure!(
        peer(&stream).is_some() && peer(&stream) == getppid(),
        "somebody else answers in the wrapper's place"
    );
    Ok(parts(stream))
}

impl<T: DeserializeOwned> Hearing<T> {
    /// The next that is said; None if the other side is gone. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<T>> {
        let read = self.lines.read_until(b'\n', &mut self.line).await;
        match read {
            Ok(0) => return Ok(None),
            Ok(_) if !self.line.ends_with(b"\n") => return Ok(None),
            Ok(_) => {}
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let said = serde_json::from_slice(&self.line);
        self.line.clear();
        match said {
            Ok(said) => Ok(Some(said)),
            Err(error) => bail!("wrapper and warden do not understand each other: {error}"),
        }
    }
}

impl Saying {
    /// Says it, if somebody is there to hear: that nobody is, is noticed by hearing.
    pub fn say(&mut self, what: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(what) else {
            return;
        };
        line.push(b'\n');
        if self.unsaid.len() + line.len() <= UNSAID_MAX {
            self.unsaid.extend(line);
            self.go_on();
        }
    }

    /// Whether something is left to be said.
    pub fn has_unsaid(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// Waits until more can be said, and says it. Cancel safe.
    pub async fn say_more(&mut self) {
        match self.socket.writable().await {
            Ok(()) => self.go_on(),
            Err(_) => self.unsaid.clear(),
        }
    }

    /// Says all that is left, however long the other side takes to hear it.
    pub async fn say_all(&mut self) {
        while self.has_unsaid() {
            self.say_more().await;
        }
    }

    fn go_on(&mut self) {
        while self.has_unsaid() {
            match self.socket.try_write(&self.unsaid) {
                Ok(count) => drop(self.unsaid.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Nobody is there.
                Err(_) => self.unsaid.clear(),
            }
        }
    }
}

fn parts<T>(stream: UnixStream) -> (Hearing<T>, Saying) {
    let (reader, socket) = stream.into_split();
    let hearing = Hearing {
        lines: BufReader::new(reader),
        line: Vec::new(),
        said: std::marker::PhantomData,
    };
    let saying = Saying {
        socket,
        unsaid: Vec::new(),
    };
    (hearing, saying)
}

fn peer(stream: &UnixStream) -> Option<Pid> {
    let pid = stream.peer_cred().ok()?.pid()?;
    Pid::from_raw(pid)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
