//! The protocol between wrapper and warden.
//!
//! They use a Unix socket with an abstract name: it is not a file, and no descriptor has to be
//! inherited that could leak into the command and keep the socket open. Each side detects the end
//! of the other by the end of the stream. Both check the identity of the peer.

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
use super::tree;

/// Messages of the wrapper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Start the command.
    Start {
        /// Variables to add to its environment.
        environment: Vec<(String, String)>,
        schedule: Schedule,
        /// The time from TERM to KILL.
        kill_after_ms: u64,
        /// Wait for processes that outlive the command instead of ending them.
        wait_all: bool,
        /// Give it the terminal.
        foreground: bool,
    },
    /// The lease was renewed. The warden answers, so that each side knows that the other is alive.
    Keep(Schedule),
    /// Forward this signal to the command's group.
    Signal(i32),
    /// Continue the command, which was stopped.
    Continue { foreground: bool },
    /// End all processes: TERM now, KILL then.
    End { kill_at: BootTime },
}

/// Until when the command may run without further messages.
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

/// Messages of the warden.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// The command runs, in the group with this number.
    Started { group: i32 },
    /// It could not be started: the system's error and its number.
    NotStarted { cause: String, is_missing: bool },
    /// It was not started, because its time was already over.
    TooLate,
    /// An answer to a renewal.
    Kept,
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The warden started to stop it: no renewal was reported in time.
    Ending,
    /// The command has ended.
    Ended(How),
    /// This many of its descendants are still alive, and the warden starts to end them.
    Outlived(usize),
    /// No process is left.
    AllGone,
    /// This process cannot be ended: no permission.
    Forbidden(i32),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    Code(u8),
    Signal(u8),
}

/// How long a warden may take to answer, and how often to check whether it is still alive.
const START_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
/// How many bytes to buffer for a peer that does not read. Dropped messages do no harm: each side
/// acts alone when its time comes.
const UNSAID_MAX: usize = 1 << 20;

/// Receives `T`.
#[derive(Debug)]
pub struct Hearing<T> {
    lines: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
    said: std::marker::PhantomData<fn() -> T>,
}

/// Sends messages, and never waits for a peer that does not read.
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
        // Any process on this machine may connect to such a name.
        match tokio::time::timeout(LOOK, listener.accept()).await {
            Ok(Ok((stream, _))) if peer(&stream) == Some(pid) => {
                let (hearing, saying) = parts(stream);
                return Ok((child, hearing, saying));
            }
            Ok(accepted) => drop(accepted?),
            Err(_) => {
                let ended = child.try_wait()?;
                ensure!(ended.is_none(), "it exited at once");
            }
        }
    }
    let _ = child.kill();
    bail!("it did not respond within {START_MAX:?}")
}

/// Connects to the wrapper that started this process; `None` if the wrapper is gone already.
pub fn answer(name: &str) -> Result<Option<(Hearing<Order>, Saying)>> {
    let address = SocketAddr::from_abstract_name(name)?;
    let stream = std::os::unix::net::UnixStream::connect_addr(&address);
    let stream = stream.context("cannot reach the wrapper: only `tenure run` starts a warden")?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    let peer = peer(&stream);
    if peer.is_some() && peer == getppid() {
        return Ok(Some(parts(stream)));
    }
    let is_gone = peer.is_some_and(|peer| tree::look(peer).is_none());
    ensure!(is_gone, "the peer is not the wrapper");
    Ok(None)
}

impl<T: DeserializeOwned> Hearing<T> {
    /// The next message; `None` if the peer is gone. Cancel safe.
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
            Err(error) => bail!("invalid message between wrapper and warden: {error}"),
        }
    }
}

impl Saying {
    /// Sends it, if the peer is there; its absence is noticed by reading.
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

    /// Whether messages are left to send.
    pub fn has_unsaid(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// Waits until more can be sent, and sends it. Cancel safe.
    pub async fn say_more(&mut self) {
        match self.socket.writable().await {
            Ok(()) => self.go_on(),
            Err(_) => self.unsaid.clear(),
        }
    }

    /// Sends everything that is left, however long the peer takes to read it.
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
                // The peer is gone.
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
